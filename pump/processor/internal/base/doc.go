// Package base is what the parts of one Run of a processor share ([Env]): its configuration,
// storage, log, counts and ends. It also keeps what the parts ask each other about runs: their
// rows, and tallies of them.
//
// # Ownership
//
// Ownership says by a view of the cluster which queues a processor reads, which member owns a
// message, and when a message of another member comes back (P6, P7).
package base
