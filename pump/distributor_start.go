package pump

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/queuepump/queuepump/pump/control"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// controlSlow is after how long an operator is told that the start is waiting.
const controlSlow = 3 * time.Second

// prepare reads the workload's row, making it if need be, and gets at the
// queues of its map. It runs before every distribution, because accounts may
// have come and gone; queues are made when the map is new to this process.
func (d *Distributor) prepare(ctx context.Context) error {
	spec := control.WorkloadSpec{
		Name: d.cfg.Workload, Segments: max(d.cfg.Segments, 0), Shared: d.cfg.Segments == Shared,
		Shards: d.cfg.shards(), Delivery: string(d.cfg.Delivery),
	}
	// Said while it lasts: the error comes only when a minute of trying is over.
	slow := time.AfterFunc(controlSlow, func() {
		d.cfg.Log.Warn("waiting for the control account to answer", "account", d.cfg.Control)
	})
	w, err := control.EnsureWorkload(ctx, d.fleet.control, spec)
	slow.Stop()
	if err != nil {
		return fmt.Errorf("workload %s in account %s: %w", d.cfg.Workload, d.cfg.Control, err)
	}
	d.stage.ready()
	if d.workload != nil && d.workload.Map.Version == w.Map.Version {
		d.workload = w
		return nil
	}
	size := outboxSize(len(w.Map.Shards))
	outboxes := make([]*outbox, len(w.Map.Shards))
	var shards []*shard
	for i, s := range w.Map.Shards {
		sh, err := d.fleet.shard(s.Account, s.Queue)
		if err != nil {
			return err
		}
		outboxes[i] = newOutbox(sh, size)
		if s.State == shardmap.Active {
			shards = append(shards, sh)
		}
	}
	if err := d.fleet.createQueues(ctx, shards); err != nil {
		return err
	}
	d.workload, d.outboxes, d.poison = w, outboxes, map[string]*outbox{}
	for _, name := range d.fleet.names {
		d.poison[name] = newOutbox(d.fleet.accounts[name].poison, poisonBox)
	}
	return nil
}

// createPatience is how long a queue may take to come into being: the name of a
// deleted one stays taken for at least 30 s, and an account's hiccup is over by then.
const createPatience = 90 * time.Second

// createQueue makes a queue, waiting while an older one of its name is still
// being deleted or the account does not answer.
func createQueue(ctx context.Context, s *shard, j jitter, log *slog.Logger) error {
	patience, cancel := context.WithTimeout(ctx, createPatience)
	defer cancel()
	var last error
	for attempt := uint64(0); ; attempt++ {
		err := s.do(patience, classPut, 1, opCreate, s.queue.Create)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case patience.Err() != nil:
			if last == nil {
				last = err
			}
			return fmt.Errorf("queue %s is not ready after %v: %w", s, createPatience, last)
		case mayNotCreate(err):
			// A SAS that may only add messages is a fine thing to give to a
			// client. If the queue is not there, its first put will say so.
			log.Warn("the credential does not allow to create queues; assuming that it exists", "queue", s.String())
			return nil
		}
		switch storage.CodeOf(err) {
		case storage.Missing, storage.MaybeDone, storage.Throttled:
		default:
			return fmt.Errorf("queue %s cannot be created: %w", s, err)
		}
		last = err
		if attempt == 0 {
			log.Warn("waiting for a queue to be created", "queue", s.String(), "error", err)
		}
		waitFor(patience, j.full(500*time.Millisecond, 5*time.Second, "create", s.String(), attempt))
	}
}

// mayNotCreate tells a credential that is good for other things from a wrong one.
func mayNotCreate(err error) bool {
	e, ok := errors.AsType[*storage.Error](err)
	if !ok || e.Code != storage.Auth {
		return false
	}
	switch e.Service {
	case "AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch":
		return true
	}
	return false
}
