package record

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// The measures of telling tasks apart.
const (
	// inHandLeast and inHandMost bound how long a copy is put back while its task is in hand. The task
	// is at work, or its result is about to be recorded: that takes a second or two, or as long as its
	// handler.
	inHandLeast = 2 * time.Second
	inHandMost  = 30 * time.Second
	// runAgain is for how long tasks are put back whose run's row cannot be read. It is runMended if
	// the row is damaged, or of a newer version.
	runAgain  = 10 * time.Second
	runMended = time.Minute
	// fullDelay is for how long tasks are put back if the ledger has no room for them.
	fullDelay = time.Minute
	// crowdedMost is for how long at most, where that passes as runs end.
	crowdedMost = 15 * time.Second
)

// Recorder is the processor's side of the ledger (P3), in delivery mode once and with
// a reducer; nil otherwise. Along the data path: a segment is fenced before it is
// polled (fence.go), the ledger says which tasks of a message are
// to be started (here), their results are recorded before the message can be gone
// (commit.go), and closed runs are forgotten (prune.go).
type Recorder struct {
	r      *base.Env
	parts  Parts
	Ledger *ledger.Ledger
	rows   *workload.Runs
	Once   bool // finished tasks are recorded; else only a reducer's state is kept

	// closing is held for reading while the ledger is asked about a run, and taken between learning
	// that a run is closed and forgetting it: a message that took the run for open has then been told
	// what is recorded, and every later message sees that the run is closed.
	closing sync.RWMutex

	*Fencer
	*Committer
	Checker *checker

	States fullStates // segments whose reducer's state has no room
	Names  fullNames  // and those that keep as many names as they may

	aged, crowded turn // of the old rests
}

// Parts are what a recorder asks of the other parts of a processor.
type Parts struct {
	Timing  *leases.Timing
	Follow  func() // what may be worked on has changed
	GetMore func() // there is room again
	// Answered says when a queue last left a get unanswered; all: they answer now.
	Answered func() (dark time.Time, all bool)
	Unread   func() time.Duration // for how long messages may wait unread in a queue
	Keeper   *Keeper              // of results; nil: they are not kept
}

// NewRecorder makes the recorder that the workload and the handler need; nil if
// they need none. It makes no request.
func NewRecorder(r *base.Env, parts Parts) *Recorder {
	once := r.Workload.Delivery == string(pump.Once)
	var state ledger.State
	if r.Reducer != nil {
		state = r.Reducer
	}
	if !once && state == nil {
		return nil
	}
	c := &Recorder{
		r: r, parts: parts, Once: once, rows: workload.NewRuns(r.Queues.Control, r.Cfg.Workload),
	}
	c.Fencer, c.Committer, c.Checker = newFencer(c), newCommitter(c), newChecker(c)
	c.Ledger = ledger.Open(r.Queues.Control, r.Workload, ledger.Options{
		Instance: r.Cfg.Instance, Record: once, State: state, Log: r.Log, Old: c.Checker.old,
		Names: r.Cfg.Sim.Names,
	})
	if parts.Keeper != nil {
		parts.Keeper.ledger, c.Committer.keeper = c.Ledger, parts.Keeper
	}
	return c
}

