// Package bench measures the pump beside one rival, a program that uses azqueue alone, and
// beside a floor, bare gzip and base64. It compares CPU time of the client's process. Client and
// simulator are processes on a core each, with GOMAXPROCS=1 ([Measure]). The input is made here
// and is always the same, and ratios are taken within one round.
//
// `make bench` runs it ([Suite]), keeps what was measured in results.json ([Results]), and
// renders RESULTS.md, and the tables of README.md and docs/performance.md, from that.
// `go run ./bench/measure run --help` says how to measure a part of it. [Soak] watches the
// memory of both binaries over time.
//
// RESULTS.md holds the figures of named commits with the command, the CPU and the Go
// version that made them.
package bench
