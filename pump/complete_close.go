package pump

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/control"
)

// closeEvery is about how often runs are looked at that may have become done.
const closeEvery = time.Minute

// closeReads bounds the run rows that one pass reads. Of a thousand new runs
// the last is closed a quarter of an hour later, which nobody waits for.
const closeReads = 64

// closer closes runs that are done (P3.7), so that what the ledger keeps of them can
// go. Only runs that the ledger knows matter, so a pass costs what they do, however many
// runs there ever were. Any number of processes may do it at the same time.
type closer struct {
	workload string
	segments int
	fleet    *fleet
	runs     *control.Runs
	log      *slog.Logger

	known map[RunID]closing // of the runs in the ledger
	last  RunID             // whose row was read last: the next pass goes on behind it
}

// closing is what is remembered of a run's row. Its counts are not: with 4,096 segments
// and a thousand runs they would be 32 MiB.
type closing struct {
	state control.RunState
	tasks uint64 // once sealed
}

func newCloser(cfg *Config, f *fleet, segments int) *closer {
	return &closer{
		workload: cfg.Workload, segments: segments, fleet: f, runs: control.NewRuns(f.control, cfg.Workload), log: cfg.Log, known: map[RunID]closing{},
	}
}

// pass closes what is done. An error ends it early, or is about some runs only; the next
// pass makes up for it.
func (c *closer) pass(ctx context.Context) error {
	progress, err := control.ReadProgress(ctx, c.fleet.control, c.workload, c.segments)
	if progress == nil {
		return err
	}
	// A run of which a damaged segment's tasks are missing does not look done.
	problems := []error{err}
	maps.DeleteFunc(c.known, func(id RunID, _ closing) bool { return progress[id] == nil })
	reads := 0
	for _, id := range c.turn(progress) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := progress[id]
		if !c.due(id, p) {
			continue
		}
		if reads++; reads > closeReads {
			break
		}
		c.last = id
		if err := c.settle(ctx, id, p); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// turn gives the runs in order, those first that come after the last one read.
func (c *closer) turn(progress map[RunID]*control.RunProgress) []RunID {
	ids := slices.SortedFunc(maps.Keys(progress), compareRuns)
	at, found := slices.BinarySearchFunc(ids, c.last, compareRuns)
	if found {
		at++
	}
	return slices.Concat(ids[at:], ids[:at])
}

// due reports whether a run's row is worth reading: nothing is known of it, it may have
// been sealed meanwhile, or so much is done that it may be all.
func (c *closer) due(id RunID, p *control.RunProgress) bool {
	k, known := c.known[id]
	switch {
	case !known:
		return true
	case k.state == control.RunClosed:
		return false
	case k.state == control.RunSealed:
		done, quarantined := recorded(p)
		return done == k.tasks && quarantined == 0
	}
	return true
}

// settle reads a run's row, and closes the run if that is due. P was read before the
// row: what was done then is done, and a run that is closed by now is not touched.
func (c *closer) settle(ctx context.Context, id RunID, p *control.RunProgress) error {
	run, err := c.runs.Get(ctx, id)
	if errors.Is(err, control.ErrNoRun) {
		// Rows of runs are never removed (P1.1): somebody did that by hand, and it is said once.
		c.known[id] = closing{state: control.RunClosed}
		return err
	}
	if err != nil {
		return err
	}
	c.known[id] = closing{run.State, run.Tasks}
	if run.State != control.RunSealed {
		return nil
	}
	if err := checkRecorded(run.Sealed, p); err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	if !closable(run.Sealed, p) {
		return nil
	}
	if err := c.runs.Close(ctx, id); err != nil {
		return err
	}
	c.known[id] = closing{control.RunClosed, run.Tasks}
	c.log.Info("a run is done and closed", "run", id.String(), "tasks", run.Tasks)
	return nil
}

// keep makes passes until ctx ends, each if this process is the one to make it.
func (c *closer) keep(ctx context.Context, j jitter, mine func(context.Context) bool) {
	for n := uint64(0); waitFor(ctx, j.around(closeEvery, "close", c.workload, n)); n++ {
		if !mine(ctx) {
			continue
		}
		if err := c.pass(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("runs that are done could not all be closed; trying again", "error", err)
		}
	}
}

// closeRuns closes runs while this processor is the first of those that live, in rank.
// That two believe so for a while costs some reads.
func (r *processing) closeRuns(ctx context.Context) {
	if r.workload.Delivery != control.DeliverOnce {
		return
	}
	c := newCloser(r.cfg, r.fleet, r.workload.Map.Segments)
	c.keep(ctx, r.jitter, func(context.Context) bool {
		m := r.member.Load()
		if m == nil {
			return false
		}
		v := m.view()
		return v != nil && v.Rank(r.cfg.Instance) == 0
	})
}

// closeRuns closes runs while this distributor is the one that distributed last and nobody
// does: it has nothing else to do, and where no processor runs nobody else does it.
func (d *Distributor) closeRuns(ctx context.Context) {
	w := d.router.now().workload
	if w.Delivery != control.DeliverOnce {
		return
	}
	e := control.NewElection(d.fleet.control, d.cfg.Workload, control.ElectionOptions{Instance: d.cfg.Instance})
	c := newCloser(&d.cfg, d.fleet, w.Map.Segments)
	c.keep(ctx, jitter(d.cfg.Instance), func(ctx context.Context) bool {
		s, err := e.Status(ctx)
		return err == nil && s.Phase == control.Idle && s.Leader == d.cfg.Instance
	})
}

// closeEmpty closes a sealed run that has no tasks. The ledger will never know of it.
func (d *Distributor) closeEmpty(ctx context.Context, r *distribution) {
	if d.router.now().workload.Delivery != control.DeliverOnce || r.count.tasks.Load() > 0 {
		return
	}
	if err := d.runs.Close(ctx, r.id); err != nil {
		r.log.Warn("the run has no tasks, and could not be closed", "error", err)
	}
}
