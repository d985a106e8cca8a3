// Package quota keeps requests below a rate. A [Budget] is the token bucket of an account, a queue,
// or the tasks of a workload; classes of requests wait for it in order of importance, and an answer
// that says "too many" halves its rate, which then grows back.
//
// All processes of a workload share an account's limit: each beat says how much its process could
// use, and [Sharing] computes every process's share of the same view, so that together they stay at
// the limit without asking each other.
package quota
