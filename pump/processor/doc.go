// Package processor takes messages out of the queues of a workload and hands their tasks to a handler.
//
// The data path: package internal/poll gets messages, open.go decides whether each is this process's and reads it,
// backlog.go holds what waits for a handler, handle.go runs handlers, plan.go says what each
// outcome asks for, record.go and its files enter it into the ledger, settle.go puts copies and
// deletes the message. keep.go renews leases meanwhile. cluster.go and share.go follow which segments are
// held, others.go and spill.go deal with messages of others, and package internal/trial finds the task
// that kills its process.
package processor
