package distributor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/queues"
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

// keepWays keeps the routes of a distribution what they should be, until
// the returned function is called.
func (r *distribution) keepWays(all context.Context) (finish func()) {
	ctx, cancel := context.WithCancel(all)
	var g sync.WaitGroup
	g.Go(func() { r.follow(ctx) })
	g.Go(func() { r.markSpills(ctx) })
	return func() {
		cancel()
		g.Wait()
	}
}

// follow keeps the map young enough for puts (P6.5).
func (r *distribution) follow(ctx context.Context) {
	ways, j := r.d.router, backoff.Jitter(r.d.cfg.Instance)
	var alarmed time.Time
	for n := uint64(0); ctx.Err() == nil; n++ {
		t := ways.Current()
		if t.fatal != nil {
			return
		}
		if t.fresh() && !alarmed.IsZero() {
			alarmed = time.Time{}
			r.log.Info("the shard map can be read again; putting goes on")
		}
		if young := j.Around(refreshAfter, "map", t.workload.Name, n) - time.Since(t.read); young > 0 {
			backoff.Wait(ctx, young)
			continue
		}
		w, err := refresh(ctx, t.workload)
		switch {
		case err == nil:
			ways.update(w)
			continue
		case workload.Lost(err):
			ways.lost(err)
			return
		case errors.Is(err, workload.ErrRolledBack):
			r.log.Error("the shard map has gone back", "error", err)
		}
		if now := time.Now(); !ways.Current().fresh() && now.Sub(alarmed) >= queues.AlarmEvery && ctx.Err() == nil {
			alarmed = now
			r.log.Error("the shard map could not be read for too long; nothing is put until it can be", "age", now.Sub(t.read).Round(time.Second), "error", err)
		}
		backoff.Wait(ctx, j.Around(refreshRetry, "map again", t.workload.Name, n))
	}
}

func refresh(ctx context.Context, w *workload.Workload) (*workload.Workload, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	return w.Refresh(ctx)
}

// markSpills has what is wanted marked, and only then lets it be used (P6.3). As
// long as that fails the tasks of dark queues wait.
func (r *distribution) markSpills(ctx context.Context) {
	ways := r.d.router
	var alarmed time.Time
	for failures := uint64(0); ; {
		select {
		case <-ways.wake:
		case <-ctx.Done():
			return
		}
		for again := true; again; {
			if !backoff.Wait(ctx, markGather) {
				return
			}
			marked, err := r.markWanted(ctx)
			if again = err != nil; !again {
				failures = 0
				if marked > 0 {
					r.log.Info("tasks may go to other queues than their homes", "segments", marked)
				}
				break
			}
			if now := time.Now(); now.Sub(alarmed) >= queues.AlarmEvery && ctx.Err() == nil {
				alarmed = now
				r.log.Warn("the tasks of queues in trouble wait, because it cannot be marked that others take them", "error", err)
			}
			backoff.Wait(ctx, backoff.Jitter(r.d.cfg.Instance).Full(markBase, markLimit, "mark", r.d.cfg.Workload, failures))
			failures++
		}
	}
}

// markWanted marks what is wanted at this moment.
func (r *distribution) markWanted(ctx context.Context) (marked int, err error) {
	for choice, segments := range r.d.router.Current().wanted() {
		if len(segments) == 0 {
			continue
		}
		s := r.d.running.Load()
		if s == nil {
			return marked, member.ErrOutside
		}
		m := s.member.Load()
		if m == nil {
			return marked, member.ErrOutside // a guest whose queues are in trouble joins
		}
		if err := m.MarkSpill(ctx, segments, choice); err != nil {
			return marked, err
		}
		r.d.router.marked(segments, choice)
		marked += len(segments)
	}
	return marked, nil
}
