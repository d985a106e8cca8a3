// Package packaging holds what the packages for Linux install beside the binaries: units of
// systemd, the system user, examples of configuration, the scripts of deb and rpm. nfpm.yaml lists
// all of it; the program in build makes the packages and the image. docs/service.md is the
// operator's view.
package packaging
