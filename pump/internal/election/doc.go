// Package election says which distributor distributes: one of a workload's distributors leads,
// distribution after distribution, through a compare-and-swap on one table row.
//
// # The election
//
// One row says which distributor runs the next distribution of a workload. Each distributor calls
// [Election.Try] now and then:
//
//	           insert, epoch 1                       Finish
//	(no row) ------------------> running(me, n) --------------> idle, due at
//	                              ^   |    ^  |                 Timestamp + Every
//	                              |   |    |  | Abandon             |
//	                 beat, Begin, +---+    |  v                     |
//	                 Save (CAS)            | vacant                 |
//	                                       |  |  anyone, at once    | when due, anyone
//	       running(dead, n) ---------------+  |  (continues)        | (a new distribution)
//	         anyone, after lease + margin     |                     |
//	         of its own looking (continues)   v                     v
//	                                    running(me, n+1) by compare-and-swap
//
// The winner's [Term] beats by itself and ends by Finish, by Abandon, or by
// itself when leadership is lost. Epochs only grow; each win is one more, or more.
//
// # When is a distribution due
//
// The idle row is written exactly once, by Finish, and holds the period Every; the service stamps
// the write with its own clock. So NextTimeToRun is the row's Timestamp + Every, in server time,
// without any machine's clock. To judge it, a distributor needs the server's time: it writes the
// clock row and reads it back, and the stamp of that row is a server time not later than the moment
// of the answer. From there it counts on its own monotonic clock, asking again every ten minutes.
// So a distributor that has just started knows how much of a long period is left, and clocks that
// are minutes off, on any machine, change nothing. A distribution never starts early by more than
// the service's own clock jumps, and late by at most one round trip.
//
// With a [Schedule] the row says instead up to when due times are considered, and which is next.
// A candidate compares that with the server's time, late by a thousandth of ten minutes at most and
// never early. A term makes the latest due time that is not considered yet ([Term.Due]); Finish
// writes that it is. The row is not the only proof that a due time was made: its run has an id that
// follows from it. So a row that is gone or came back older costs a look at that run.
//
// # The trust window
//
// A leader trusts its leadership until `beat sent + lease - margin`, on its own
// monotonic clock, counted from the acknowledged beat's first attempt (P5.2).
// A beat lands after it was sent, so an observer sees it later still, and calls
// the leader dead only after it saw the row unchanged for `lease + margin`
// (P5.3), on its own clock:
//
//	leader    sent |------------- trusts: 17 s -------------|
//	row            . landed
//	observer        . first seen |----------- unchanged: 23 s, then CAS -----------|
//
// (lease 20 s, margin 3 s). The 2 x margin = 6 s between absorb clocks that run at different
// speeds, and what the leader had under way. A beat that is answered after trust ended does not
// restore it: the term is over, and the instance must win again with epoch + 1. The 23 s count only
// while the observer's reads succeed, each within two beats of the last: when the control plane is
// dark for all, no member is declared dead by it.
//
// # What happens to an election when
//
//   - The leader dies: its beat stops, 23 to 28 s later another wins with
//     epoch + 1 and gets the run and the last checkpoint (Term.Resume).
//   - The leader is paused (stopped process, frozen machine) and wakes as a zombie: its trust has
//     ended, Save returns [ErrDeposed], and the row's ETag refuses a Save that is already on its
//     way. Puts into queues cannot be fenced; a zombie's are duplicates of tasks with identities.
//   - Its machine is suspended: some monotonic clocks stand still then. Trust ends as soon as the
//     monotonic clock or the wall clock says so; so a wall clock that is set forward by more than
//     what is left of trust ends a term too.
//   - The control plane is dark: the leader goes on until its trust ends and
//     then stops. When the table answers again, the old leader claims its own
//     row at once with epoch + 1; the others would first have to watch a lease.
//   - An answer of the winning write is lost: read back, as above. If that takes
//     longer than the trust window the win is void and claimed again.
//   - The leader leaves in good order in mid-run (Abandon): the row is vacant and the next
//     distributor that looks continues from the checkpoint.
//   - The leader dies between sealing the run and Finish: the next one gets the
//     run as Resume, finds its row sealed, and only has to call Finish.
//   - The row is gone, or comes back as it was before (a fail-over, a restore): the leader is
//     deposed at its next beat. Epochs stay above all that this instance has seen, or that
//     Options.Left knows. The last leader claims the row at once and goes on with its run; the
//     others first watch for a lease + margin, and then begin that run from its start. A removed
//     idle row stays due when it was.
package election
