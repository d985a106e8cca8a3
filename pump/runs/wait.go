package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// WaitOptions are the options of [Wait]. The zero value works.
type WaitOptions struct {
	// Progress is called after each look that brought news, by one goroutine.
	Progress func(Progress)
	// StuckAfter is how long nothing must have been recorded, and how long then
	// every queue must look empty, before the run is given up as stuck. Default 1 min,
	// at least 1 s. A run does not look stuck while any message of the workload
	// is in any queue, that of another run included.
	StuckAfter time.Duration
	// Timeout ends the waiting with [ErrTimeout], also while nothing answers. 0: it has no end.
	Timeout time.Duration
}

// Within gives a context that ends when the waiting does, with [ErrTimeout]: for what a caller asks
// before [Wait], which counts its own time from its call.
func (o WaitOptions) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.Timeout, ErrTimeout)
}

// ErrTimeout is that a run was not over within [WaitOptions.Timeout].
var ErrTimeout = errors.New("the run was not over in the time given for waiting")

// DefaultStuckAfter is the StuckAfter of options that name none.
const DefaultStuckAfter = time.Minute

// Complete gives the options with their defaults. A value out of range is a [*pump.ConfigError].
func (o WaitOptions) Complete() (WaitOptions, error) {
	o.StuckAfter = cmp.Or(o.StuckAfter, DefaultStuckAfter)
	if o.StuckAfter < time.Second {
		return o, setup.OutOfRange("stuck-after", o.StuckAfter,
			"use 1s or more, or leave it out for 1m")
	}
	if o.Timeout < 0 {
		return o, pump.Invalid("timeout",
			"it is negative", "use more than 0, or leave it out to wait until the run is over")
	}
	return o, nil
}

// Completion is how a run ended.
type Completion struct {
	Run pump.RunID `json:"run"`
	// State is "done", "quarantined" if all is settled and tasks are in quarantine, "stuck" if
	// tasks are missing, and "waiting" if the waiting ended before any of that.
	State       string `json:"state"`
	Tasks       uint64 `json:"tasks"` // in the run; 0 if it is not sealed
	Done        uint64 `json:"done"`
	Quarantined uint64 `json:"quarantined"`
	// Lacking are the segments of a run that is stuck, and what is missing of each; never null.
	Lacking []SegmentLack `json:"lacking"`
	// Closed: the run was closed, because it is done and nothing of it is in quarantine (P3.7).
	Closed bool `json:"closed"`
	// Reported is what the processors have said they did.
	Reported Report  `json:"reported"`
	Seconds  float64 `json:"seconds"` // of waiting
}

// The states of a [Completion].
const (
	Done        = "done"
	Quarantined = "quarantined"
	Stuck       = "stuck"
	Waiting     = "waiting"
)

// Report is what processors say they did of a run. It is for people: they note it
// about every five seconds, so it may lag behind, and what one did that was killed
// since its last note is missing. A task counts as often as it was delivered.
type Report struct {
	Handled     uint64 `json:"handled"`
	Failed      uint64 `json:"failed"`
	Retried     uint64 `json:"retried"`
	Quarantined uint64 `json:"quarantined"`
	Duplicates  uint64 `json:"duplicates"` // recognised, and not handled
}

func reportOf(t workload.Tally) Report {
	return Report{
		Handled:     t.Handled,
		Failed:      t.Failed,
		Retried:     t.Retried,
		Quarantined: t.Quarantined,
		Duplicates:  t.Duplicates,
	}
}

// StuckError is that a run will not be over by itself. Tasks of it are missing: they are not
// recorded, and no queue has had a message for a while. Or it is open, and for a while no
// distributor has sent it on.
type StuckError struct {
	Run     pump.RunID
	Open    bool // it was not sent to its end
	Missing uint64
	Lacking []SegmentLack
}

func (e *StuckError) Error() string {
	if e.Open {
		return fmt.Sprintf(
			"run %s is stuck: it was not sent to its end, and no distributor is at work on it; "+
				"send the rest of its source with: distributor runs repair %[1]s",
			e.Run,
		)
	}
	return fmt.Sprintf(
		"run %s is stuck: %d tasks are neither done nor in quarantine, and the queues are empty: %s; "+
			"put them again from the run's source with: distributor runs repair %[1]s",
		e.Run, e.Missing, lackText(e.Lacking),
	)
}

