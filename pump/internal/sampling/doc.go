// Package sampling looks at all queues of a workload now and then, for the metrics that alarm
// people and scale processors. One process of a workload samples, within its budgets and at a
// bounded rate.
//
// Each member's beat says whether it would sample (Config.Sample). The first processor by rank that
// would does it, and without one the first other member by name. No election is needed: all read
// the same rows, and two that believe it for a while cost some requests.
//
//   - The look: a count of each queue, which is never too low and includes hidden messages, and a
//     peek: at all messages if there are at most 32, else at the first, which is the oldest. A
//     count of 0 needs no peek. Poison queues are counted.
//   - The division: beats say by account how many messages a member holds and how many it has put
//     back for later. If a peek did not show all, what is visible is the count less these. They are
//     up to a beat old.
//   - The rate: what all processors deleted between two samples. It rises at once, falls over a
//     minute while something waits, and stays while nothing does. The backlog in seconds divides
//     what waits by the rate, or by one message an hour, so no scaler meets an infinite number.
//   - The price: at most 25 requests a second, paid as puts are. *They were paid as gets, and if an
//     account was at its limit they never got a turn: the metrics stopped when they were needed.*
//     An account that does not answer delays the others for 30 s at most, and is forgotten after
//     five minutes.
//   - What remains of all live runs is what the closer knows by the ledger. No series has a queue,
//     a run or a key.
//
// # History
//
// History keeps the last six hours of a workload in rows of its table: one row a minute, in a ring.
// The process that samples the queues writes them. So they are there after it was killed,
// and the next process goes on from the newest of them. Rows decide only how much of a day's cap is
// left.
//
// # Rows
//
// The key is the minute modulo the ring; the row says which minute it is, and is overwritten whole.
// It is one property, compressed JSON, bounded for 250 accounts: the rest is one account. If a
// minute has two writers the later one stays; a minute without a row is a gap. Samples have a flag:
// without it the sample is unknown, as at a takeover or for a dark account.
//
// # Marks
//
// A second property has marks: what each member had asked in all when the row was written, by its
// name and since when it counts. So what members asked between two samplers is counted, except for
// the last beat of a member that died. Marks of members that are not seen stay in the rows for an
// hour. What cannot be told apart is divided: by the member's accounts, and at midnight by time. If
// a member has no mark, all that it asked since midnight is counted. A count that is smaller than a
// known one is ignored. A process that stops while no other samples writes a row of the minute as
// far as it has come.
package sampling
