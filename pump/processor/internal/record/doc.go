// Package record is a processor's side of the ledger (P3). record.go says which tasks of a message
// are to be started, commit.go records what became of them before the message can be gone, fence.go
// makes this process the writer of what it holds, check.go finds rows that came back older,
// prune.go forgets runs that are done with. full.go and names.go deal with states and names that
// have no room.
package record
