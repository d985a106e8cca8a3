// Package closing ends runs: it closes those whose every task is recorded, gives up those that
// no distributor continues, and says what becomes of a message by the state of its run (P3.7).
//
// The processor of rank 0 closes, and a leader while it has nothing to distribute. A Horizon says
// how far all queues are read: before it passes the last sign of a run, the run is not over.
package closing
