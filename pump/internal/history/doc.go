// Package history keeps the last six hours of a workload in rows of its table: one row a minute, in
// a ring. The process that samples the queues writes them. So they are there after it was killed,
// and the next process goes on from the newest of them. Rows decide only how much of a day's cap is
// left.
package history
