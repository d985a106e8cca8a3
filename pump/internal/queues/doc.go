// Package queues is the accounts and queues of a workload as the engine uses them. Each request is
// paid from the budgets of its account and queue, has a deadline, is counted, and tells the queue's
// health.
//
// # Money
//
// Money keeps a workload within what a UTC day may cost (pump.Budget.CostPerDay). The
// process that samples the queues says in its beats what the day has cost. From that, and from what
// each process says that it spends, every processor takes its share of the rest of the day. All use
// the same rule and the same rows. A processor slows the polling of empty queues first, then gets.
// Requests that end work, keep it or record it are paid for and never held back.
//
// # The rule
//
// What is left of the cap is divided by the seconds that are left of the day, two minutes at least.
// The spending of members that poll nothing is taken off. Processors share the rest by what each
// says that it spends, as they share the limit of an account. A processor's share fills a bucket
// that each of its requests empties, into debt if need be. A get waits until the bucket is not
// empty, except for the one message that a queue is asked for after the slowest pause.
//
// While the bucket is found empty, the pauses of empty queues grow by half with each look at the
// cluster; while less than 0.7 of the share is spent, they shrink. So an error of the published
// sum, or of a share, is made up for over the rest of the day. A process that cannot learn the
// day's sum keeps the share that it last knew.
//
// A beat carries two counters an account, requests of queues and of tables since the process
// started. A run's tallies carry the requests of its own messages; empty gets, beats and looks
// belong to no run.
//
// # Quota
//
// Quota keeps requests below a rate. A [Budget] is the token bucket of an account, a queue, or the
// tasks of a workload; classes of requests wait for it in order of importance, and an answer
// that says "too many" lowers its rate, which then grows back.
//
// All processes of a workload share an account's limit: each beat says how much its process could
// use, and [Sharing] computes every process's share of the same view, so that together they stay at
// the limit without asking each other.
package queues
