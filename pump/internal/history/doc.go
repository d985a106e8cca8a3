// Package history keeps the last six hours of a workload in rows of its table: one row a minute, in
// a ring. The process that samples the queues writes them. So they are there after it was killed,
// and the next process goes on from the newest of them. Rows decide only how much of a day's cap is
// left.
//
// # Rows
//
// The key is the minute modulo the ring; the row says which minute it is, and is overwritten whole.
// It is one property, compressed JSON, bounded for 250 accounts: the rest is one account. If a
// minute has two writers the later one stays; a minute without a row is a gap. Samples have a flag:
// without it nothing is known, as at a takeover or of a dark account.
//
// # Marks
//
// A second property has marks: what each member had asked in all when the row was written, by its
// name and since when it counts. So what members asked between two samplers is counted, except for
// the last beat of a member that died. Marks of members that are not seen stay in the rows for an
// hour. What cannot be told apart is divided: by the member's accounts, and at midnight by time. If
// a member has no mark, all is counted that it asked since midnight. A count that is smaller than a
// known one is ignored. A process that stops while no other samples writes a row of the minute as
// far as it has come.
package history
