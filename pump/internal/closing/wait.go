package closing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// StuckAfter is the StuckAfter of options that name none.
const StuckAfter = time.Minute

// CompleteWait gives the options with their defaults. A value out of range is a
// [*pump.ConfigError].
func CompleteWait(o pump.WaitOptions) (pump.WaitOptions, error) {
	o.StuckAfter = cmp.Or(o.StuckAfter, StuckAfter)
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

// Wait waits until every task of a run is done or in quarantine. The run holds its ID alone, or,
// from the distributor that has sealed it, also what it was sealed with: so that is known even if
// ctx has ended before the first look. The options must be complete.
func Wait(
	ctx context.Context, cfg *pump.Config, f *queues.Set, segments int, run workload.Run,
	o pump.WaitOptions,
) (pump.Completion, error) {
	return newWaiter(cfg, f, segments, run, o).wait(ctx)
}

func reportOf(t workload.Tally) pump.RunReport {
	return pump.RunReport{
		Handled:     t.Handled,
		Failed:      t.Failed,
		Retried:     t.Retried,
		Quarantined: t.Quarantined,
		Duplicates:  t.Duplicates,
	}
}

// waiter waits for one run.
type waiter struct {
	cfg      *pump.Config
	queues   *queues.Set
	segments int
	id       pump.RunID
	o        pump.WaitOptions
	runs     *workload.Runs
	began    time.Time

	run      workload.Run
	recorded *ledger.RunProgress // nil: nothing is
	shown    uint64              // settled, when progress was reported last
	idle     idleness
	// askedOpen is when the waiter last asked whether a distributor sends the run, and orphan since
	// when the answer has been no; zero: it was yes.
	askedOpen, orphan time.Time
	attended          attendance
	failing           logs.Limited // looks are
}

func newWaiter(
	cfg *pump.Config, f *queues.Set, segments int, run workload.Run, o pump.WaitOptions,
) *waiter {
	return &waiter{
		cfg: cfg, queues: f, segments: segments, id: run.ID, run: run, o: o,
		runs: workload.NewRuns(f.Control, cfg.Workload), began: time.Now(), askedOpen: time.Now(),
		idle:     idleness{cfg: cfg, queues: f, run: run.ID, after: o.StuckAfter},
		attended: attendance{cfg: cfg, queues: f, run: run.ID},
	}
}

// How often the waiter looks at the run: often enough to see its end within half a second. A look
// is a query for each 64 segments and the run's row, so many segments make looks rare: they cost
// about 20 requests a second at most.
const (
	waitLook     = 400 * time.Millisecond
	waitLookMax  = 5 * time.Second
	waitPerQuery = 50 * time.Millisecond
)

func (w *waiter) lookEvery() time.Duration {
	queries := (w.segments + ledger.PartitionSegments - 1) / ledger.PartitionSegments
	return min(max(waitLook, time.Duration(queries)*waitPerQuery), waitLookMax)
}

func (w *waiter) wait(ctx context.Context) (pump.Completion, error) {
	for n, look := uint64(0), w.lookEvery(); ; n++ {
		over, err := w.look(ctx)
		switch {
		case over:
			return w.completed(ctx), nil
		case ctx.Err() != nil:
			return w.sofar(pump.RunWaiting), context.Cause(ctx)
		case err == nil:
			w.failing.IsOver(w.cfg.Log.Info, "how far the run is can be learned again", "run", w.id.String())
		case lasting(err):
			return w.failed(ctx, err)
		default:
			w.failing.GoesOn(w.cfg.Log.Warn, "how far the run is could not be learned; trying again",
				"run", w.id.String(), "error", err)
		}
		waits.Wait(ctx, waits.Jitter(w.cfg.Instance).Around(look, "wait", w.id.String(), n))
	}
}

// lasting errors are those that waiting does not mend.
func lasting(err error) bool {
	if _, stuck := errors.AsType[*pump.StuckError](err); stuck {
		return true
	}
	for _, e := range []error{
		pump.ErrNoRun, pump.ErrRunState, row.ErrCorrupt, workload.ErrOverfull,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	d := failure.Decide(failure.ControlAccount, err, failure.Command)
	return d.Do == failure.End && d.Kind != failure.Unknown
}

// look reports whether the run is complete. The records are read before the run's row: if the row
// says "sealed", nothing had been pruned when the records were read; if it says "closed", all is
// done, with any records.
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
				"distributor runs repair %[1]s --input FILE",
			w.id, pump.ErrRunState, w.run.Note,
		)
	case workload.RunAbandoned:
		return false, fmt.Errorf("run %s: %w: it is abandoned: %s", w.id, pump.ErrRunState,
			w.run.Note)
	case workload.RunEnded:
		return false, fmt.Errorf("run %s: %w: it has ended: %s", w.id, pump.ErrRunState, w.run.Note)
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

func (w *waiter) progress() pump.RunProgress {
	done, quarantined := w.recorded.Sums()
	return ProgressOf(&w.run, done, quarantined)
}

func (w *waiter) tell() {
	if now := w.settled(); w.o.Progress != nil && (now != w.shown || now == 0) {
		w.shown = now
		w.o.Progress(w.progress())
	}
}

func (w *waiter) sofar(state pump.CompletionState) pump.Completion {
	p := w.progress()
	c := pump.Completion{
		Run: w.id, State: state, Done: p.Done, Quarantined: p.Quarantined, Lacking: []pump.SegmentLack{},
		Seconds: time.Since(w.began).Seconds(),
		Closed:  w.run.State == workload.RunClosed,
	}
	if p.Total != nil {
		c.Tasks = *p.Total
	}
	return c
}

func (w *waiter) failed(ctx context.Context, err error) (pump.Completion, error) {
	c := w.sofar(pump.RunWaiting)
	if stuck, ok := errors.AsType[*pump.StuckError](err); ok {
		c.State, c.Lacking = pump.RunStuck, stuck.Lacking
	}
	c.Reported = w.report(ctx)
	return c, err
}

// completed closes the run if it can be, and asks what the processors say of it.
func (w *waiter) completed(ctx context.Context) pump.Completion {
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
	c := w.sofar(pump.RunDone)
	if c.Quarantined > 0 {
		c.State = pump.RunQuarantined
	}
	c.Reported = w.report(ctx)
	return c
}

// report reads the tallies. Nothing depends on them, and nothing waits for them: processors note
// them with each beat, so that the last seconds are missing.
func (w *waiter) report(ctx context.Context) pump.RunReport {
	tallies, err := workload.Tallies(ctx, w.queues.Control, w.cfg.Workload, w.id)
	if err != nil {
		return pump.RunReport{}
	}
	return reportOf(workload.SumTallies(tallies))
}

// orphanLook is how often the waiter asks at most whether a distributor sends an open run: three
// requests.
const orphanLook = 5 * time.Second

// orphaned is a [*pump.StuckError] if no distributor has sent the awaited run for longer than
// StuckAfter. An elected distributor may take over from a dead one within a lease, which is less
// than the default.
func (w *waiter) orphaned(ctx context.Context) error {
	if time.Since(w.askedOpen) < min(max(orphanLook, w.o.StuckAfter/6), time.Minute) {
		return nil
	}
	w.askedOpen = time.Now()
	by, err := AtWork(ctx, w.cfg, w.queues, &w.run, 4*member.DefaultBeat)
	switch {
	case err != nil:
		return nil // which does not matter
	case by != "":
		w.orphan = time.Time{}
	case w.orphan.IsZero():
		w.orphan = time.Now()
		w.cfg.Log.Warn("the run is open, and no distributor seems to be at work on it",
			"run", w.id.String(), "fix", "send the rest of its source with: distributor runs repair "+
				w.id.String()+" --input FILE")
	case time.Since(w.orphan) >= w.o.StuckAfter:
		return &pump.StuckError{Run: w.id, Open: true, Lacking: []pump.SegmentLack{}}
	}
	return nil
}
