// Package ledger keeps what is done, by segment: which tasks of which runs and which foreign
// messages are settled, and a reducer's state beside them. A processor commits what it did to the
// ledger before it deletes a message; so a copy of a task is recognised, by the same processor or
// by any later one.
//
// The segments are in partitions of 64. A head per segment and pages behind it hold compressed sets
// of task numbers; a commit is one transaction of a partition. A head names owner and epoch.
//
// # Why no two members commit under the same epoch
//
// Trust says which member should write a segment's ledger; its head alone says which member does. A
// [Ledger.Fence] writes owner and epoch into the head, on the condition of the ETag that it read
// and only over a lower epoch, or an equal one of its own process. A commit is written on the
// condition of the ETag that the fence, or the commit before, has left. So in one history of a head
// epochs only grow, each epoch has one owner, and an owner's commit after another's fence is
// refused.
//
// Rows may come back older: after a fail-over of the account, a restore of parts of the table, the
// removal of a row. Then two members may be told the same epoch by the owner rows. One of them
// fences first; the other's fence is refused, and if its entry still names it, it claims again
// above the head's epoch (cluster.Presence.Raise). If the head itself came back older, its owner
// learns it from its next write, or from [Ledger.Check], and claims and fences it above every epoch
// that it had. The records since are gone, for any owner: mode once cannot know those tasks as
// done. They are done again when a copy of them comes, or when distributor runs repair puts them; a
// reducer's state lacks them until then.
//
// # Rows
//
// Partition WORKLOAD.ledger.PP holds 64 segments, so one transaction covers them. Keys are
// head.SSSS and page.SSSS.NNNNNN.
//
//   - A head has the epoch, the owner, the nonce of the last transaction, a small column of counts
//     (each run's done and quarantined: all that --wait and status read), the directory of its
//     pages, and the records changed lately.
//   - A record is at most 29 KiB: a run's floor (all below is settled), 2^16 numbers of a run as
//     roaring bitmaps (those that are done, and for each generation those in quarantine), foreign
//     messages, or a part of a reducer's state. If the numbers take more, the two lowest
//     generations become the lower one: at worst a late copy is tried once more.
//   - Records that did not change lately move into pages, in the same transaction as the change
//     that pushes them out. A page's row never changes: a new version gets a new number. So a
//     reader of the head finds the pages that it names, or reads the head again.
//   - Bounds, each with an error that says what to do: 7,200 live runs of a segment, 48 pages, 1
//     MiB of a reducer's state (compressed), 16,384 names. Half of a bound is pressure: a warning,
//     gauges, and shorter waits of the closer.
//   - A segment whose head cannot be read is not fenced. A segment whose pages cannot be read is
//     fenced, and otherwise not written.
//
// # Names
//
// A task without a run is recorded by its name: QUEUE/MESSAGEID of a message that another program
// put, RUN/segment/n of a task that was redriven when its run had ended. A text that is rewritten,
// marked, split off, forwarded or quarantined is wrapped into an envelope that says the name, so
// all copies are one task. Only a text that fills a message and does not compress cannot be
// wrapped.
//
// A name is removed when no copy can come any more:
//
//   - With the segment's next commit ([Ledger.DeletedForeign]), if the message was delivered once
//     only and as its producer put it, and its delete is acknowledged: no other process can have
//     copied it.
//   - By age ([Ledger.AgeForeign]) otherwise. Up to a quarter of the bound all names stay. Beyond
//     it the oldest go when this process has had them for 15 minutes and all queues that it polls
//     have answered for as long, counted from how far they are read. While an account is dark all
//     names stay. *Names were once removed in the order of recording: after an account was dark for
//     four minutes, all of its 40 messages were done again.*
//
// At the bound further tasks without a run wait: they are put back for half as long as that has
// lasted (5 s to 2 min), under their names. Tasks of runs go on.
package ledger
