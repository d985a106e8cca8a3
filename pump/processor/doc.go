// Package processor takes messages out of the queues of a workload and hands their tasks to a
// handler.
//
// The data path, in the order of a message's way:
//
//   - Package internal/poll gets messages.
//   - receive.go decides whether each belongs to this process, and unpacks it. segments.go and
//     spill.go deal with messages of other owners. lobby.go keeps messages whose segment is not
//     ready. aside.go puts back what is paused.
//   - internal/message/backlog.go holds the tasks that wait for a handler. workers.go runs
//     handlers, and outcome.go says what their errors mean.
//   - Package internal/settle decides what becomes of the message: it puts copies and deletes the
//     message. Before that, package internal/record enters the result into the ledger.
//
// Meanwhile internal/message/keep.go renews leases, cluster.go follows which segments are held, and
// package internal/trial finds the task that kills its process. start.go is what comes before all
// this, and stop.go what comes after.
package processor