// Wait waits until every task of a run is done or in quarantine, which it learns from
// the ledger, so the delivery mode must be [pump.Once]. It waits for a run that is
// open to be sealed, and closes one that is done (P3.7). A control account that does not
// answer is waited for.
//
// An error is a [*StuckError], that the run is broken or not there
// ([workload.ErrRunState], [workload.ErrNoRun]), a damaged row, or that ctx ended; the Completion
// says how far it was then.
func Wait(ctx context.Context, cfg pump.Config, run pump.RunID, o WaitOptions) (Completion, error) {
	s, err := setup.Reach(cfg)
	if err != nil {
		return Completion{}, err
	}
	if o, err = o.Complete(); err != nil {
		return Completion{}, err
	}
	ctx, cancel := o.Within(ctx)
	defer cancel()
	began := time.Now()
	switch err := s.Load(ctx); {
	case err != nil && ctx.Err() != nil:
		return Completion{
			Run: run, State: Waiting, Lacking: []SegmentLack{}, Seconds: time.Since(began).Seconds(),
		}, context.Cause(ctx)
	case err != nil:
		return Completion{}, s.Advise(ctx, err)
	}
	if err := errors.Join(setup.NeedOnce(s.Workload.Delivery, "delivery", "waiting"),
		s.Check()); err != nil {
		return Completion{}, err
	}
	return newWaiter(&s.Cfg.Config, s.Queues, s.Workload.Map.Segments, run, o).wait(ctx)
}

// WaitSealed is [Wait] for the distributor that has sealed the run itself: what it was sealed with
// is known, also if ctx has ended before the first look. The options must be complete.
func WaitSealed(
	ctx context.Context, cfg *pump.Config, f *queues.Set, segments int, run workload.Run,
	o WaitOptions,
) (Completion, error) {
	ctx, cancel := o.Within(ctx)
	defer cancel()
	w := newWaiter(cfg, f, segments, run.ID, o)
	w.run = run
	return w.wait(ctx)
}

// waiter waits for one run.
type waiter struct {
	cfg      *pump.Config
	queues   *queues.Set
	segments int
	id       pump.RunID
	o        WaitOptions
	runs     *workload.Runs
	began    time.Time

	run      workload.Run
	recorded *ledger.RunProgress // nil: nothing is
	shown    uint64              // settled, when progress was reported last
	idle     idleness
	// askedOpen is when it was asked last whether a distributor sends the run, and orphan since when
	// the answer was always no; zero: it was yes.
	askedOpen, orphan time.Time
	attended          attendance
}

func newWaiter(
	cfg *pump.Config, f *queues.Set, segments int, run pump.RunID, o WaitOptions,
) *waiter {
	return &waiter{
		cfg: cfg, queues: f, segments: segments, id: run, o: o,
		runs: workload.NewRuns(f.Control, cfg.Workload), began: time.Now(), askedOpen: time.Now(),
		idle:     idleness{cfg: cfg, queues: f, run: run, after: o.StuckAfter},
		attended: attendance{cfg: cfg, queues: f, run: run},
	}
}

// How often the run is looked at: so often that its end is seen within half a second. A look is a
// query for each 64 segments and the run's row, so that many segments make looks seldom: all of
// them cost about 20 requests a second at most.
const (
	waitLook     = 400 * time.Millisecond
	waitLookMax  = 5 * time.Second
	waitPerQuery = 50 * time.Millisecond
)

func (w *waiter) lookEvery() time.Duration {
	queries := (w.segments + ledger.PartitionSegments - 1) / ledger.PartitionSegments
	return min(max(waitLook, time.Duration(queries)*waitPerQuery), waitLookMax)
}

func (w *waiter) wait(ctx context.Context) (Completion, error) {
	for n, look := uint64(0), w.lookEvery(); ; n++ {
		over, err := w.look(ctx)
		switch {
		case over:
			return w.completed(ctx), nil
		case ctx.Err() != nil:
			return w.sofar(Waiting), context.Cause(ctx)
		case err == nil:
		case lasting(err):
			return w.failed(ctx, err)
		default:
			w.cfg.Log.Warn("how far the run is could not be learned; trying again", "run", w.id.String(),
				"error", err)
		}
		waits.Wait(ctx, waits.Jitter(w.cfg.Instance).Around(look, "wait", w.id.String(), n))
	}
}