// Begin asks the run's row and the ledger which tasks of a message are to be started (P1.3, P3.4),
// and notes these as in hand. If no task is to be started, it says what to do with the message as a
// whole.
func (c *Recorder) Begin(ctx context.Context, d *message.Delivery) *message.Disposition {
	h := &d.Header
	since, ok := c.FencedAt(h.Segment, d.Epoch)
	if !ok {
		return &message.Disposition{} // handed over, or lost: another owner's now
	}
	c.r.Cfg.Sim.Seeding.Turn.Wait("begin", d.ID)
	verdict := c.Look(ctx, h.Run, since)
	if w, over := Beyond(c.r, d, verdict, c.Once); over {
		return w
	}
	switch verdict {
	case closing.Rest:
		if h.Generation == 0 {
			return Duplicate(c.r, d)
		}
	case closing.Unread, closing.Damaged:
		// In mode once no task may go on without the row: the records of a closed run are gone, so a copy
		// of its task would be done again.
		again := runAgain
		if verdict == closing.Damaged {
			again = runMended
		}
		return &message.Disposition{
			Delay: c.r.Jitter.Around(again, "run", d.ID, uint64(d.Dequeued)), Ours: true,
		}
	}
	gate := c.Gate(d)
	if gate != nil && gate.Reason == "" {
		return gate
	}
	b, ok, err := c.BeginStanding(ctx, d, verdict, since)
	switch {
	case err != nil:
		return c.refused(d, err)
	case !ok: // it was closed in this moment, or too many runs are asked about
		return c.wait(d)
	}
	d.Begun = b.Fresh
	if w := c.named(d, &b); w != nil {
		return w
	}
	fresh, inHand := b.Fresh.Len(), b.InHand.Len()
	switch {
	case fresh == d.Count:
	case fresh == 0 && inHand == 0:
		c.Checker.doubt(h.Segment)
		return Duplicate(c.r, d)
	case fresh == 0, inHand > 0 && c.asWhole(d):
		c.End(d, d.Begun)
		return c.wait(d)
	default:
		d.Split = &b
		c.Checker.doubt(h.Segment)
		recognised(c.r, d, d.Count-fresh-inHand)
	}
	switch verdict {
	case closing.Dropped:
		c.End(d, d.Begun)
		d.Begun, d.Split = codec.NSet{}, nil
		return Dropped(c.r, d, fresh)
	case closing.Ended:
		if d.Split == nil {
			return RunEndedWhole(h)
		}
		d.Ended = true
		return nil
	}
	if c.asWhole(d) {
		return &message.Disposition{Forget: true, Record: true}
	}
	return gate
}

// lookAgain is how often a message looks at its run's row before it goes back because the row is
// being read again. Once is the rule: another segment was fenced later, and asks for a newer row.
const lookAgain = 3

// BeginStanding is beginOpen, and looks again when the row is just being read: to put the message
// back for that would cost it two seconds.
func (c *Recorder) BeginStanding(
	ctx context.Context, d *message.Delivery, verdict closing.Verdict, since time.Time,
) (b ledger.Begun, ok bool, err error) {
	for range lookAgain {
		if b, ok, err = c.beginOpen(d, verdict); ok || err != nil {
			break
		}
		if c.Look(ctx, d.Header.Run, since) != verdict {
			break
		}
	}
	return b, ok, err
}

// beginOpen asks the ledger, unless the run is not known to stand as it did any more.
func (c *Recorder) beginOpen(
	d *message.Delivery, verdict closing.Verdict,
) (b ledger.Begun, ok bool, err error) {
	h := &d.Header
	c.closing.RLock()
	defer c.closing.RUnlock()
	if c.Once && !c.r.Runs.Stands(h.Run, verdict) {
		return ledger.Begun{}, false, nil
	}
	begin := c.Ledger.Begin
	if verdict == closing.Rest {
		begin = c.Ledger.BeginClosed
	}
	b, err = begin(h.Segment, d.Epoch, h.Run, h.Generation, h.Tasks)
	return b, err == nil, err
}

// Look gives the verdict on a run, by its row as of since or later.
func (c *Recorder) Look(ctx context.Context, run pump.RunID, since time.Time) closing.Verdict {
	if !c.Once {
		return c.r.Runs.Look(ctx, run) // copies are not recognised, so an old row does no harm
	}
	return c.r.Runs.LookSince(ctx, run, since)
}

// asWhole: none of the message's tasks is handled; they are recorded as done.
func (c *Recorder) asWhole(d *message.Delivery) bool {
	return row.IsTombstone(&d.Header) || c.r.Discards
}

// wait puts a message back because tasks of it are in hand.
func (c *Recorder) wait(d *message.Delivery) *message.Disposition {
	return &message.Disposition{Delay: c.copyDelay(d)}
}

