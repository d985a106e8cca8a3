// Package cli is what the mains share: exit codes, signals, logs and progress
// on standard error, summaries on standard output, and what children may see
// of the environment.
package cli
