// Package closing ends runs: it closes those whose every task is recorded, gives up those that
// no distributor continues, and says what becomes of a message by the state of its run (P3.7).
//
// One processor, that of rank 0, closes. A Horizon says how far all queues are read: before it
// passes the last sign of a run, the run is not over.
package closing
