package processor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/tombstone"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// The measures of telling tasks apart.
const (
	// inHandLeast and inHandMost bound for how long a copy of a task is put back whose
	// first delivery is in hand. It is at work, or its result is about to be recorded:
	// that takes a second or two, or as long as its handler takes.
	inHandLeast = 2 * time.Second
	inHandMost  = 30 * time.Second
	// runAgain is for how long tasks are put back whose run's row cannot be read.
	runAgain = 10 * time.Second
	// fullDelay is for how long tasks are put back that the ledger has no room for.
	fullDelay = time.Minute
	// crowdedMost is for how long at most, where that passes as runs end.
	crowdedMost = 15 * time.Second
)

// recorder is the processor's side of the ledger (P3), in delivery mode once and with
// a reducer; nil otherwise. Along the data path: a segment is fenced before it is
// polled (processor_record_fence.go), the ledger says which tasks of a message are
// to be started (here), their results are recorded before the message can be gone
// (processor_record_commit.go), and closed runs are forgotten (processor_record_prune.go).
type recorder struct {
	r      *processing
	ledger *ledger.Ledger
	rows   *workload.Runs
	once   bool // what is done is recorded; else only a reducer's state is kept

	// closing is held for reading while the ledger is asked about a run, and taken
	// between learning that a run is closed and forgetting it: whoever took the run for
	// open has then been told what is recorded of it, and everybody later sees that
	// it is closed.
	closing sync.RWMutex

	*fencer
	*committer
	checker *checker

	states fullStates // segments whose reducer's state has no room
	names  fullNames  // and those that keep as many names as they may
}

// newRecorder makes the recorder that the workload and the handler need; nil if
// they need none. It makes no request.
func (r *processing) newRecorder() *recorder {
	once := r.workload.Delivery == workload.DeliverOnce
	var state ledger.State
	if r.reducer != nil {
		state = r.reducer.State()
	}
	if !once && state == nil {
		return nil
	}
	c := &recorder{r: r, once: once, rows: workload.NewRuns(r.fleet.Control, r.cfg.Workload)}
	c.fencer, c.committer, c.checker = newFencer(c), newCommitter(c), newChecker(c)
	c.ledger = ledger.Open(r.fleet.Control, r.workload, ledger.Options{
		Instance: r.cfg.Instance, Record: once, State: state, Log: r.log, Old: c.checker.old,
	})
	return c
}

// begin asks the run's row and the ledger which tasks of a message are to be started
// (P1.3, P3.4), and notes these as in hand. It says what to do with the message as a
// whole if none of them are.
func (c *recorder) begin(ctx context.Context, d *delivery) *wholly {
	h := &d.header
	since, ok := c.fencedAt(h.Segment, d.epoch)
	if !ok {
		return &wholly{} // handed over, or lost: somebody else's now
	}
	c.r.cfg.Private.Seeding.Turn.Wait("begin", d.id)
	verdict := c.look(ctx, h.Run, since)
	if w, over := c.r.beyond(d, verdict); over {
		return w
	}
	switch verdict {
	case closing.Rest:
		if h.Generation == 0 {
			return c.r.duplicate(d)
		}
	case closing.Unread:
		// In mode once nobody may go on without the row: a copy of a task of a closed
		// run, of which nothing is recorded any more, would be done again.
		return &wholly{delay: c.r.jitter.Around(runAgain, "run", d.id, uint64(d.dequeued)), ours: true}
	}
	gate := c.gate(d)
	if gate != nil && gate.reason == "" {
		return gate
	}
	b, ok, err := c.beginStanding(ctx, d, verdict, since)
	switch {
	case err != nil:
		return c.refused(d, err)
	case !ok: // it was closed in this moment, or too many runs are asked about
		return c.wait(d)
	}
	d.begun = b.Fresh
	fresh, inHand := b.Fresh.Len(), b.InHand.Len()
	switch {
	case fresh == d.count:
	case fresh == 0 && inHand == 0:
		c.checker.doubt(h.Segment)
		return c.r.duplicate(d)
	case fresh == 0, inHand > 0 && c.asWhole(d):
		c.end(d, d.begun)
		return c.wait(d)
	default:
		d.split = &b
		c.checker.doubt(h.Segment)
		c.r.recognised(d, d.count-fresh-inHand)
	}
	switch verdict {
	case closing.Dropped:
		c.end(d, d.begun)
		d.begun, d.split = codec.NSet{}, nil
		return c.r.dropped(d, fresh)
	case closing.Ended:
		if d.split == nil {
			return runEndedWhole(h)
		}
		d.ended = true
		return nil
	}
	if c.asWhole(d) {
		return &wholly{forget: true, record: true}
	}
	return gate
}

