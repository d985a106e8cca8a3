// Package history keeps the last six hours of a workload in rows of its table: one row a minute, in a
// ring. The process that samples the queues writes them, so they are there after it was killed, and
// the next one goes on from the newest of them. Nothing is decided by a row but how much of a day's
// cap is left.
package history
