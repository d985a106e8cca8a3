package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// How a term ends; the cause of its context.
var (
	// ErrDeposed: leadership is lost. Another may lead by now.
	ErrDeposed = errors.New("leadership is lost")
	// ErrTrustEnded: no beat was acknowledged in time. It is an ErrDeposed too,
	// because another may lead by now.
	ErrTrustEnded = fmt.Errorf("%w: no beat was acknowledged in time", ErrDeposed)
	// ErrTermOver: the term ended by Finish or Abandon.
	ErrTermOver = errors.New("the term is over")

	errFinished  = fmt.Errorf("%w: it was finished", ErrTermOver)
	errAbandoned = fmt.Errorf("%w: it was abandoned", ErrTermOver)
)

// Resume is what a dead or departed leader left behind.
type Resume struct {
	// Run is the run to continue. Its row may be sealed or broken already: then
	// only Finish is left to do.
	Run codec.RunID
	// Checkpoint is the last saved one, or nil: then the run starts from the beginning, as the same
	// run.
	Checkpoint []byte
}

// Term is one instance's leadership, from a won election to its end. It beats by
// itself. Its methods may be called from many goroutines at once; each is one
// write of the row at most and counts as a beat.
type Term struct {
	// Epoch is the fencing number: greater than that of every term before.
	Epoch uint64
	// Resume is nil on a fresh distribution.
	Resume *Resume

	row     row.Row[electionRow]
	options Options
	draw    row.Draw
	// ctx lives as long as the row is this term's; work, which is what the
	// caller sees, ends before the row is given up (see write).
	ctx, work          context.Context
	cancel, cancelWork context.CancelCauseFunc
	requests           chan request
	done               chan struct{} // the beating goroutine has ended
	mute               logs.Limited  // beats are not acknowledged

	// What follows is of a schedule, and belongs to the caller of Due.
	now       func(context.Context) (time.Time, error)
	base, due time.Time // due times are considered up to base; due is made now, if it is not zero
	putOff    time.Duration

	// mu guards what follows. It is never held over a request.
	mu        sync.Mutex
	trusts    time.Time // when the beat was sent that this term's trust is from
	trustEnds time.Time
	trustFor  time.Duration // from trusts until then
	alarm     *time.Timer   // fires at trustEnds
}

// request is a change of the row that a method asks of the beating goroutine,
// which alone writes: two writes under way at once would fail each other.
type request struct {
	change func(*electionRow)
	over   error      // if not nil, the term ends with it, by this cause
	result chan error // takes one without waiting
}

func newTerm(r row.Row[electionRow], o Options, draw row.Draw, won row.Version[electionRow]) *Term {
	t := &Term{
		Epoch: won.Value.epoch, row: r, options: o, draw: draw, requests: make(chan request),
		done: make(chan struct{}),
	}
	if !won.Value.run.IsZero() {
		t.Resume = &Resume{Run: won.Value.run, Checkpoint: won.Value.checkpoint}
	}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.work, t.cancelWork = context.WithCancelCause(t.ctx)
	t.trusts, t.trustFor = won.Sent, o.trust()
	t.trustEnds = won.Sent.Add(t.trustFor)
	t.mu.Lock() // the alarm may fire at once
	t.alarm = time.AfterFunc(time.Until(t.trustEnds), t.expire)
	t.mu.Unlock()
	go t.beat(won)
	return t
}

// Context ends when the term does, in any way, at the latest when trust ends (P5.2). With Finish
// and Abandon it ends before the row is given up, so that two instances never hold live contexts at
// once. Its cause says how the term ended. All that only a leader may do must end with it.
func (t *Term) Context() context.Context { return t.work }

// Begin puts a new run into the row, without a checkpoint. It comes after Runs.Create and before
// the run's first Put: a leader that dies in between leaves an open run without tasks; a leader
// that dies later leaves a run to resume.
func (t *Term) Begin(ctx context.Context, run codec.RunID) error {
	if run.IsZero() {
		return errors.New("election: a run needs an id")
	}
	due := t.due
	return t.ask(ctx, request{change: func(r *electionRow) {
		r.run, r.checkpoint, r.made = run, nil, due
	}})
}

