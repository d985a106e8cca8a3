// Package record is a processor's side of the ledger (P3). record.go says which tasks of a message
// are to be started, commit.go records what became of them before the message can be gone, fence.go
// makes this process the writer of what it holds, check.go finds rows that came back older,
// prune.go forgets finished runs. full.go and names.go deal with states and names that find no
// room.
//
// # Commits
//
// A commit is a request, and records all deliveries of a partition of the ledger that wait for it.
// The next one begins when the last is answered, and 50 ms after its beginning or later: what a
// crash repeats is what was done in the last two round trips. A table's request costs a tenth of a
// queue's, and a delivery takes two of those, so a commit for each delivery is 4.5 % of the money.
// Commits are bounded by what a partition and the control account take: see apart.
//
// A hand-over, a stop, the next trial of a suspect, and deliveries that fill a quarter of MaxBytes
// do not wait for that.
//
// # Fencing
//
// A fence writes the epoch, and nothing else, into the heads of one partition: one query, one
// transaction. Eight partitions are fenced together, all heads before any pages. Each segment is
// worked on as soon as its pages are loaded, and has its own back-off, so neither a slow table nor
// a damaged row holds up anything else. A message of a segment that is not ready waits in hand, its
// lease kept (lobby.go of pump/processor).
//
// A run's row must have been read after the fence, because the run may have been closed and pruned
// before it.
//
// # Rows that are behind
//
//   - An owner row is behind: the fence is refused, and the owner, if the row still names it,
//     claims above the head's epoch (Presence.Raise) with a warning.
//   - A head is behind: a commit or a fence meets it, or check.go does. check.go makes one query a
//     minute for each partition, and another ten seconds after the last if a duplicate was
//     recognised or a row was behind. *Without these queries an idle owner took the tasks of a
//     repair for duplicates for ever.* The segment is claimed and fenced above every epoch that the
//     head had: under one epoch a head has one history.
//
// # Pace and room
//
// The pause between commits grows with what the last commit wrote: all processes together ask a
// partition for 500 entities a second, a quarter of its limit, and the control account for 5,000. A
// process that holds all segments asks a partition for 1,280. The pause is a sixth of the lease at
// most.
//
// Room is reserved before the effect: a task begins only if there is room for the most by which the
// records can grow when all that is in hand is settled. A task that finds no room goes back without
// an attempt.
//
// # A full state
//
// The ledger refuses a result that would make a state larger than its bound; smaller results may
// fit. From the first refusal on, the segment's messages are put back before the handler, for half
// as long as the state has been full (1 to 15 min). One is tried at the end of each pause; when a
// result fits, all are tried. After an hour with refusals each message is tried by itself, and a
// refused task goes into quarantine when it comes back (state-full). Until then no message of the
// segment is suspected (P4.2). An owner that takes over begins with a new hour.
//
// # Losing a segment
//
// Handlers end with the hold, and finished results wait. If the process claims the segment again
// and the head still carries its own epoch, no other owner was there in between, and the results
// are recorded under the new fence. A foreign epoch drops them. Their messages, which were never
// deleted, are delivered to the owner that wrote it.
package record
