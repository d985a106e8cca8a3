// Package record is a processor's side of the ledger (P3). record.go says which tasks of a message
// are to be started, commit.go records what became of them before the message can be gone, fence.go
// makes this process the writer of what it holds, check.go finds rows that came back older,
// prune.go forgets runs that are done with. full.go and names.go deal with states and names that
// have no room.
//
// # Commit credit
//
// A commit is a request, and records all deliveries of a partition of the ledger that wait for it.
// So deliveries wait, that many may share one: a commit takes one of the credit, of which a second
// earns half a one and every 143 other requests one, and which is 4 at most. Commits then are 0.7 %
// of the requests of a busy process, and at least one in two seconds of a slow one.
//
// Credit may become debt where no other delivery is coming: down to -1 when all that is in hand
// waits here, and when nothing has come for 50 ms, down to -8 and one more for each partition. What
// comes next waits until that is earned again.
//
// No credit is waited for by a hand-over, by a stop, when 2,048 deliveries of a partition wait,
// when those of all fill a quarter of MaxBytes or are 16,384, and when one has waited for a sixth
// of its lease. Such commits take their credit all the same.
package record
