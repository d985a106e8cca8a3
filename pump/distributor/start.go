package distributor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/send"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Prepare reads the workload's row, making it if need be, and makes missing queues of its map. It
// runs before every distribution, because accounts may have come and gone.
func (d *Distributor) Prepare(ctx context.Context) error {
	w, err := d.waitForWorkload(ctx)
	if workload.Lost(err) && d.router.Current() != nil {
		d.router.Lost(err)
		return err
	}
	if err != nil {
		return fmt.Errorf("workload %s in account %s: %w", d.cfg.Workload, d.cfg.Control, err)
	}
	var alone errgroup.Group // beside the making of queues, which waits for dark accounts as long
	if !d.alone {
		alone.Go(func() error { return setup.Unrivalled(ctx, &d.cfg, w) })
		defer func() { _ = alone.Wait() }()
	}
	d.stage.ready()
	if d.cron != nil {
		d.cron.Kept = d.times().Retention
	}
	if len(w.Extra) > 0 && !d.saidExtra {
		d.saidExtra = true
		setup.WarnExtra(d.cfg.Log, w.Extra)
	}
	d.router.Update(w)
	t := d.router.Current()
	if t.Fatal != nil {
		return t.Fatal
	}
	if s := d.running.Load(); s != nil {
		s.join()
	}
	if err := t.Unreachable(); err != nil && !d.alone { // later it is gone round
		return err
	}
	late, err := d.router.MakeQueues(ctx, waits.Jitter(d.cfg.Instance), d.stake())
	if s := d.running.Load(); s != nil && late {
		s.makeLate()
	}
	if rival := alone.Wait(); rival != nil {
		return rival
	}
	d.alone = true
	return err
}

// prepare calls Prepare until it succeeds. A distributor that stands by for others must not end
// because the control account is dark for longer than a request is tried.
func (d *Distributor) prepare(ctx context.Context) error {
	began := time.Now()
	var failing logs.Limited
	for attempt := uint64(0); ; attempt++ {
		err := d.Prepare(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		next := failure.Decide(failure.ControlAccount, err, d.stake())
		if !d.opts.repeats() && (next.Do == failure.End || time.Since(began) >= next.Patience) ||
			next.Do == failure.End && !setup.Unsure(err) {
			return err
		}
		failing.GoesOn(d.cfg.Log.Warn, "the distributor could not begin; trying again",
			"error", err, "fix", next.Fix)
		waits.Wait(ctx, waits.Jitter(d.cfg.Instance).Around(retryPause, "prepare",
			d.cfg.Workload, attempt))
	}
}

// stake is what is at stake until this process has put anything.
func (d *Distributor) stake() failure.Stake {
	if !d.opts.repeats() {
		return failure.Command
	}
	return failure.Service
}

// waitForWorkload calls workload, and says meanwhile what it waits for. A distributor that sends
// once does not wait for a missing account: no other sends in its place.
func (d *Distributor) waitForWorkload(ctx context.Context) (*workload.Workload, error) {
	waits := setup.NewWaits(d.cfg.Log, "waiting for the control account to answer", "account")
	defer waits.Stop()
	ctx, gaveUp := waits.GiveUp(ctx, !d.opts.repeats())
	begin := func() {
		waits.Begin(d.cfg.Control, func() error { return d.fleet.Trouble(d.cfg.Control) })
	}
	begin()
	w, err := d.workload(ctx, func() (asked func()) {
		waits.End(d.cfg.Control) // it has answered; each later request says whom it asks
		return begin
	})
	if hopeless := gaveUp(); hopeless != nil && err != nil {
		return nil, hopeless
	}
	return w, err
}

// workload reads the workload's row. The first time it makes the row if no account has it; asking
// is that of [setup.Maker]. Later a missing row was deleted, and workload does not undo the
// deletion.
func (d *Distributor) workload(
	ctx context.Context, asking func() (asked func()),
) (*workload.Workload, error) {
	t := d.router.Current()
	switch {
	case t == nil:
		spec := setup.SpecOf(&d.cfg)
		spec.Maker = setup.Maker(&d.cfg, asking)
		return workload.Ensure(ctx, d.fleet.Control, spec)
	case t.Fatal != nil:
		return nil, t.Fatal
	}
	w, err := workload.Load(ctx, d.fleet.Control, d.cfg.Workload)
	switch {
	case errors.Is(err, pump.ErrNoWorkload):
		return nil, t.Workload.Deleted()
	case err != nil:
		return nil, err
	}
	if errors.Is(t.Workload.Replaced(w), workload.ErrRolledBack) {
		if w, err = d.putBack(ctx, t.Workload); err != nil {
			return nil, err
		}
	}
	spec := setup.SpecOf(&d.cfg)
	w.Extra = spec.Extra(w)
	return w, errors.Join(t.Workload.Replaced(w), spec.Check(w))
}

// putBack has the map of a workload put back whose row came back with an older one.
func (d *Distributor) putBack(
	ctx context.Context, before *workload.Workload,
) (w *workload.Workload, err error) {
	for range 2 { // the first look puts it back
		if w, err = send.Refresh(ctx, before); !errors.Is(err, workload.ErrRolledBack) {
			return w, err
		}
		d.cfg.Log.Error("the shard map has gone back", "error", err)
	}
	return nil, err
}
