// Package packaging holds what the packages for Linux install beside the binaries: units of
// systemd, the system user, examples of configuration, the scripts of deb and rpm. root is as it
// is installed, .goreleaser.yaml says what is released, the program in build makes what goreleaser
// cannot, and service tries it. docs/service.md is the operator's view.
package packaging
