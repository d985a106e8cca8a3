// Package coordination gives programs what a workload's table is good for besides tasks: gates at
// which processes wait until an operator opens them ([Gate]), numbers that no two processes get
// ([IDRange]), and claims of a key for an interval ([Claims]). They need no distributor or
// processor, only the table that gates.Table gives and the name of the workload.
//
// # Rows that are gone, or come back as they were before
//
// When the control account fails over to another region, or its table is restored, rows may be gone
// or be older. No process can see that in such a row. What follows:
//
//   - An [IDRange] never gives a number that it has reserved before, and moves the row up to where
//     it was, which its Log is told. It may give numbers again that other processes have reserved
//     since: the row no longer says so. To be sure, let all processes use another name after a
//     restore, or one process Reserve more numbers than were given in the lost time.
//   - [Claims] may grant a key once more within its interval, because the row that says when work
//     on it began is gone. A [Claim] in hand whose row is gone is recorded by its Done. Where
//     another process has claimed the key by then, Done is [ErrClaimTaken].
//   - A [Gate] is as its row says: one that was released may be closed again for processes that
//     come later, and one that was held may be open. Release or hold it again.
package coordination
