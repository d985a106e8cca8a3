// Package cluster makes many processes one machine: which members there are, which segments each
// owns, and which segments' messages may lie in another queue than their first.
//
// # The cluster
//
// Every process of a workload is a member: it has a row, which it beats, and a
// processor owns segments (P5). [Join] makes a [Presence], whose one goroutine
// does everything: beat, look, judge, write, in this order, one request after the other.
//
//	a member        Join: insert
//	  (no row) ----------------------> trusted ---------------------------+
//	     ^  ^                           |   ^  beat acknowledged in time  |
//	     |  |                           |   +---(until sent + 17 s)-------+
//	     |  |                           |
//	     |  |       no beat acknowledged|   ^ beat acknowledged late: a member
//	     |  |       for 17 s since sent v   | still, but all it held is void
//	     |  |                          untrusted
//	     |  |                           |
//	     |  +-- evicted: row removed <--+ by an observer, who has seen the row
//	     |      (then joins again in a     unchanged for 23 s; on its ETag
//	     |      new incarnation)
//	     +-- Leave: drained, given up, row removed
//
//	a segment        claim, epoch n+1 (CAS)             plan says another
//	  unowned, n -----------------------------> held, n+1 -------------> draining, n+1
//	     ^  ^                                   |  ^                      |      |
//	     |  |                     trust is over |  | claimed again,       |      |
//	     |  |                                   v  | epoch + 1 (CAS)      |      |
//	     |  |                                  void, n+1 <----------------+      |
//	     |  |                                   |                trust is over   |
//	     |  +-- owner evicted, or left ---------+                                |
//	     +------ given up, epoch n+1 stays (CAS): nothing in hand, or a lease ---+
//
// The plan ([View.Plan]) is a pure function of what was read, the same on
// every member: no member gives orders. Members that read at different moments
// may want different things for a moment; what they do stays conditional.
//
// # Why no two members trust the same segment
//
// [Presence.Trusted] is true for a segment whose claim was acknowledged, while
// trust lasts. Another may claim it in four cases only, each by compare-and-swap
// of the entry that it judged, and in each the former owner's trust is over, or
// its claim can no longer be acknowledged:
//
//   - The entry is unowned. Its owner wrote that, after it had ended its holding.
//   - The entry names an incarnation that is not among the members. Owners are
//     read before members (their keys come first), and an owner is a member
//     before it claims, so that incarnation was a member when the entry was read
//     or earlier, and is not one later: it has left, having ended its holdings, or
//     was evicted. It never comes back, for a member joins in a new incarnation.
//   - It was evicted: by a removal on the condition of the ETag that an observer had seen unchanged
//     for lease + margin of its own clock. Trust in a beat ends lease - margin after it was sent,
//     and a beat is seen after it is sent; so trust in the beat that has this ETag was over. A
//     later beat fails on the removed row. If one had landed first, the removal would have failed.
//   - The entry names a live member whose beats have not listed the segment for
//     lease + margin. A claim is acknowledged to a member that trusts a beat sent
//     before; that trust ends lease - margin later, unless another beat is
//     acknowledged in time, which lists the segment. The observer has seen neither.
//     A beat that lands from then on is late, and voids what is held.
//
// Between judging and writing any time may pass (a pause, a slow answer): a judgement of an entry
// stays true until the entry changes, and then the compare-and-swap fails. The number of judges,
// their clocks and the moment do not matter: one write wins.
//
// A beat acknowledged after trust had ended restores nothing: everything held
// is claimed again with another epoch, because an observer may be about to claim.
//
// # What happens to the cluster when
//
//   - A member dies: 23 to 28 s after its last beat the first in order evicts it and nudges the
//     others; the members planned for its segments claim them. Everyone after it would do the same
//     a little later.
//   - A member is paused and goes on: its trust is over by its own clock before it
//     does anything. Its beat, claims and hand-overs fail on ETags; it finds its row
//     gone and joins again. With BestEffort handlers may go on until then.
//   - Its machine is suspended, or its wall clock is set forward: trust is over as soon as either
//     clock says so. The next beat, a few seconds later, is a late one: what is held is void and
//     claimed again with another epoch, which is one write an owner row. A clock that steps costs
//     no more than that, at most once a beat. A wall clock that is set back, or stepped by less
//     than what is left of trust, changes nothing.
//   - The control plane is dark for all: trust ends everywhere after 17 s. No member can be
//     declared dead, for time without reads does not count; no member claims or gives up. With
//     BestEffort each goes on with what it has. When it answers again, each member adopts its own
//     entries with epoch + 1.
//   - The control plane is dark for one member: the same for this member, but the others evict it.
//   - The answer of a claim is lost: it is read back. If that does not succeed before the next beat
//     is due, no member has it: if it lands later, the entry names a member that does not hold it.
//     That member sees this and claims it again, or gives it up if it is planned for another.
//   - The answer of a beat is lost: the same beat is sent until it is answered.
//     It counts from when it was first sent.
//   - The member that a segment is planned for does not claim it: after one lease any member does,
//     the first in order first; after two leases it is an alarm.
//   - A process starts under the name of one that died: it waits, as all do, until the other's row
//     counts as dead. Under the name of a live process: an error.
//   - A row is damaged, or of a newer program: it is named in the log and left as it is. Such a
//     member lives, and keeps what it owns, as long as its row changes. Its silence is judged by
//     the ETag alone, over the lease in the row if this program can read that, else over the
//     longest lease of any member; then it is evicted like any other. A damaged row of owners does
//     not change any more, so held segments of it stay held; everything else goes on.
//   - A member leaves and the table is dark: it drains, tries to remove its row for
//     as long as it may, and is evicted later if it could not.
//
// # What it costs
//
// One write and one query a beat for each of up to 32 members. In a larger cluster two read all
// rows in each beat and write what they read into one row, the muster, because the cost of a look
// grows with the number of members. The others read that row in every third beat or more seldom.
// The two are the first by a hash of the names, so that they do not stand on one host; if both die
// at once, the next stands in four beats later. A member that waits for a segment, or for one to be
// handed over, looks up to four times as often, all together 25 times a second.
//
// # Rows
//
// All rows that a member looks at in each beat stand in the workload's own partition, so one query
// in key order reads them: owner.NNNN (512 segments each: instance, incarnation and epoch),
// present.INSTANCE (a member), spill (marks), workload (the map). The order is part of the safety:
// owners are read before members.
//
// A beat says which segments the member holds, what it wants of each account, and where its admin
// port is.
//
// # Musters
//
// With 300 members the reading takes some 230 entities a second at rest; with 1,000, which join
// within a minute, less than 1,000 (make play WHAT=members). Rules for the reader of a muster:
//
//   - A muster is fresh if it shows a beat of its reader that the reader sent in the last three
//     beats. By the reader's own clock the watcher has read later than that. A muster that is
//     older, damaged, newer, gone, or another workload's counts for nothing. Without a fresh one
//     for three beats the members read all rows one after the other, by rank; the first stands in
//     and writes the muster until another does.
//   - A member plans by a muster and does not evict by it. It claims a segment without an owner
//     only if the plan says so.
//   - Before such a claim it reads that owner's row (confirm; P5.4): in a muster the members were
//     read before the owners, so an owner that the muster does not know may have joined since.
//   - Members give way to each other: 1,000 processors share 1,024 segments in 16 owner rows. A
//     member waits up to 8 ms for each member, reads the row and writes it; one that loses waits as
//     long again. Watchers do not wait. They tell the members that a segment without an owner is
//     planned for.
//   - A member that joins more than 64 waits up to six beats, beating, for the muster that shows
//     it. It reads all rows if no process keeps a muster.
//   - The log says if a cluster does not fit the row (840 KiB compressed: thousands of members).
//     Each member then reads all rows, seldom.
//
// # Handing over
//
// The owner of a segment that is planned for another member drains it: it starts nothing new,
// releases the tasks that were not started, and lets handlers finish, for a lease at most. Then it
// writes the entry unowned and nudges the other member, which claims. Members look four times a
// beat until the plan is reached. Among more than 32 members an owner learns of the plan within 15
// to 20 s, and a watcher nudges the other.
//
// # The proof, played
//
// Scripts in virtual time (testdata/*.cluster; from seeds: make play WHAT=cluster) play joins,
// crashes, pauses, partitions, wrong clocks, lost answers and dark minutes on the real driver and
// the simulator. At every tick and request they judge which member trusts which segment. A broken
// promise prints a script that plays it again.
package cluster