func (c *Recorder) copyDelay(d *message.Delivery) time.Duration {
	n := uint64(max(d.Dequeued, 1))
	return c.r.Jitter.Around(waits.Doubled(inHandLeast, inHandMost, n-1), "copy", d.ID, n)
}

// refused puts a message back that the ledger does not take.
func (c *Recorder) refused(d *message.Delivery, err error) *message.Disposition {
	if errors.Is(err, ledger.ErrTooManyRuns) {
		// It passes as runs end, a few thousand in a minute; other runs' tasks go on.
		c.r.AlarmOnce("runs",
			"tasks of further runs wait, because a segment has as many live runs as it may",
			append(d.Attrs(), "error", err)...)
		n := uint64(max(d.Dequeued, 1))
		return &message.Disposition{
			Delay: c.r.Jitter.Around(waits.Doubled(inHandLeast, crowdedMost, n-1), "crowded", d.ID, n),
			Ours:  true,
		}
	}
	if errors.Is(err, ledger.ErrTooManyForeign) {
		return c.crowdedForeign(d, err)
	}
	if errors.Is(err, ledger.ErrLedgerFull) {
		c.r.AlarmOnce("ledger", "the ledger has no room; tasks go back for a while",
			append(d.Attrs(), "error", err)...)
		return &message.Disposition{
			Delay: c.r.Jitter.Around(fullDelay, "full", d.ID, uint64(d.Dequeued)), Ours: true,
		}
	}
	return &message.Disposition{}
}

// BeginForeign does the same for tasks without a run: of a message that no distributor made, or of
// its rewriting (P1.4). d.tasks are set.
func (c *Recorder) BeginForeign(d *message.Delivery) *message.Disposition {
	if !c.Once {
		return nil
	}
	d.Outcomes.Make(d.Count)
	d.Fresh = make([]int, 0, d.Count)
	again := 0
	for i := range d.Tasks {
		recorded, inHand := c.standing(d, i)
		var err error
		if !recorded && !inHand {
			more := len(d.Fresh) > 0
			recorded, inHand, err = c.Ledger.BeginForeign(d.Header.Segment, d.Epoch,
				d.Tasks[i].Foreign, more)
		}
		switch {
		case err != nil:
			c.EndForeign(d, d.Fresh)
			return c.refused(d, err)
		case recorded:
			d.Outcomes.Set(message.Known, message.Trouble{Task: i})
			again++
		case inHand:
			d.Wait(i, c.copyDelay(d))
		default:
			d.Fresh = append(d.Fresh, i)
		}
	}
	if again > 0 {
		c.Checker.doubt(d.Header.Segment)
	}
	recognised(c.r, d, again)
	switch {
	case again == d.Count:
		return &message.Disposition{Forget: true}
	case len(d.Fresh) == 0:
		return c.wait(d)
	case c.asWhole(d):
		return &message.Disposition{Forget: true, Record: true}
	case len(d.Fresh) == d.Count:
		d.Fresh = nil
	}
	return nil
}

// Screen gives the tasks that are not to be started their verdicts. The message is open.
func (c *Recorder) Screen(d *message.Delivery) {
	if d.Split == nil {
		return
	}
	d.Fresh = make([]int, 0, d.Split.Fresh.Len())
	delay := c.copyDelay(d)
	for i := range d.Tasks {
		switch n := d.Tasks[i].N; {
		case d.Named.Contains(n):
			d.Outcomes.Set(message.Known, message.Trouble{Task: i})
		case d.Split.Fresh.Contains(n):
			d.Fresh = append(d.Fresh, i)
		case d.Split.InHand.Contains(n):
			d.Wait(i, delay)
		default:
			d.Outcomes.Set(message.Known, message.Trouble{Task: i})
		}
	}
	d.Split = nil
}