// lookAgain is how often a message looks at its run's row before it goes back because the row is
// being read anew. Once is the rule: another segment was fenced later, and asks for a newer row.
const lookAgain = 3

// beginStanding is beginOpen, and looks again when the row is being read anew in this moment: to
// put the message back for that would cost it two seconds.
func (c *recorder) beginStanding(ctx context.Context, d *delivery, verdict closing.Verdict, since time.Time) (b ledger.Begun, ok bool, err error) {
	for range lookAgain {
		if b, ok, err = c.beginOpen(d, verdict); ok || err != nil {
			break
		}
		if c.look(ctx, d.header.Run, since) != verdict {
			break
		}
	}
	return b, ok, err
}

// beginOpen asks the ledger, unless the run is not known to stand as it did any more.
func (c *recorder) beginOpen(d *delivery, verdict closing.Verdict) (b ledger.Begun, ok bool, err error) {
	h := &d.header
	c.closing.RLock()
	defer c.closing.RUnlock()
	if c.once && !c.r.runs.stands(h.Run, verdict) {
		return ledger.Begun{}, false, nil
	}
	begin := c.ledger.Begin
	if verdict == closing.Rest {
		begin = c.ledger.BeginClosed
	}
	b, err = begin(h.Segment, d.epoch, h.Run, h.Generation, h.Tasks)
	return b, err == nil, err
}

// look gives the verdict on a run, by its row as of since or later.
func (c *recorder) look(ctx context.Context, run pump.RunID, since time.Time) closing.Verdict {
	if !c.once {
		return c.r.runs.look(ctx, run) // nothing is recognised, so an old row does no harm
	}
	return c.r.runs.lookSince(ctx, run, since)
}

// asWhole: none of the message's tasks is handled; they are recorded as done.
func (c *recorder) asWhole(d *delivery) bool { return tombstone.Is(&d.header) || c.r.o.Discard }

// wait puts a message back because tasks of it are in hand.
func (c *recorder) wait(d *delivery) *wholly { return &wholly{delay: c.copyDelay(d)} }

func (c *recorder) copyDelay(d *delivery) time.Duration {
	n := uint64(max(d.dequeued, 1))
	return c.r.jitter.Around(backoff.Doubled(inHandLeast, inHandMost, n-1), "copy", d.id, n)
}

// refused puts a message back that the ledger does not take.
func (c *recorder) refused(d *delivery, err error) *wholly {
	if errors.Is(err, ledger.ErrTooManyRuns) {
		// It passes as runs end, a few thousand in a minute; other runs' tasks go on.
		c.r.alarmOnce("runs", "tasks of further runs wait, because a segment has as many live runs as it may", append(d.attrs(-1), "error", err)...)
		n := uint64(max(d.dequeued, 1))
		return &wholly{delay: c.r.jitter.Around(backoff.Doubled(inHandLeast, crowdedMost, n-1), "crowded", d.id, n), ours: true}
	}
	if errors.Is(err, ledger.ErrTooManyForeign) {
		return c.crowdedForeign(d, err)
	}
	if errors.Is(err, ledger.ErrLedgerFull) {
		c.r.alarmOnce("ledger", "the ledger has no room; tasks go back for a while", append(d.attrs(-1), "error", err)...)
		return &wholly{delay: c.r.jitter.Around(fullDelay, "full", d.id, uint64(d.dequeued)), ours: true}
	}
	return &wholly{}
}

// beginForeign does the same for tasks that have no run: of a message that no
// distributor made, or of its rewriting (P1.4). d.tasks are there.
func (c *recorder) beginForeign(d *delivery) *wholly {
	if !c.once {
		return nil
	}
	d.verdicts = make([]verdict, d.count)
	d.fresh = make([]int, 0, d.count)
	recognised := 0
	for i := range d.tasks {
		recorded, inHand, err := c.ledger.BeginForeign(d.header.Segment, d.epoch, d.tasks[i].Foreign, len(d.fresh) > 0)
		switch {
		case err != nil:
			c.endForeign(d, d.fresh)
			return c.refused(d, err)
		case recorded:
			d.verdicts[i] = known
			recognised++
		case inHand:
			d.wait(i, c.copyDelay(d))
		default:
			d.fresh = append(d.fresh, i)
		}
	}
	if recognised > 0 {
		c.checker.doubt(d.header.Segment)
	}
	c.r.recognised(d, recognised)
	switch {
	case recognised == d.count:
		return &wholly{forget: true}
	case len(d.fresh) == 0:
		return c.wait(d)
	case c.asWhole(d):
		return &wholly{forget: true, record: true}
	case len(d.fresh) == d.count:
		d.fresh = nil
	}
	return nil
}

