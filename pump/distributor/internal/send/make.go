package send

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/shardmap"
)

// createSlow is for how long a distribution waits for queues to be made before it begins. Making
// takes some 50 ms, unless an account is in trouble.
const createSlow = 2 * time.Second

// MakeQueues makes the queues of the map that this process has not made or used yet: nearly
// always they are there. A mistake in the configuration shows here, before a run is begun, and so
// does a key that all accounts refuse. An account that does not answer, refuses or is disabled
// shows too, and must not keep the tasks of all the others waiting: its queues are late, and are
// left to MakeLate and to the first put that finds them missing (sink.make).
func (r *Router) MakeQueues(
	ctx context.Context, j waits.Jitter, at failure.Stake,
) (late bool, err error) {
	todo := r.unmade()
	soon, cancel := context.WithTimeout(ctx, createSlow)
	defer cancel()
	err = r.make(soon, j, todo, true)
	if err == nil {
		err = r.hopeless(at)
	}
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		return false, err
	}
	var names []string
	for _, sinks := range todo {
		for _, o := range sinks {
			if !o.made.Load() {
				names = append(names, o.name)
			}
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		r.log.Warn("queues could not be made yet; the others are distributed to meanwhile",
			"queues", strings.Join(names, " "))
	}
	return len(names) > 0, nil
}

// MakeLate makes the queues that were late, until ctx ends. The run at hand may have no message for
// them, but a change of accounts can make each the home of messages that are somewhere else, and
// processors make none (window 33).
func (r *Router) MakeLate(ctx context.Context, j waits.Jitter) {
	for ctx.Err() == nil {
		todo := r.unmade()
		if len(todo) == 0 {
			r.log.Info("every queue is made")
			return
		}
		soon, cancel := context.WithTimeout(ctx, lateRound) // the map may have changed by then
		err := r.make(soon, j, todo, false)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.log.Error("a queue could not be made; the next distribution tries again", "error", err)
			return
		}
	}
}

// lateRound is how long the queues of one map are made before the next look at the map.
const lateRound = time.Minute

// unmade are the queues of the map that this process has not made or used, by account.
func (r *Router) unmade() map[string][]*Sink {
	t := r.Current()
	byAccount := map[string][]*Sink{}
	for i, s := range t.Workload.Map.Shards {
		o := t.sinks[i]
		if s.State == shardmap.Active && !o.made.Load() && o.refused == nil {
			byAccount[s.Account] = append(byAccount[s.Account], o)
		}
	}
	for name, o := range t.poison {
		if !o.made.Load() {
			byAccount[name] = append(byAccount[name], o)
		}
	}
	return byAccount
}

// make makes queues of several accounts side by side; the end of ctx is not an error. Hasty: it
// does not wait for queues that an account refuses to make.
func (r *Router) make(
	ctx context.Context, j waits.Jitter, byAccount map[string][]*Sink, hasty bool,
) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, sinks := range byAccount {
		all.Go(func() error {
			return queues.Each(ctx, sinks, func(ctx context.Context, _ int, s *Sink) error {
				return r.ensure(ctx, j, s, hasty)
			})
		})
	}
	return all.Wait()
}

// ensure tries to make a queue until ctx ends, which is not an error.
func (r *Router) ensure(ctx context.Context, j waits.Jitter, s *Sink, hasty bool) error {
	for attempt := uint64(0); ctx.Err() == nil; attempt++ {
		err := s.make(ctx, ctx.Done(), r.log)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		d := failure.Decide(failure.Queue, err, failure.Work)
		s.refuses(err, d.Kind, time.Now())
		switch d.Kind {
		case failure.Refuses, failure.NoRight, failure.Disabled:
			if s.observe((*health).turnedDown) {
				r.turned()
			}
			s.alarm(r.said.Sparing(r.log.Warn), err, d)
			if hasty {
				return nil
			}
		}
		if d.Do == failure.End {
			return fmt.Errorf("queue %s cannot be created: %w", s.name, err)
		}
		queues.CreatePause(ctx, j, s.name, attempt)
	}
	return nil
}
