// Package bench measures the pump beside its rivals: what people write with the SDK
// today, and bare gzip. What is compared is the CPU time of the client's process; the simulator
// is another process, or is told apart by a profile. It makes its own input, always the
// same, and ratios are taken within one run.
//
// `make bench` runs it ([Suite]), keeps what was measured in results.json ([Results]), and
// renders RESULTS.md and the table of docs/performance.md from that. BenchmarkWays is the
// comparison for those who change something, and `go run ./bench/measure run --help` says how
// to make parts of it. [Soak] watches the memory of both binaries over time.
//
// RESULTS.md holds the figures of named commits with the command, the CPU and the Go
// version that made them.
package bench
