// Package distributor puts tasks into the queues of a workload.
//
// A [Distributor] reads a source once, or every so often as the elected one of several. A [Sender]
// takes tasks one by one from a program. [Distributor.Repair] puts lost tasks of a run again.
//
// The data path: run.go reads the source. internal/pack numbers each task in its segment, collects
// the tasks of a segment into messages, and saves how far all is acknowledged. internal/send puts
// each message into its queue. lead.go holds the election's term.
package distributor
