// Package diagnose holds the commands with which you find out what is wrong: doctor and peek. Both
// binaries have them, so that a machine needs one of the binaries only.
package diagnose