// screen gives the tasks that are not to be started their verdicts. The message is open.
func (c *recorder) screen(d *delivery) {
	if d.split == nil {
		return
	}
	d.fresh = make([]int, 0, d.split.Fresh.Len())
	delay := c.copyDelay(d)
	for i := range d.tasks {
		switch n := d.tasks[i].N; {
		case d.split.Fresh.Contains(n):
			d.fresh = append(d.fresh, i)
		case d.split.InHand.Contains(n):
			d.wait(i, delay)
		default:
			d.verdicts[i] = known
		}
	}
	d.split = nil
}

// wait is the verdict on a task that is in hand in another delivery.
func (d *delivery) wait(i int, delay time.Duration) {
	d.verdicts[i] = postponed
	d.troubles = append(d.troubles, trouble{task: i, after: delay})
}

// end takes tasks out of hand that will not be recorded now.
func (c *recorder) end(d *delivery, ns codec.NSet) {
	if ns.Len() > 0 {
		c.ledger.End(d.header.Segment, d.epoch, d.header.Run, ns)
	}
}

// endForeign is end for tasks without a run.
func (c *recorder) endForeign(d *delivery, tasks []int) {
	for _, i := range tasks {
		c.ledger.EndForeign(d.header.Segment, d.epoch, d.tasks[i].Foreign)
	}
}

// atLeastOnce reports whether nothing records which tasks are done. c may be nil.
func (c *recorder) atLeastOnce() bool { return c == nil || !c.once }

// beyond says what to do with a message whose run's row decides that by itself; over is false if the tasks
// are asked of the ledger, or are done under another identity.
func (r *processing) beyond(d *delivery, verdict closing.Verdict) (w *wholly, over bool) {
	h := &d.header
	switch {
	case verdict.Redriven() && h.Generation > 0 && tombstone.Is(h):
		return &wholly{forget: true}, true // nothing is recorded that it could change
	case verdict.Redriven() && h.Generation > 0:
		d.runless = true
		return nil, true
	case verdict == closing.Closed, verdict == closing.Spent:
		return r.duplicate(d), true
	case verdict == closing.Absent && r.recorder.atLeastOnce() && d.age >= r.cfg.Retention:
		return nil, false // its run's row went by its age, and nothing tells whether it was done
	case verdict == closing.Absent:
		return r.unknownRun(d), true
	case verdict == closing.Over:
		return runEndedWhole(h), true
	}
	return nil, false
}

// runEndedWhole is the quarantine of all of a message's tasks.
func runEndedWhole(h *codec.Header) *wholly {
	return &wholly{reason: pump.ReasonRunEnded, detail: fmt.Sprintf("run %v has ended; what is redriven is done all the same", h.Run)}
}

// errRunEnded is why tasks of a run that has ended go to quarantine which are in a message with others.
var errRunEnded = errors.New("their run has ended; what is redriven is done all the same")

// dropped settles a message of a run whose tasks are dropped when they are met.
func (r *processing) dropped(d *delivery, tasks int) *wholly {
	r.counts.dropped.Add(int64(tasks))
	r.tallies.add(d.header.Run, workload.Tally{Dropped: uint64(tasks)})
	return &wholly{forget: true}
}

// reject gives those tasks that would be started the verdict that their run has ended. The message is open.
func (d *delivery) reject() {
	for k := range d.starts() {
		i := d.at(k)
		d.verdicts[i] = rejected
		d.troubles = append(d.troubles, trouble{task: i, err: errRunEnded})
	}
}

// duplicate settles a message all of whose tasks are known to be done.
func (r *processing) duplicate(d *delivery) *wholly {
	r.recognised(d, d.count)
	return &wholly{forget: true}
}

// recognised counts tasks that were done before.
func (r *processing) recognised(d *delivery, tasks int) {
	if tasks == 0 {
		return
	}
	r.counts.duplicates.Add(int64(tasks))
	r.tallies.add(d.header.Run, workload.Tally{Duplicates: uint64(tasks)})
}

// unknownRun quarantines a message whose run has no row: it was removed a retention after the run's
// end, or somebody removed it, or there never was one.
func (r *processing) unknownRun(d *delivery) *wholly {
	if d.age >= r.cfg.Retention {
		return &wholly{reason: pump.ReasonRunExpired, detail: fmt.Sprintf("run %v has no row any more", d.header.Run)}
	}
	return &wholly{reason: pump.ReasonUnknownRun, detail: fmt.Sprintf("run %v has no row", d.header.Run)}
}
