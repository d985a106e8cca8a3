package distributor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// once makes one distribution with a run of its own, without an election: any
// number of processes may do that at the same time (origins H6, docs/protocols.md).
func (d *Distributor) once(ctx context.Context) (Summary, error) {
	r := d.begin()
	defer r.close()
	err := d.look(ctx, r)
	if err == nil {
		err = r.firstGood(d.opts.OnBadLine)
	}
	if err == nil {
		err = d.prepare(ctx)
	}
	if err == nil {
		if err = d.create(ctx, r, d.mode); err == nil {
			err = d.distribute(ctx, r)
		}
	}
	if err == nil && d.opts.Wait != nil {
		err = d.await(ctx, r)
	}
	return d.report(r, err)
}

// await waits until what was distributed is done.
func (d *Distributor) await(ctx context.Context, r *run) error {
	r.took = time.Since(r.begun)
	r.log.Info("waiting until every task is done")
	sealed := workload.Run{
		ID: r.id, State: workload.RunSealed, Sealed: r.read.Counts, Tasks: uint64(r.count.Tasks.Load()),
	}
	segments := d.router.Current().Workload.Map.Segments
	ctx, cancel := d.opts.Wait.Within(ctx)
	defer cancel()
	c, err := closing.Wait(ctx, &d.cfg.Config, d.fleet, segments, sealed, *d.opts.Wait)
	r.completion = &c
	return err
}

// begin makes a distribution that has no run yet.
func (d *Distributor) begin() *run {
	r := &run{d: d, runs: d.runs, begun: time.Now(), log: d.cfg.Log}
	r.before, r.beforeThrottled = d.fleet.Requests()
	return r
}

func (d *Distributor) report(r *run, err error) (Summary, error) {
	s := r.summary()
	d.stage.ended(r, err)
	if d.opts.OnRun != nil {
		d.opts.OnRun(s, err)
	}
	return s, err
}

// create makes a new run and inserts its row, before the run's first put (P1.1).
func (d *Distributor) create(ctx context.Context, r *run, mode string) error {
	var print string
	if !r.live {
		print = d.fingerprint(r.print)
	}
	if len(print) > maxFingerprint {
		return fmt.Errorf("the source's fingerprint has %d bytes, more than %d", len(print),
			maxFingerprint)
	}
	if r.id.IsZero() { // it has no name
		r.id = newRun(d.cfg.Sim.Seeding, d.cfg.Workload)
		r.log = d.cfg.Log.With("run", r.id.String())
	}
	r.row = workload.Run{
		ID: r.id, Workload: d.cfg.Workload, Mode: mode, Name: cmp.Or(r.name, d.opts.Name),
		Fingerprint: print, Instance: d.cfg.Instance, Beat: d.runBeat(),
	}
	if r.leads == nil {
		r.row.Accounts = d.fleet.Names()
	}
	return r.runs.Create(ctx, r.row)
}

// errBroken is a distribution that was told to stop and that no process continues.
var errBroken = errors.New("stopped before the end of the source")

// distribute makes the distribution and gives the run its end: sealed after the
// last acknowledgement (P2.2), broken if no process can or should continue it. A run that another
// leader continues stays open, with source.ErrHalted or the cause of the lost leadership.
func (d *Distributor) distribute(ctx context.Context, r *run) error {
	d.stage.hasRun(r)
	r.log.Info("distributing", "from", r.count.Tasks.Load(), "resumed", r.from != nil)
	how, err := r.sendAll(ctx)
	// The run's end is recorded even if the process is being stopped.
	rows, done := outlive(ctx)
	defer done()
	switch {
	case err != nil && r.leads != nil && r.leads.Err() != nil:
		return err
	case r.over.Load():
		r.broken = true // its row says so
		r.log.Error("the run does not go on", "error", err)
		return err
	case err != nil && r.leads != nil && !r.live && troubled(err):
		return err // the run stays open: another, or this one later, reads on
	case err != nil:
		d.noteEnd(rows, r, err.Error(), slog.LevelError, "the run is broken")
		return err
	case how == endOfSource:
		err := r.runs.Seal(rows, r.id, r.read.Counts)
		if errors.Is(err, pump.ErrNoRun) && r.putBack(rows) {
			err = r.runs.Seal(rows, r.id, r.read.Counts)
		}
		if err != nil {
			return fmt.Errorf("every task was put, but the run could not be sealed: %w", err)
		}
		if r.leads != nil {
			of := &run{d: d, id: r.id, runs: r.runs, row: r.row, log: r.log}
			d.sealed = &sealedRun{of: of, counts: r.read.Counts, at: time.Now()}
		}
		d.closeEmpty(rows, r)
		r.log.Info("distributed", "tasks", r.count.Tasks.Load(), "envelopes", r.count.Envelopes.Load())
		return nil
	case r.unread != nil:
		return r.unread
	case r.leads != nil && !r.live:
		return source.ErrHalted
	}
	err = fmt.Errorf("%w: %w", errBroken, context.Cause(ctx))
	d.noteEnd(rows, r, errBroken.Error(), slog.LevelInfo,
		"the run ends before its source does, because the distributor was stopped")
	return err
}

