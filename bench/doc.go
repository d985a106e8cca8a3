// Package bench measures the pump beside one rival, a program that uses azqueue alone, and beside a
// floor, bare gzip and base64. All measurements are Go benchmarks. They compare the CPU time of the
// client's process, which has one core, while a simulator in a process of its own has another. The
// package makes the input, which is always the same.
//
// `make bench` runs rounds of all benchmarks, so that ratios are taken within a round, and renders
// RESULTS.md and the tables of README.md and docs/reports/performance.md from their output. `make
// bench ONLY='Handler|Rival'` runs and prints some of them; with `make bench OLD=file` benchstat
// compares that output with the new one. `make soak` watches the memory of both binaries over time.
//
// RESULTS.md holds the figures of named commits with the command, the CPU and the Go version that
// made them; results.txt is what the benchmarks of its newest entry printed.
package bench