// lasting errors are those that no waiting mends.
func lasting(err error) bool {
	if _, stuck := errors.AsType[*StuckError](err); stuck {
		return true
	}
	for _, e := range []error{
		workload.ErrNoRun, workload.ErrRunState, row.ErrCorrupt, workload.ErrOverfull,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	d := failure.Decide(failure.ControlAccount, err, failure.Command)
	return d.Do == failure.End && d.Kind != failure.Unknown
}

// look reports whether the run is complete. The records are read before the run's
// row: if that says "sealed", nothing had been pruned when the record was read, and
// if it says "closed", all is done, whatever the record still knew.
func (w *waiter) look(ctx context.Context) (over bool, err error) {
	all, err := ledger.ReadProgress(ctx, w.queues.Control, w.cfg.Workload, w.segments, w.id)
	if err != nil {
		return false, err
	}
	w.recorded = all[w.id]
	// what was sealed never changes
	if w.run.State == workload.RunSealed && complete(w.run.Sealed, w.recorded) {
		return true, nil
	}
	run, err := w.runs.Get(ctx, w.id)
	if err != nil {
		return false, err // what is known of it stays
	}
	w.run = run
	w.tell()
	w.attended.judge(ctx, w.settled())
	switch w.run.State {
	case workload.RunClosed:
		return true, nil
	case workload.RunBroken:
		return false, fmt.Errorf(
			"run %s: %w: it is broken: %s; its source can be sent to the end with: "+
				"distributor runs repair %[1]s",
			w.id, workload.ErrRunState, w.run.Note,
		)
	case workload.RunAbandoned:
		return false, fmt.Errorf("run %s: %w: it is abandoned: %s", w.id, workload.ErrRunState,
			w.run.Note)
	case workload.RunEnded:
		return false, fmt.Errorf("run %s: %w: it has ended: %s", w.id, workload.ErrRunState, w.run.Note)
	case workload.RunOpen:
		return false, w.orphaned(ctx)
	}
	if err := checkRecorded(w.run.Sealed, w.recorded); err != nil {
		return false, fmt.Errorf("run %s: %w", w.id, err)
	}
	if complete(w.run.Sealed, w.recorded) {
		return true, nil
	}
	return false, w.idle.judge(ctx, lacking(w.run.Sealed, w.recorded), w.settled())
}

func (w *waiter) settled() uint64 {
	done, quarantined := w.recorded.Sums()
	return done + quarantined
}

func (w *waiter) progress() Progress {
	done, quarantined := w.recorded.Sums()
	return ProgressOf(&w.run, done, quarantined)
}

func (w *waiter) tell() {
	if now := w.settled(); w.o.Progress != nil && (now != w.shown || now == 0) {
		w.shown = now
		w.o.Progress(w.progress())
	}
}

func (w *waiter) sofar(state string) Completion {
	p := w.progress()
	c := Completion{
		Run: w.id, State: state, Done: p.Done, Quarantined: p.Quarantined, Lacking: []SegmentLack{},
		Seconds: time.Since(w.began).Seconds(),
		Closed:  w.run.State == workload.RunClosed,
	}
	if p.Total != nil {
		c.Tasks = *p.Total
	}
	return c
}

func (w *waiter) failed(ctx context.Context, err error) (Completion, error) {
	c := w.sofar(Waiting)
	if stuck, ok := errors.AsType[*StuckError](err); ok {
		c.State, c.Lacking = Stuck, stuck.Lacking
	}
	c.Reported = w.report(ctx)
	return c, err
}

// completed closes the run if it can be, and asks what the processors say of it.
func (w *waiter) completed(ctx context.Context) Completion {
	if w.o.Progress != nil {
		w.o.Progress(w.progress())
	}
	if w.run.State != workload.RunClosed && closable(w.run.Sealed, w.recorded) {
		if err := w.runs.Close(ctx, w.id); err != nil {
			// A processor or the leader does it some other time.
			w.cfg.Log.Warn("the run is done, but it could not be closed yet", "run", w.id.String(),
				"error", err)
		} else {
			w.run.State = workload.RunClosed
		}
	}
	c := w.sofar(Done)
	if c.Quarantined > 0 {
		c.State = Quarantined
	}
	c.Reported = w.report(ctx)
	return c
}

// report reads the tallies. Nothing depends on them, and nothing waits for them: processors note
// them with each beat, so that the last seconds are missing.
func (w *waiter) report(ctx context.Context) Report {
	tallies, err := workload.Tallies(ctx, w.queues.Control, w.cfg.Workload, w.id)
	if err != nil {
		return Report{}
	}
	return reportOf(workload.SumTallies(tallies))
}

// orphanLook is how often it is asked at most whether a distributor sends an open run: three
// requests.
const orphanLook = 5 * time.Second

// orphaned is a [*StuckError] if no distributor has sent the run that is waited for over
// StuckAfter. One that is elected may take over from a dead one within a lease, which is less than
// the default.
func (w *waiter) orphaned(ctx context.Context) error {
	if time.Since(w.askedOpen) < min(max(orphanLook, w.o.StuckAfter/6), time.Minute) {
		return nil
	}
	w.askedOpen = time.Now()
	by, err := closing.AtWork(ctx, w.cfg, w.queues, &w.run, 4*member.DefaultBeat)
	switch {
	case err != nil:
		return nil // which says nothing
	case by != "":
		w.orphan = time.Time{}
	case w.orphan.IsZero():
		w.orphan = time.Now()
		w.cfg.Log.Warn("the run is open, and no distributor seems to be at work on it",
			"run", w.id.String(), "fix", "send the rest of its source with: distributor runs repair "+
				w.id.String())
	case time.Since(w.orphan) >= w.o.StuckAfter:
		return &StuckError{Run: w.id, Open: true, Lacking: []SegmentLack{}}
	}
	return nil
}