// PutOff takes tasks of an opened message out of hand that are not to be started now.
func (c *Recorder) PutOff(d *message.Delivery, tasks []int) {
	if d.Header.Run == (pump.RunID{}) || d.Runless {
		if c.Once {
			c.EndForeign(d, tasks)
		}
		return
	}
	ns := make([]uint64, len(tasks))
	for k, i := range tasks {
		ns[k] = d.Tasks[i].N
	}
	c.End(d, codec.MakeNSet(ns...))
	if len(tasks) == d.Starts() {
		d.Begun = codec.NSet{}
	}
}

// End takes tasks out of hand that will not be recorded now.
func (c *Recorder) End(d *message.Delivery, ns codec.NSet) {
	if ns.Len() > 0 {
		c.Ledger.End(d.Header.Segment, d.Epoch, d.Header.Run, ns)
	}
}

// EndForeign is end for tasks without a run.
func (c *Recorder) EndForeign(d *message.Delivery, tasks []int) {
	for _, i := range tasks {
		c.Ledger.EndForeign(d.Header.Segment, d.Epoch, d.Name(i))
	}
}

// AtLeastOnce reports whether nothing records which tasks are done. c may be nil.
func (c *Recorder) AtLeastOnce() bool { return c == nil || !c.Once }

// Beyond says what to do with a message if its run's row alone decides it; over is false if the
// ledger is asked about the tasks, or they are done under another identity.
func Beyond(
	r *base.Env, d *message.Delivery, verdict closing.Verdict, once bool,
) (w *message.Disposition, over bool) {
	h := &d.Header
	switch {
	case verdict.Redriven() && h.Generation > 0 && row.IsTombstone(h):
		return &message.Disposition{Forget: true}, true // it could not change any record
	case verdict.Redriven() && h.Generation > 0:
		d.Runless = true
		return nil, true
	case verdict == closing.Closed, verdict == closing.Spent:
		return Duplicate(r, d), true
	case verdict == closing.Absent && !once && d.Age >= r.Queues.Values().Retention:
		return nil, false // its run's row went by its age, and nothing tells whether it was done
	case verdict == closing.Absent:
		return unknownRun(r, d), true
	case verdict == closing.Over:
		return RunEndedWhole(h), true
	}
	return nil, false
}

// RunEndedWhole is the quarantine of all of a message's tasks.
func RunEndedWhole(h *codec.Header) *message.Disposition {
	return &message.Disposition{
		Reason: codec.ReasonRunEnded,
		Detail: fmt.Sprintf("run %v has ended; redriven tasks are still done", h.Run),
	}
}

// Dropped settles a message of a run whose tasks are dropped when they are met.
func Dropped(r *base.Env, d *message.Delivery, tasks int) *message.Disposition {
	r.Counts.Dropped.Add(int64(tasks))
	r.Tallies.Add(d.Header.Run, workload.Tally{Dropped: uint64(tasks)})
	return &message.Disposition{Forget: true}
}

// Duplicate settles a message if all of its tasks are known to be done.
func Duplicate(r *base.Env, d *message.Delivery) *message.Disposition {
	recognised(r, d, d.Count)
	return &message.Disposition{Forget: true}
}

// recognised counts tasks that were done before.
func recognised(r *base.Env, d *message.Delivery, tasks int) {
	if tasks == 0 {
		return
	}
	r.Counts.Duplicates.Add(int64(tasks))
	r.Tallies.Add(d.Header.Run, workload.Tally{Duplicates: uint64(tasks)})
}

// unknownRun quarantines a message whose run has no row: the row was removed a retention after the
// run's end, or by an operator, or never existed.
func unknownRun(r *base.Env, d *message.Delivery) *message.Disposition {
	if d.Age >= r.Queues.Values().Retention {
		return &message.Disposition{
			Reason: codec.ReasonRunExpired, Detail: fmt.Sprintf("run %v has no row any more", d.Header.Run),
		}
	}
	return &message.Disposition{
		Reason: codec.ReasonUnknownRun, Detail: fmt.Sprintf("run %v has no row", d.Header.Run),
	}
}