// Save stores the checkpoint of the run under way, at most MaxCheckpoint bytes. It is ErrDeposed if
// leadership is lost: then the next leader cannot see the checkpoint, or the term had ended before
// the answer. If ctx ends first the checkpoint may still be stored.
func (t *Term) Save(ctx context.Context, checkpoint []byte) error {
	if len(checkpoint) > MaxCheckpoint {
		return fmt.Errorf("election: %w: %d bytes, at most %d", ErrCheckpointTooLarge, len(checkpoint),
			MaxCheckpoint)
	}
	stored := append([]byte(nil), checkpoint...)
	return t.ask(ctx, request{change: func(r *electionRow) { r.checkpoint = stored }})
}

// Finish ends the term and the distribution; the next one is due after Every, or when the schedule
// says. After an error other than ErrDeposed the row is still held, but only for another Finish, or
// Abandon. Finishing a finished term is success.
func (t *Term) Finish(ctx context.Context) error {
	upTo, next, err := t.considered(ctx)
	if err != nil && t.ctx.Err() == nil {
		return err
	}
	err = t.ask(ctx, request{over: errFinished, change: func(r *electionRow) {
		r.phase, r.checkpoint, r.every = Idle, nil, t.options.Every
		r.upTo, r.next = upTo, next
	}})
	if errors.Is(err, errFinished) {
		return nil
	}
	return err
}

// Abandon ends the term in mid-run and leaves the row vacant, so that another continues from the
// checkpoint at once. If that cannot be written before ctx ends, the term still ends, and the
// others wait for the lease to run out. A term that has ended is not changed.
func (t *Term) Abandon(ctx context.Context) {
	err := t.ask(ctx, request{over: errAbandoned, change: func(r *electionRow) { r.leader = "" }})
	if err != nil && !errors.Is(err, ErrDeposed) && !errors.Is(err, ErrTermOver) {
		t.options.Log.Warn("leadership could not be handed over", "epoch", t.Epoch, "error", err)
	}
	t.end(errAbandoned)
	<-t.done
}

// ask hands a request to the beating goroutine and waits for its result.
func (t *Term) ask(ctx context.Context, r request) error {
	r.result = make(chan error, 1)
	if r.over != nil {
		// The caller's context may come from the term's own, which ends just before the row is given up;
		// that must not end the giving up.
		var cancel context.CancelFunc
		ctx, cancel = t.outlive(ctx)
		defer cancel()
	}
	select {
	case t.requests <- r:
	case <-t.done:
		return context.Cause(t.ctx)
	case <-ctx.Done():
		return fmt.Errorf("election: %w", context.Cause(ctx))
	}
	select {
	case err := <-r.result: // always comes, the latest when trust ends
		return err
	case <-ctx.Done():
		select {
		case err := <-r.result: // both were ready: the result is worth more
			return err
		default:
		}
		return fmt.Errorf("election: it is not known whether the row was written: %w", context.Cause(ctx))
	}
}

// outlive gives a context that ends when ctx does, unless that is because the
// term is over.
func (t *Term) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, ErrTermOver) {
			cancel(cause)
		}
	})
	return longer, func() { stop(); cancel(nil) }
}

// beat is the term's one goroutine: it writes the row whenever it is asked to,
// and at least once in Options.Beat.
func (t *Term) beat(v row.Version[electionRow]) {
	defer close(t.done)
	defer t.alarm.Stop()
	defer t.options.Rounds.Begin()()
	wait := t.nextBeat(v)
	for {
		t.options.Rounds.Add()
		r, ok := t.await(wait)
		if !ok {
			return
		}
		next, err := t.write(v, r)
		if err == nil {
			v = next
		}
		if r.result != nil {
			r.result <- err
		}
		switch {
		case t.ctx.Err() != nil:
			return
		case err == nil:
			t.mute.IsOver(t.options.Log.Info, "the leader's beats are answered again", "epoch", t.Epoch)
			wait = t.nextBeat(v)
		default:
			t.mute.GoesOn(t.options.Log.Warn, "beat failed", "epoch", t.Epoch, "error", err)
			wait = t.draw.Jitter("pause", t.row.Object(), t.row.LongestPause())
		}
	}
}

