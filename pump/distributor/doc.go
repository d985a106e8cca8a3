// Package distributor puts tasks into the queues of a workload.
//
// A [Distributor] reads a source once, or every so often as the elected one of several. A [Sender]
// takes tasks one by one from a program. [Distributor.Repair] puts lost tasks of a run again.
//
// The data path: run.go reads the source, segment.go numbers each task in its segment, lane.go
// and pack.go collect the tasks of a segment into envelopes, route.go says which queue is a message's,
// and put.go puts it, through the sink of its queue (sink.go). checkpoint.go saves how far all
// before a point is acknowledged, lead.go holds the election's term, health.go knows queues that do not answer.
package distributor
