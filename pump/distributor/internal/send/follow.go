package send

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

const (
	// refreshAfter is the age at which the map is read again, if the member's
	// looks at the cluster, one a beat, have not brought a newer one: it leaves
	// time for several tries before workload.MapMaxAge.
	refreshAfter   = 10 * time.Second
	refreshTimeout = 5 * time.Second
	refreshRetry   = 2 * time.Second
	// markGather is how long marks wait for others: the queues of an account
	// turn dark within moments of each other, and one write marks them all.
	markGather = 100 * time.Millisecond
	markBase   = 500 * time.Millisecond
	markLimit  = 10 * time.Second
)

// Follower keeps a router's routes what they should be while a distribution lasts.
type Follower struct {
	Router   *Router
	Log      *slog.Logger
	Instance string
	// MarkSpill stores that one of the segments' choices may have messages of them.
	MarkSpill func(ctx context.Context, segments []uint32, choice int) error
	// Rounds counts looks at the map's age.
	Rounds *waits.Counter
}

// Start begins to keep the routes; it goes on until finish is called.
func (f *Follower) Start(all context.Context) (finish func()) {
	ctx, cancel := context.WithCancel(all)
	var g sync.WaitGroup
	g.Go(func() { f.follow(ctx) })
	g.Go(func() { f.markSpills(ctx) })
	return func() {
		cancel()
		g.Wait()
	}
}

// follow keeps the map young enough for puts (P6.5).
func (f *Follower) follow(ctx context.Context) {
	routes, j := f.Router, waits.Jitter(f.Instance)
	var stale logs.Limited
	defer f.Rounds.Begin()()
	for n := uint64(0); ctx.Err() == nil; n++ {
		f.Rounds.Add()
		t := routes.Current()
		if t.Fatal != nil {
			return
		}
		if t.Fresh() {
			stale.IsOver(f.Log.Info, "the shard map can be read again; putting goes on")
		}
		if young := j.Around(refreshAfter, "map", t.Workload.Name, n) - time.Since(t.read); young > 0 {
			waits.Wait(ctx, young)
			continue
		}
		w, err := Refresh(ctx, t.Workload)
		switch {
		case err == nil:
			routes.Update(w)
			continue
		case workload.Lost(err):
			routes.Lost(err)
			return
		case errors.Is(err, workload.ErrRolledBack):
			f.Log.Error("the shard map has gone back", "error", err)
		}
		if !routes.Current().Fresh() && ctx.Err() == nil {
			stale.Say(f.Log.Error,
				"the shard map could not be read for too long; nothing is put until it can be",
				"age", time.Since(t.read).Round(time.Second), "error", err)
		}
		waits.Wait(ctx, j.Around(refreshRetry, "map again", t.Workload.Name, n))
	}
}

// Refresh reads the workload's row again.
func Refresh(ctx context.Context, w *workload.Workload) (*workload.Workload, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	return w.Refresh(ctx)
}

// markSpills has the wanted choices marked, and only then lets them be used (P6.3). As long as that
// fails the tasks of dark queues wait.
func (f *Follower) markSpills(ctx context.Context) {
	var unmarked logs.Limited
	for failures := uint64(0); ; {
		select {
		case <-f.Router.wake:
		case <-ctx.Done():
			return
		}
		for again := true; again; {
			if !waits.Wait(ctx, markGather) {
				return
			}
			marked, err := f.markWanted(ctx)
			if again = err != nil; !again {
				failures = 0
				if marked > 0 {
					f.Log.Info("tasks may go to other queues than their homes", "segments", marked)
				}
				break
			}
			if ctx.Err() == nil {
				unmarked.Say(f.Log.Warn, "the tasks of queues in trouble wait, because it cannot be "+
					"marked that others take them", "error", err)
			}
			waits.Wait(ctx,
				waits.Jitter(f.Instance).Full(markBase, markLimit, "mark", f.Router.Current().Workload.Name,
					failures))
			failures++
		}
	}
}

// markWanted marks what is wanted at this moment.
func (f *Follower) markWanted(ctx context.Context) (marked int, err error) {
	for choice, segments := range f.Router.Current().wanted() {
		if len(segments) == 0 {
			continue
		}
		if err := f.MarkSpill(ctx, segments, choice); err != nil {
			return marked, err
		}
		f.Router.marked(segments, choice)
		marked += len(segments)
	}
	return marked, nil
}
