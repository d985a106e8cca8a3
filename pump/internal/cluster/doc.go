// Package control is the control plane of a workload: what its processes agree
// about, kept in one Azure table of one account, the control account. Everything
// here rests on one atom, the conditional write of a table row, and on one small
// interface over it (row.go): read a row; try an optimistic write.
//
//	row            partition          row key           what it is
//	owners         NAME               owner.NNNN        who owns segments NNNN to NNNN+511, and each one's epoch (xNNNNN from 10,000 on)
//	member         NAME               present.INSTANCE  a process that takes part: its beat, what it holds and wants
//	spill          NAME               spill             which choices of which segments are marked (P6.3)
//	anchor         NAME               anchor            in each account: who last set about making the workload (Maker)
//	workload       NAME               workload          shard map, number of segments, delivery; pinned when created
//	run            NAME.runs          32 hex digits     one distribution; never removed by age (P1.1, pump/DESIGN.md)
//	run by time    NAME.runs          t.TIME.RUN        makes runs listable newest first
//	election       NAME.election      election          who distributes, until when, and how far it got
//	clock          several            clock             written only to learn what time the service has
//	gate           NAME.gates         the gate's name   open or not
//	id range       NAME.ids           the range's name  the next number that nobody has
//	claim          NAME.claims.X      hash of a key     when work on the key began and ended (16 partitions)
//	tally          NAME.progress      RUN.INSTANCE      what an instance has done of a run
//	ledger head    NAME.ledger.PP     head.SSSS         what is recorded of segment SSSS, under whose epoch (PP = SSSS/64; xSSSSS from 10,000 on)
//	ledger page    NAME.ledger.PP     page.SSSS.NNNNNN  more of it; never changed, only replaced
//
// # Ambiguous answers
//
// A timeout, a broken connection or a 5xx means that a write may be done, or
// may be done later. Every write carries a fresh nonce. After an ambiguous
// answer the row is read back: my nonce, and it was done; the version I based
// the write on, and it may still land, so the same bytes go out again with the
// same condition and the same nonce (P3.5); anything else, and another won.
// The same holds for a 409 or 412 that follows an ambiguous attempt: it may be
// my own write that I ran into (window 20). After a 503 for too many requests the
// same bytes go out again without reading, which spares a busy partition a request
// each time: if the refused write landed, the next is answered by a 412.
//
// # The election
//
// One row says who runs the next distribution of a workload, whatever the
// number of distributors. Each of them calls [election.Election.Try] now and then:
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
// The winner's [election.Term] beats by itself and ends by Finish, by Abandon, or by
// itself when leadership is lost. Epochs only grow; each win is one more.
//
// # When is a distribution due
//
// The idle row is written exactly once, by Finish, and holds the period Every;
// the service stamps the write with its own clock. So NextTimeToRun is the
// row's Timestamp + Every, in server time, and no machine's clock went into it.
// To judge it, a distributor needs the server's time: it writes the clock row
// and reads it back, and the stamp of that row is a server time not later than
// the moment of the answer. From there it counts on its own monotonic clock,
// asking again every ten minutes. So a distributor that starts anew knows how
// much of a long period is left, and clocks that are minutes off, on any
// machine, change nothing. A distribution never starts early by more than the
// service's own clock jumps, and late by at most one round trip.
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
// (lease 20 s, margin 3 s). The 2 x margin = 6 s between absorb clocks that run
// at different speeds, and what the leader had under way. A beat that is
// answered after trust ended does not restore it: the term is over, and the
// instance must win again with epoch + 1. The 23 s count only while the
// observer's reads succeed, none further than two beats from the one before:
// when the control plane is dark for everybody nobody is declared dead by it.
//
// # What happens to an election when
//
//   - The leader dies: its beat stops, 23 to 28 s later another wins with
//     epoch + 1 and gets the run and the last checkpoint (Term.Resume).
//   - The leader is paused (stopped process, frozen machine) and wakes as a
//     zombie: its trust has ended, Save returns [election.ErrDeposed], and were a Save
//     already on its way, the row's ETag refuses it. Puts into queues cannot be
//     fenced; a zombie's are duplicates of tasks with identities.
//   - Its machine is suspended: some monotonic clocks stand still then. Trust ends
//     by the monotonic clock or by the wall clock, whichever says so first; so a wall
//     clock that is set forward by more than what is left of trust ends a term too.
//   - The control plane is dark: the leader goes on until its trust ends and
//     then stops. When the table answers again, the old leader claims its own
//     row at once with epoch + 1; the others would first have to watch a lease.
//   - An answer of the winning write is lost: read back, as above. If that takes
//     longer than the trust window the win is void and claimed again.
//   - The leader leaves in good order in mid-run (Abandon): the row is vacant
//     and the next who looks continues from the checkpoint.
//   - The leader dies between sealing the run and Finish: the next one gets the
//     run as Resume, finds its row sealed, and only has to call Finish.
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
// every member: nobody gives orders. Members that read at different moments
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
//   - It was evicted: by a removal on the condition of the ETag which an observer
//     had seen unchanged for lease + margin of its own clock. Trust in a beat ends
//     lease - margin after it was sent, and a beat is seen after it is sent; so
//     trust in the beat that has this ETag was over. A later beat fails on the
//     removed row. Had one landed first, the removal would have failed.
//   - The entry names a live member whose beats have not listed the segment for
//     lease + margin. A claim is acknowledged to a member that trusts a beat sent
//     before; that trust ends lease - margin later, unless another beat is
//     acknowledged in time, which lists the segment. The observer has seen neither.
//     A beat that lands from then on is late, and voids what is held.
//
// Between judging and writing any time may pass (a pause, a slow answer): what
// was judged of an entry stays true for as long as the entry does not change,
// and if it changes the compare-and-swap fails. Nor does it matter how many
// judge the same, which clocks they have, or when: one write wins.
//
// A beat acknowledged after trust had ended restores nothing: everything held
// is claimed again with another epoch, because an observer may be about to claim.
//
// # Why no two members commit under the same epoch
//
// Trust says who should write a segment's ledger; its head alone says who does. A
// [ledger.Ledger.Fence] writes owner and epoch into the head, on the condition of the ETag that it
// read and only over a lower epoch, or an equal one of its own process. A commit is written on the
// condition of the ETag that the fence, or the commit before, has left. So in one history of a head epochs only
// grow, each epoch has one owner, and whatever an owner commits after another's fence is refused.
//
// Rows may be those of some time ago: an account that failed over, a table restored in parts, a
// row that somebody removed. Then two members may be told the same epoch by the owner rows. One
// of them fences first; the other's fence is refused, and if its entry still names it, it claims again
// above the head's epoch ([Presence.Raise]). If the head itself is of some time ago, its owner learns it from its
// next write, or from [ledger.Ledger.Check], and claims and fences it above every epoch that it had. What was
// recorded since is gone, whoever recorded it: mode once cannot know those tasks as done. They are done again when a copy of
// them comes, or when distributor repair puts them; a reducer's state lacks them until then.
//
// # What happens to the cluster when
//
//   - A member dies: 23 to 28 s after its last beat the first in order evicts it
//     and nudges the others; who is planned for its segments claims them. Everyone
//     after it would do the same a little later.
//   - A member is paused and goes on: its trust is over by its own clock before it
//     does anything. Its beat, claims and hand-overs fail on ETags; it finds its row
//     gone and joins again. With BestEffort handlers may go on until then.
//   - Its machine is suspended, or its wall clock is set forward: trust is over as soon
//     as either clock says so. The next beat, a few seconds later, is a late one: what is
//     held is void and claimed again with another epoch, which is one write an owner row.
//     That is all that a clock which steps costs, at most once a beat. A wall clock that
//     is set back, or stepped by less than what is left of trust, changes nothing.
//   - The control plane is dark for everybody: trust ends everywhere after 17 s.
//     Nobody can be declared dead, for time without reads does not count; nobody
//     claims or gives up. With BestEffort everybody goes on with what it has.
//     When it answers again, each member adopts its own entries with epoch + 1.
//   - It is dark for one member: the same for that one, but the others evict it.
//   - The answer of a claim is lost: it is read back. If that does not succeed
//     before the next beat is due, it is nobody's: should it land later, the entry
//     names a member that does not hold it, who sees that and claims it again or,
//     if it is planned for another, gives it up.
//   - The answer of a beat is lost: the same beat is sent until it is answered.
//     It counts from when it was first sent.
//   - Whom a segment is planned for does not claim it: after a lease anyone does,
//     the first in order first; after two it is an alarm.
//   - A process starts under the name of one that died: it waits for the other's
//     row to be dead like everybody else. Under the name of one that lives: an error.
//   - A row is damaged, or of a newer program: it is named in the log and left as
//     it is. Such a member lives, and keeps what it owns, as long as its row changes.
//     Its silence is judged by the ETag alone, over the lease that the row states
//     where this program would, else over the longest that any member states; then
//     it is evicted like any other. A damaged row of owners changes no more, so what
//     is held of it stays held; everything else goes on.
//   - A member leaves and the table is dark: it drains, tries to remove its row for
//     as long as it may, and is evicted later if it could not.
//
// # What it costs
//
// One write and one query a beat for each of up to 32 members. Of more, two read all rows in each
// beat, because what a look costs grows with the number of members, and write down what they read
// in one row, the muster. The others read that row in every third beat or more seldom. The two are the
// first by a hash of the names, so that they do not stand on one host; should both die at once, the
// next stands in four beats later. A member that waits for a segment, or for one to be handed over,
// looks up to four times as often, all together 25 times a second.
package cluster

// TableName is the table, in the control account, that holds the rows of every
// workload.
const TableName = "queuepump"
