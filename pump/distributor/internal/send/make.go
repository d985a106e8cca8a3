package send

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// createSlow is for how long a distribution waits for queues to be made before
// it begins. It takes some 50 ms; what takes this long is an account in trouble.
const createSlow = 2 * time.Second

// createTogether is how many queues of one account are made at once.
const createTogether = 8

// MakeQueues makes the queues of the map that this process has not made or
// used yet: nearly always they are there. What is a mistake in the configuration
// shows here, before a run is begun. A right that may just have been given is waited for. An account that does not answer shows too, and must not
// keep the tasks of all the others waiting: its queues are left to be made
// when a put finds them missing (sink.make).
func (r *Router) MakeQueues(ctx context.Context, j backoff.Jitter) error {
	t := r.Current()
	byAccount := map[string][]*Sink{}
	for i, s := range t.Workload.Map.Shards {
		o := t.sinks[i]
		switch {
		case s.State != shardmap.Active || o.made.Load():
		case o.refused != nil:
			return o.refused
		default:
			byAccount[s.Account] = append(byAccount[s.Account], o)
		}
	}
	for name, o := range t.poison {
		if !o.made.Load() {
			byAccount[name] = append(byAccount[name], o)
		}
	}
	soon, cancel := context.WithTimeout(ctx, createSlow)
	defer cancel()
	all, soon := errgroup.WithContext(soon)
	for _, sinks := range byAccount {
		all.Go(func() error {
			g, soon := errgroup.WithContext(soon)
			g.SetLimit(createTogether)
			for _, o := range sinks {
				g.Go(func() error { return o.ensure(soon, j, r.log) })
			}
			return g.Wait()
		})
	}
	err := all.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	var late []string
	for _, sinks := range byAccount {
		for _, o := range sinks {
			if !o.made.Load() {
				late = append(late, o.name)
			}
		}
	}
	if len(late) > 0 {
		slices.Sort(late)
		r.log.Warn("queues could not be made yet; the others are distributed to meanwhile", "queues", strings.Join(late, " "))
	}
	return nil
}

// ensure makes a queue until ctx ends; that is no error.
func (s *Sink) ensure(ctx context.Context, j backoff.Jitter, log *slog.Logger) error {
	for attempt := uint64(0); ctx.Err() == nil; attempt++ {
		err := s.make(ctx, ctx.Done(), log)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if MayBeGiven(err) {
			s.alarm(log, err)
		} else if err := s.creation.Failed(s.name, err, time.Now()); err != nil {
			return err
		}
		queues.CreatePause(ctx, j, s.name, attempt)
	}
	return nil
}

// MayBeGiven tells a right that is missing, and may just have been given, from a key or
// signature that is wrong.
func MayBeGiven(err error) bool {
	e, ok := errors.AsType[*storage.Error](err)
	return ok && e.Code == storage.Auth && e.Service != "AuthenticationFailed"
}
