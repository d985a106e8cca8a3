// Package record is a processor's side of the ledger (P3). record.go says which tasks of a message
// are to be started, commit.go records what became of them before the message can be gone, fence.go
// makes this process the writer of what it holds, check.go finds rows that came back older,
// prune.go forgets runs that are done with. full.go and names.go deal with states and names that
// have no room.
//
// # Commits
//
// A commit is a request, and records all deliveries of a partition of the ledger that wait for it.
// The next one begins when the last is answered, and 50 ms after its beginning or later: what a
// crash repeats is what was done in the last two round trips. A table's request costs a tenth of a
// queue's, and a delivery takes two of those, so a commit for each delivery is 4.5 % of the money.
// What bounds commits is what a partition and the control account take: see apart.
//
// A hand-over, a stop and the next trial of a suspect do not wait for that, nor does what fills a
// quarter of MaxBytes.
package record