// nextBeat counts from when the last beat was sent, as trust does: after a slow beat the next is
// due at once.
func (t *Term) nextBeat(v row.Version[electionRow]) time.Duration {
	return max(0, t.draw.Jitter("beat", t.row.Object(), t.options.Beat)-time.Since(v.Sent))
}

// await gives the next request, or an empty one when it is time for a beat.
func (t *Term) await(wait time.Duration) (request, bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
		return request{}, false
	case r := <-t.requests:
		return r, true
	case <-timer.C:
	}
	// A waiting request takes the place of the beat, even if the runtime chose to see the beat first.
	select {
	case r := <-t.requests:
		return r, true
	default:
		return request{}, true
	}
}

// write makes one change of the row and draws the conclusion for the term.
func (t *Term) write(v row.Version[electionRow], r request) (row.Version[electionRow], error) {
	if !t.Trusted() { // woke up as a zombie
		return v, context.Cause(t.ctx)
	}
	if r.over != nil {
		// Once this is sent another may lead, and the answer may be long in coming.
		t.cancelWork(r.over)
	} else if r.change != nil && t.work.Err() != nil {
		return v, context.Cause(t.work)
	}
	next := v.Value
	next.beats++
	if r.change != nil {
		r.change(&next)
	}
	t.takeTimes(&next)
	now, err := t.row.TryWrite(t.ctx, v, next)
	if errors.Is(err, row.ErrLost) {
		t.end(ErrDeposed)
	}
	switch {
	case err == nil && r.over != nil:
		// The write landed on the row as this term had left it, so no process led in between, even if
		// trust had ended.
		t.end(r.over)
		return now, nil
	case err == nil && t.renew(now.Sent):
		return now, nil
	case t.ctx.Err() != nil:
		return v, context.Cause(t.ctx)
	}
	return v, fmt.Errorf("election: %w", err)
}

// takeTimes puts times in force that have changed, before the write that says them: with a shorter
// lease trust ends at the latest when a write of now would be too old, since others judge by this
// write even if its answer never comes.
func (t *Term) takeTimes(next *electionRow) {
	now := t.options
	now.retime() // without the lock: Times may ask what takes it
	t.mu.Lock()
	defer t.mu.Unlock()
	// What others read without the lock stays as it is.
	t.options.Beat, t.options.Lease, t.options.Margin = now.Beat, now.Lease, now.Margin
	t.row.Timeout = t.options.timeout()
	next.beat, next.lease, next.margin = t.options.Beat, t.options.Lease, t.options.Margin
	if most := row.ClockOf(t.row.Table).Since(t.trusts) + t.options.trust(); most < t.trustFor {
		t.trustFor, t.trustEnds = most, time.Now().Add(t.options.trust())
		t.alarm.Reset(t.options.trust())
	}
}

// renew moves the end of trust after a beat that was sent then. It is false,
// and the term over, if trust had ended before the answer came (P5.2).
func (t *Term) renew(sent time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.checkLocked() {
		return false
	}
	t.trusts, t.trustFor = sent, t.options.trust()
	t.trustEnds = sent.Add(t.trustFor)
	t.alarm.Reset(time.Until(t.trustEnds))
	return true
}

// Trusted reports whether leadership is still trusted, now, by the clocks of this machine.
func (t *Term) Trusted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.checkLocked()
}

// expire is the alarm. It may be late, or an old alarm that fired while trust was renewed.
func (t *Term) expire() { t.Trusted() }

// checkLocked ends the term if its trust is over. It looks at the time rather than at the alarm:
// when a stopped process goes on, either may be first. On a suspended machine the wall clock counts
// as well.
func (t *Term) checkLocked() bool {
	if t.ctx.Err() != nil {
		return false
	}
	if time.Now().Before(t.trustEnds) && row.ClockOf(t.row.Table).Since(t.trusts) < t.trustFor {
		return true
	}
	t.end(ErrTrustEnded)
	return false
}

// end ends the term; the first cause stays.
func (t *Term) end(cause error) {
	if t.ctx.Err() == nil && errors.Is(cause, ErrDeposed) {
		t.options.Log.Warn("no longer leading", "epoch", t.Epoch, "because", cause)
	}
	t.cancel(cause)
}
