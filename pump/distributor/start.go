package distributor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/locate"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Prepare reads the workload's row, making it if need be, and sees to the
// queues of its map. It runs before every distribution, because accounts may
// have come and gone.
func (d *Distributor) Prepare(ctx context.Context) error {
	// Said while it lasts: the error comes only when a minute of trying is over.
	slow := time.AfterFunc(locate.ControlSlow, func() {
		d.cfg.Log.Warn("waiting for the control account to answer", "account", d.cfg.Control)
	})
	w, err := d.workload(ctx, func() (asked func()) {
		slow.Stop() // it has answered; who is asked now is said by who asks
		return func() { slow.Reset(locate.ControlSlow) }
	})
	slow.Stop()
	if workload.Lost(err) && d.router.Current() != nil {
		d.router.lost(err)
		return err
	}
	if err != nil {
		return fmt.Errorf("workload %s in account %s: %w", d.cfg.Workload, d.cfg.Control, err)
	}
	var alone errgroup.Group // beside the making of queues, which waits for dark accounts as long
	if !d.alone {
		alone.Go(func() error { return locate.Unrivalled(ctx, &d.cfg, w) })
		defer func() { _ = alone.Wait() }()
	}
	d.stage.ready()
	if len(w.Extra) > 0 && !d.saidExtra {
		d.saidExtra = true
		locate.WarnExtra(d.cfg.Log, w.Extra)
	}
	d.router.update(w)
	t := d.router.Current()
	if t.fatal != nil {
		return t.fatal
	}
	if s := d.running.Load(); s != nil {
		s.join()
	}
	err = d.ensureQueues(ctx, t)
	if rival := alone.Wait(); rival != nil {
		return rival
	}
	d.alone = true
	return err
}

// workload reads the workload's row. The first time it is made if it is not there and nowhere
// else; asking is of Config.maker. Later a row that is gone was deleted, and its deletion is not undone.
func (d *Distributor) workload(ctx context.Context, asking func() (asked func())) (*workload.Workload, error) {
	t := d.router.Current()
	switch {
	case t == nil:
		spec := locate.SpecOf(&d.cfg)
		spec.Maker = locate.Maker(&d.cfg, asking)
		return workload.Ensure(ctx, d.fleet.Control, spec)
	case t.fatal != nil:
		return nil, t.fatal
	}
	w, err := workload.Load(ctx, d.fleet.Control, d.cfg.Workload)
	switch {
	case errors.Is(err, workload.ErrNoWorkload):
		return nil, t.workload.Deleted()
	case err != nil:
		return nil, err
	}
	if errors.Is(t.workload.Replaced(w), workload.ErrRolledBack) {
		if w, err = d.putBack(ctx, t.workload); err != nil {
			return nil, err
		}
	}
	spec := locate.SpecOf(&d.cfg)
	w.Extra = spec.Extra(w)
	return w, errors.Join(t.workload.Replaced(w), spec.Check(w))
}

// putBack has the map of a workload put back whose row came back with an older one.
func (d *Distributor) putBack(ctx context.Context, before *workload.Workload) (w *workload.Workload, err error) {
	for range 2 { // the first look puts it back
		if w, err = refresh(ctx, before); !errors.Is(err, workload.ErrRolledBack) {
			return w, err
		}
		d.cfg.Log.Error("the shard map has gone back", "error", err)
	}
	return nil, err
}

// createSlow is for how long a distribution waits for queues to be made before
// it begins. It takes some 50 ms; what takes this long is an account in trouble.
const createSlow = 2 * time.Second

// createTogether is how many queues of one account are made at once.
const createTogether = 8

// ensureQueues makes the queues of the map that this process has not made or
// used yet: nearly always they are there. What is a mistake in the configuration
// shows here, before a run is begun. A right that may just have been given is waited for. An account that does not answer shows too, and must not
// keep the tasks of all the others waiting: its queues are left to be made
// when a put finds them missing (sink.make).
func (d *Distributor) ensureQueues(ctx context.Context, t *route) error {
	byAccount := map[string][]*sink{}
	for i, s := range t.workload.Map.Shards {
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
				g.Go(func() error { return d.ensureQueue(soon, o) })
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
		d.cfg.Log.Warn("queues could not be made yet; the others are distributed to meanwhile", "queues", strings.Join(late, " "))
	}
	return nil
}

// ensureQueue makes a queue until ctx ends; that is no error.
func (d *Distributor) ensureQueue(ctx context.Context, o *sink) error {
	for attempt := uint64(0); ctx.Err() == nil; attempt++ {
		err := o.make(ctx, ctx.Done(), d.cfg.Log)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if mayBeGiven(err) {
			o.alarm(d.cfg.Log, err)
		} else if err := o.creation.Failed(o.name, err, time.Now()); err != nil {
			return err
		}
		queues.CreatePause(ctx, backoff.Jitter(d.cfg.Instance), o.name, attempt)
	}
	return nil
}

// mayBeGiven tells a right that is missing, and may just have been given, from a key or
// signature that is wrong.
func mayBeGiven(err error) bool {
	e, ok := errors.AsType[*storage.Error](err)
	return ok && e.Code == storage.Auth && e.Service != "AuthenticationFailed"
}
