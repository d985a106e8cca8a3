// Package settle ends deliveries. All verdicts on a message's tasks become one plan
// (plan.go): copies to put, then one final request. [Settlers] carries it out (settle.go) in this
// order: the copies are acknowledged, the result is recorded, then the message is deleted, replaced
// or released. A step that fails is tried again from where it stopped.
//
// quarantine.go makes the copies for quarantine. forward.go puts messages of other owners into
// their home queues, and hints.go tells those owners.
//
// # Retries
//
// All tasks that failed in one delivery share one full-jitter delay; each RetryAfter has its own,
// and so has each "not now" (P8.4). A message has one visibility, and a task must not come earlier
// than it asked to. So tasks share a message while the latest waits at most twice as long as the
// earliest (plus a second). Further groups are put as messages of their own before the original is
// rewritten for the last group.
//
//   - A task that was not started keeps its attempt. So does one that the handler gave back with
//     Release, because the trouble was not the task's.
//   - If a group does not fit, the whole message comes back at the latest time that any of its
//     tasks asked for.
//   - A message whose attempts cannot be written down (a full foreign text) is slowed down by its
//     dequeue count, and never quarantined by it.
//
// At most 32 settlements run together for a queue. Neither gets nor handlers wait for them, but a
// queue or account with too much unsettled is not asked for more.
//
// # Claim
//
// Claim stands before a handler and lets work on a key begin once in an interval (origins
// B2 to B4).
package settle
