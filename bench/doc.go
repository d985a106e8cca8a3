// Package bench measures the pump beside one rival, a program that uses azqueue alone, and
// beside a floor, bare gzip and base64. All of it is benchmarks: it compares the CPU time of the
// client's process, which has one core, while a simulator in a process of its own has another. The
// input is made here and is always the same.
//
// `make bench` makes rounds of all benchmarks, so that ratios are taken within a round, and renders
// RESULTS.md and the tables of README.md and docs/reports/performance.md of what they printed.
// `make bench ONLY='Handler|Rival'` measures some, and prints; `make bench OLD=file` has benchstat
// compare what was printed then with what is printed now. `make soak` watches the memory of both
// binaries over time.
//
// RESULTS.md holds the figures of named commits with the command, the CPU and the Go
// version that made them; results.txt is what the benchmarks of its newest entry printed.
package bench
