// Package bench measures the pump beside one rival, a program that uses azqueue alone, and beside a
// floor, bare gzip and base64. All measurements are Go benchmarks. They compare the CPU time of the
// client's process, which has one core, while a simulator in a process of its own has another. The
// package makes the input, which is always the same.
//
// `make bench` builds the benchmarks into a program of their own, out/bench/bench.test. It runs
// rounds of all of them, so that ratios are taken within a round, and renders RESULTS.md and the
// tables of README.md and docs/reports/performance.md from their output. That report says how to
// measure a part, to compare, and to take profiles. `make soak` watches the memory of both binaries
// over time.
//
// RESULTS.md holds the figures of named commits with the command, the CPU and the Go version that
// made them; results.txt is what the benchmarks of its newest entry printed.
package bench