// lastWords is how long a distributor that was told to stop, and whose grace is used or over, tries
// to write each of the rows that say how far it came. No task is lost without them: the next leader
// continues a run that is open. Control's own patience of a minute would make a supervisor kill it
// instead.
const lastWords = 5 * time.Second

// outlive gives a context that goes on for lastWords when ctx ends, or has ended.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		last := time.AfterFunc(lastWords, cancel)
		context.AfterFunc(longer, func() { last.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// noteEnd marks a run as broken, and says so as loudly as that is news.
func (d *Distributor) noteEnd(
	ctx context.Context, r *run, note string, level slog.Level, said string,
) {
	note = noteOf(r, note)
	r.log.Log(ctx, level, said, "note", note)
	if err := r.runs.Break(ctx, r.id, note); err != nil {
		r.log.Warn("the run could not be marked as broken", "error", err)
		return
	}
	r.broken = true
	d.endUnput(ctx, r)
}

// noteOf is why a run broke and how far it had come, within the bounds of its
// row. To decide whether to distribute again you need to know what was sent,
// not only what was read.
func noteOf(r *run, why string) string {
	c := &r.count
	note := fmt.Sprintf("read %d tasks, acknowledged %d of them (%d envelopes by this process): %s",
		c.Tasks.Load(), c.Acked.Load(), c.Envelopes.Load(), why)
	return strings.ToValidUTF8(note[:min(len(note), 4<<10)], "")
}

// elected makes a distribution whenever one is due and this process is elected
// to, until ctx ends (origins H4, docs/protocols.md).
func (d *Distributor) elected(ctx context.Context) (last Summary, err error) {
	err = d.prepare(ctx)
	switch {
	case ctx.Err() != nil: // which is not an error
		return last, nil
	case err != nil:
		return last, err
	}
	idle, stop := context.WithCancel(ctx)
	var closing sync.WaitGroup
	closing.Go(func() { d.closeRuns(idle) })
	defer closing.Wait()
	defer stop()
	e := election.New(d.fleet.Control, d.cfg.Workload, election.Options{
		Instance: d.cfg.Instance, Every: d.opts.Every, Times: d.terms,
		Log: d.cfg.Log, Rounds: &d.standing, Left: d.left, Cron: d.cron,
	})
	var silent logs.Limited
	for ctx.Err() == nil {
		stood := d.standing.Begin()
		won, wait, err := e.Try(ctx)
		stood()
		d.nextDue.Store(new(e.NextDue()))
		silent.Tell(ctx, d.cfg.Log, err, "the election row could not be read or written",
			"the election row can be read and written again")
		switch {
		case won != nil:
			t := &term{d: d, won: won, last: &last}
			wait, err = t.lead(ctx)
			if err != nil {
				return last, err
			}
		case err != nil && ctx.Err() == nil && final(err):
			return last, err
		}
		if err := d.standBy(ctx, wait); err != nil {
			return last, err
		}
		d.keepSealed(ctx)
	}
	return last, nil
}

// terms are the times of an election.
func (d *Distributor) terms() (beat, lease time.Duration) {
	return d.times().Beat, d.times().Lease
}

// standBy waits; it fails if the workload is gone.
func (d *Distributor) standBy(ctx context.Context, wait time.Duration) error {
	defer d.standing.Begin()()
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		t := d.router.Current()
		if t.Fatal != nil {
			return t.Fatal
		}
		select {
		case <-t.Changed:
		case <-over.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// final reports whether no waiting mends err.
func final(err error) bool {
	return failure.Ends(failure.ControlAccount, err, failure.Work)
}

// retryPause is how long an elected distributor that could not begin waits before it stands again;
// another may do better meanwhile.
const retryPause = 5 * time.Second

// term is what a distributor does between a won election and giving it up.
type term struct {
	d    *Distributor
	won  *election.Term
	last *Summary
}

// lead continues what a former leader left or makes a new run, and gives the leadership up as the
// outcome demands:
//
//	the source cannot be read     Abandon: another may, or this one later
//	the source cannot be sent     Finish: as after a distribution
//	the run is sealed or broken   Finish: the next one is due after Every, or by the schedule
//	told to stop in mid-run       Abandon: another continues at once
//	the control plane fails       Abandon: another, or this one again, continues soon
//	leadership is lost            nothing is left to give up
//
// lead returns only an error that waiting does not mend.
func (t *term) lead(ctx context.Context) (wait time.Duration, err error) {
	r, err := t.job(ctx) // an error may come with a run that has no tasks yet
	defer r.close()
	if err == nil && r == nil {
		return t.finish(ctx)
	}
	distributed := err == nil
	if distributed {
		var from []byte
		if r.from != nil {
			from = t.won.Resume.Checkpoint
		}
		t.holds(r, from)
		err = t.d.distribute(ctx, r)
		*t.last, _ = t.d.report(r, err)
		if !troubled(err) || r.moved() {
			t.d.unread = 0
		}
		switch {
		case t.won.Context().Err() != nil:
			t.d.cfg.Log.Warn("leadership was lost; another distributor continues the run",
				"run", r.id.String(), "error", err)
			return 0, nil
		case err == nil || r.broken:
			t.again(r, err)
			return t.finish(ctx)
		}
	}
	if _, unusable := errors.AsType[*pack.SourceError](err); unusable && !final(err) &&
		ctx.Err() == nil {
		if !distributed {
			*t.last, _ = t.d.report(t.begin(), err)
		}
		if troubled(err) {
			return t.stepBack(ctx, err), nil
		}
		t.d.cfg.Log.Error("the source cannot be sent; the next distribution is due as usual",
			"error", err)
		t.again(nil, err)
		return t.finish(ctx)
	}
	t.abandon(ctx)
	switch {
	case ctx.Err() != nil:
		return 0, nil
	case final(err):
		return 0, err
	}
	t.d.cfg.Log.Error("the distribution could not go on; trying again", "error", err)
	return retryPause, nil
}

// stepBack leaves the leadership to a distributor that can read the source, and says when to stand
// again. The distribution stays due: nothing was sent.
func (t *term) stepBack(ctx context.Context, err error) time.Duration {
	d := t.d
	pause := waits.Doubled(2*retryPause, UnreadPause, d.unread)
	pause = waits.Jitter(d.cfg.Instance).Around(pause, "step back", d.cfg.Workload, d.unread)
	d.unread++
	d.cfg.Log.Error("the source cannot be read on this machine; another distributor may "+
		"lead, or this one again later",
		"error", err, "pause", pause.Round(time.Second))
	t.abandon(ctx)
	return pause
}

// UnreadPause is the longest that a distributor waits before it stands again if it cannot read its
// source: seldom beside others that can, and soon after a mount is back.
const UnreadPause = time.Minute

// finish makes the next distribution due after Every. Until that is written the others wait, so
// finish tries again as long as leadership lasts.
func (t *term) finish(ctx context.Context) (time.Duration, error) {
	t.d.held = heldRun{}
	rows, done := outlive(ctx)
	defer done()
	for attempt := uint64(0); ; attempt++ {
		err := waits.Within(rows, t.won.Finish)
		if err == nil || errors.Is(err, election.ErrDeposed) || errors.Is(err, election.ErrTermOver) {
			return 0, nil
		}
		t.d.cfg.Log.Warn("the end of the distribution could not be written; trying again", "error", err)
		pause := waits.Jitter(t.d.cfg.Instance).
			Full(500*time.Millisecond, 5*time.Second, "finish", t.d.cfg.Workload, attempt)
		if !waits.Wait(ctx, pause) {
			// Stopped: the next leader finds the run at its end and only finishes.
			t.abandon(ctx)
			return 0, nil
		}
	}
}

func (t *term) abandon(ctx context.Context) {
	rows, done := outlive(ctx)
	defer done()
	_ = waits.Within(rows, func(ctx context.Context) error {
		t.won.Abandon(ctx)
		return nil
	})
}

// job decides what this term distributes: the run it took over, from its checkpoint, or a new one.
// Nil means that nothing is left to do.
func (t *term) job(ctx context.Context) (*run, error) {
	d := t.d
	if err := d.Prepare(ctx); err != nil {
		return nil, err
	}
	if resume := t.won.Resume; resume != nil {
		r, over, err := t.resume(ctx, resume)
		if r != nil || over || err != nil {
			return r, err
		}
	}
	d.led = 0
	r, open, err := t.wanted(ctx)
	if r == nil || err != nil {
		return nil, err
	}
	if !open {
		mode := closing.ModeEvery
		if d.cron != nil {
			mode = closing.ModeCron
		}
		if err := d.look(ctx, r); err != nil {
			return r, err
		}
		if err := d.create(ctx, r, mode); err != nil {
			return r, err
		}
	}
	// If the answer is lost, the row may hold the run: the next leader then
	// continues it from its start.
	begin := func(ctx context.Context) error { return t.won.Begin(ctx, r.id) }
	if err := waits.Within(ctx, begin); err != nil {
		return r, err
	}
	d.led = t.won.Epoch
	t.bury(ctx, r.id)
	return r, nil
}

func (t *term) begin() *run {
	r := t.d.begin()
	r.leads = t.won.Context()
	r.save = func(ctx context.Context, checkpoint []byte) error {
		t.holds(r, checkpoint)
		return t.won.Save(ctx, checkpoint)
	}
	r.runs = t.d.runs.By(t.won.Epoch)
	return r
}

// resume continues a former leader's run at its checkpoint, if source and
// settings are still those of the run (P2.3) and the source can be read again (P2.4);
// otherwise the run is broken, loudly, and nil says that a new one begins. Over
// means that the run had come to its end and only Finish is missing; but with a schedule
// a broken run is followed by another.
func (t *term) resume(ctx context.Context, from *election.Resume) (r *run, over bool, err error) {
	d := t.d
	// From here on a former leader that does not know yet that it was replaced can neither seal nor
	// break the run.
	run, err := d.runs.By(t.won.Epoch).Take(ctx, from.Run)
	switch {
	case errors.Is(err, pump.ErrNoRun):
		return nil, false, t.bringBack(ctx, from.Run, closing.ModeEvery)
	case err != nil:
		return nil, false, err
	case run.State == workload.RunBroken && d.cron != nil:
		return nil, false, nil
	case run.State != workload.RunOpen:
		return nil, true, nil
	}
	r = t.begin()
	r.id, r.row, r.log = run.ID, run, d.cfg.Log.With("run", run.ID.String())
	if err = r.goOn(from.Checkpoint); err != nil {
		return nil, false, t.refuse(ctx, r, err)
	}
	err = d.fix(ctx, r)
	switch {
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case troubled(err):
		return nil, false, err // which is not a sign of the source
	case err != nil:
		return nil, false, t.refuse(ctx, r, fmt.Errorf("%w: %w", source.ErrSourceChanged, err))
	case r.live || run.Fingerprint == "":
		return nil, false, t.refuse(ctx, r, source.ErrNotReplayable)
	case d.fingerprint(r.print) != run.Fingerprint:
		return nil, false, t.refuse(ctx, r,
			fmt.Errorf("%w: it was %q and is %q", source.ErrSourceChanged, run.Fingerprint,
				d.fingerprint(r.print)))
	}
	return r, false, nil
}
