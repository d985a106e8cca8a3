// Package bench measures the pump: its parts by `go test -bench`, and its
// binaries as processes that a user would start. It makes its own input, always
// the same, and reports what can be compared across machines: tasks per message,
// requests per thousand tasks, peak memory, and ratios taken in one run.
//
// RESULTS.md holds the figures of named commits with the command, the CPU and the Go
// version that made them.
package bench
