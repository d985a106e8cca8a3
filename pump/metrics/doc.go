// Package metrics has the metrics of a process for Prometheus, for a program without the admin
// port of the binaries. [Counters] serve any process. [Processor] shows the state of a processor,
// [Distributor] that of a distributor or a Sender. All are named queuepump_; docs/metrics.md has
// the table. The caller adds the label workload (prometheus.WrapRegistererWith), as the binaries
// do.
package metrics
