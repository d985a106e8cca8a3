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
// Trust says who should write a segment's ledger; its head alone says who does. A [Ledger.Fence]
// writes owner and epoch into the head, on the condition of the ETag that it read and only over a
// lower epoch, or an equal one of its own process. A commit is written on the condition of the ETag
// that the fence, or the commit before, has left. So in one history of a head epochs only grow,
// each epoch has one owner, and whatever an owner commits after another's fence is refused.
//
// Rows may be those of some time ago: an account that failed over, a table restored in parts, a row
// that was removed. Then two members may be told the same epoch by the owner rows. One of them
// fences first; the other's fence is refused, and if its entry still names it, it claims again
// above the head's epoch (cluster.Presence.Raise). If the head itself is of some time ago, its
// owner learns it from its next write, or from [Ledger.Check], and claims and fences it above every
// epoch that it had. The records since are gone, for any owner: mode once cannot know
// those tasks as done. They are done again when a copy of them comes, or when distributor runs
// repair puts them; a reducer's state lacks them until then.
package ledger
