package closing

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// closing is what one pass finds to be done.
type closing struct {
	c       *Closer
	damaged bool // what the ledger has is not known of all segments
	todo    []func(context.Context) error
	forget  []workload.LiveRun
	list    workload.Prunable
	more    bool
	// unindexed are runs that are done with, and with results.
	unindexed []pump.RunID
	mu        sync.Mutex // guards c.absent while things are done
}

func (w *closing) do(f func(context.Context) error) { w.todo = append(w.todo, f) }

// judge decides what is to be done about a run that lives.
func (w *closing) judge(l *workload.LiveRun) {
	c, k := w.c, w.c.Known[l.ID]
	if l.Err != nil || time.Since(k.refreshed) >= refreshRuns {
		k.refreshed = time.Now()
		w.do(func(ctx context.Context) error { return c.Runs.Correct(ctx, *l) })
		return
	}
	switch {
	case l.State == workload.RunOpen:
		if k.silent >= c.patience(l) {
			w.do(func(ctx context.Context) error { return c.abandon(ctx, l, k) })
		}
	case !c.once:
		w.forget = append(w.forget, *l) // it is not known what is done of it
	case c.sums == nil:
	case l.State == workload.RunSealed:
		if k.sum.Done+k.sum.Quarantined >= l.Tasks {
			w.do(func(ctx context.Context) error { return c.close(ctx, l, k) })
		} else {
			w.unproven(l, k)
		}
	case l.State == workload.RunClosed, l.Over:
		w.done(l)
	default:
		if l.State == workload.RunEnded {
			w.list.Ended = append(w.list.Ended, l.ID)
		}
		if !k.tallied || c.isQuiet(k) {
			w.do(func(ctx context.Context) error { return c.over(ctx, l, k) })
		} else if time.Since(k.since) >= 2*c.quietOf(l) {
			c.waits.add(l.ID)
		}
	}
}

// done is for runs that are closed or over: the owners of segments forget them, and then the closer
// does. A segment that cannot be read now may alone know a run. The run is a stranger once that
// segment can be read. *Such runs were once kept until then, and outgrew the list that owners
// forget by: in the end healthy segments did not forget any run.*
func (w *closing) done(l *workload.LiveRun) {
	_, recorded := w.c.sums.Runs[l.ID]
	k := w.c.Known[l.ID]
	switch {
	case !k.indexed && len(w.c.sums.Results) > 0 && (w.damaged || w.c.sums.Results[l.ID]):
		w.unindexed = append(w.unindexed, l.ID)
		w.more = true
		return
	case !recorded:
		w.forget = append(w.forget, *l)
	case l.Over:
		w.list.Over = append(w.list.Over, l.ID)
	default:
		w.list.Closed = append(w.list.Closed, l.ID)
	}
	w.more = w.more || recorded
}

// strangers are runs that the ledger knows and that are not among those that live: their rows
// are gone.
func (w *closing) strangers() {
	c := w.c
	if c.sums == nil {
		return
	}
	absent := c.absent
	c.absent = map[pump.RunID]time.Time{}
	for _, id := range slices.SortedFunc(maps.Keys(c.sums.Runs), workload.CompareRuns) {
		if k := c.Known[id]; k != nil && k.listed {
			continue
		}
		switch since, is := absent[id]; {
		case !is:
			w.do(func(ctx context.Context) error { return w.adopt(ctx, id) })
		case time.Since(since) >= OverAfter:
			c.absent[id] = since
			// its copies are quarantined as those of a run without a row
			w.list.Over = append(w.list.Over, id)
		default:
			c.absent[id] = since
		}
	}
}

// adopt puts a run among those that live. One without a row is observed, and said once.
func (w *closing) adopt(ctx context.Context, id pump.RunID) error {
	_, err := w.c.Runs.Adopt(ctx, id)
	switch {
	case errors.Is(err, pump.ErrNoRun):
		w.mu.Lock()
		defer w.mu.Unlock()
		w.c.absent[id] = time.Now()
	case err == nil:
		w.c.changed.Store(true)
	}
	return err
}

// carryOut does what is to be done: few things one after the other, many at once.
func (w *closing) carryOut(ctx context.Context) (more bool, err error) {
	c := w.c
	if len(w.unindexed) > 0 {
		w.do(w.index)
	}
	errs := make([]error, len(w.todo))
	var g errgroup.Group
	g.SetLimit(1)
	if len(w.todo) > closeAlone {
		g.SetLimit(closeTogether)
	}
	for i, f := range w.todo {
		g.Go(func() error {
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				errs[i] = f(ctx)
			}
			return nil
		})
	}
	_ = g.Wait()
	err = c.Runs.Forget(ctx, w.forget)
	if errs = append(errs, err); err == nil && len(w.forget) > 0 {
		c.changed.Store(true)
	}
	if c.once && c.sums != nil {
		errs = append(errs, c.write(ctx, w.list))
	}
	c.told.tell(c.log)
	return w.more || len(w.todo) > 0, errors.Join(errs...)
}

// index keeps where the results of runs are that are done with, before the owners of segments may
// forget the runs. A run waits if one of its segments cannot be read.
func (w *closing) index(ctx context.Context) error {
	c := w.c
	last, err := ledger.ReadResults(ctx, c.queues.Control, c.workload, c.segments, w.unindexed...)
	if err != nil {
		return err
	}
	for _, id := range w.unindexed {
		refs := map[uint32]results.Ref{}
		for segment, packed := range last[id] {
			if refs[segment], err = results.Unpack(packed); err != nil {
				return err
			}
		}
		if err := results.WriteIndex(ctx, c.queues.Control, c.workload, id, refs); err != nil {
			return err
		}
		c.Known[id].indexed = true
		c.changed.Store(true)
	}
	return nil
}

// ends are ended runs that share a log line: at ten a second a line for each would bury the log. At
// debug level each has a line of its own.
type ends struct {
	mu                      sync.Mutex // guards what follows
	closed, abandoned, over endedRuns
	unproven                endedRuns
	told                    logs.Limited
}

type endedRuns struct {
	n     int
	first pump.RunID
}

// endsEvery is how often it is told at most.
const endsEvery = 10 * time.Second

// ended notes a run that this pass has ended, unless err says that it could not. A run that was in
// another state by now is no error.
func (c *Closer) ended(err error, to *endedRuns, id pump.RunID, what string, attrs ...any) error {
	if errors.Is(err, pump.ErrRunState) {
		return nil
	}
	if err != nil {
		return err
	}
	c.changed.Store(true)
	c.log.Debug(what, append(attrs, "run", id.String())...)
	c.told.mu.Lock()
	defer c.told.mu.Unlock()
	if to.n++; to.n == 1 {
		to.first = id
	}
	return nil
}

// tell logs what ended since it last did: at once if that is a while ago.
func (e *ends) tell(log *slog.Logger) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.n+e.abandoned.n+e.over.n+e.unproven.n == 0 || !e.told.Due() {
		return
	}
	e.closed.tell(log.Info, "runs are done and closed")
	e.abandoned.tell(
		log.Warn,
		"open runs are abandoned: their clients are gone; see: distributor runs list --state abandoned",
	)
	e.over.tell(log.Warn,
		"runs that were not finished have ended; see: distributor runs list --state ended")
	e.unproven.tell(
		log.Warn,
		"sealed runs have ended though tasks of them are not recorded as done: nothing "+
			"of them can come any more; see why with: distributor runs show RUN",
	)
}

func (r *endedRuns) tell(log func(string, ...any), what string) {
	if r.n > 0 {
		log(what, "runs", r.n, "first", r.first.String())
		*r = endedRuns{}
	}
}
