// Package metrics has the metrics of a process for Prometheus, for a program that has no admin port of
// the binaries. [Counters] serve any process, a [distributor.Sender] too; [Processor] and
// [Distributor] show the state of one (that of a Sender is shown by Distributor). All are named queuepump_; docs/metrics.md has the table. The
// label workload is the caller's to add (prometheus.WrapRegistererWith), as the binaries do.
package metrics
