// Package cli is what both programs share: help, flags from the environment, exit codes, signals,
// logs and progress on standard error, summaries on standard output, names of commands, and what
// children may see of the environment.
package cli
