package gates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/storage"
)

// Table is the table of the workload's rows, for programs that use package coordination by itself:
// id ranges, gates, claims, tallies. It makes no request.
func Table(cfg pump.Config) (storage.Table, error) {
	o, err := setup.Reach(cfg)
	if err != nil {
		return nil, err
	}
	return o.Queues.Control, nil
}

// Change is what a release or hold of a gate came to.
type Change struct {
	Gate string `json:"gate"`
	Open bool   `json:"open"`
	// Waiting is how many live processes say that they wait at the gate, Nudged how many
	// of them took the hint to look at once. The others look by themselves within 2.5 s.
	Waiting int `json:"waiting"`
	Nudged  int `json:"nudged"`
}

// Open opens a gate of the workload, for processes that wait at it now and that come later, and
// tells those that wait. It is not an error if they cannot be told: the gate's row is the truth,
// and they read it.
func Open(ctx context.Context, cfg pump.Config, name, by string) (Change, error) {
	return changeGate(ctx, cfg, name, true, by)
}

// Close closes a gate for processes that start from now on.
func Close(ctx context.Context, cfg pump.Config, name, by string) (Change, error) {
	return changeGate(ctx, cfg, name, false, by)
}

func changeGate(
	ctx context.Context, cfg pump.Config, name string, opens bool, by string,
) (Change, error) {
	// Gates need no workload, but a gate of a misspelt workload is useless.
	o, err := setup.Find(ctx, cfg)
	if err != nil {
		return Change{}, err
	}
	gate := coordination.NewGate(o.Queues.Control, cfg.Workload, name)
	change, what := gate.Hold, "gate close "
	if opens {
		change, what = gate.Release, "gate open "
	}
	c := Change{Gate: name, Open: opens}
	// Who waits is told before the log's entry is ended: no request comes between the row and them.
	err = o.Logged(ctx, by, what+name, func() error {
		err := change(ctx, by)
		if err == nil {
			c.tell(ctx, o)
		}
		return err
	})
	if err != nil {
		return Change{}, err
	}
	return c, nil
}

// tell counts who waits at the gate and, when it is open, tells them to look at once.
func (c *Change) tell(ctx context.Context, o *setup.Session) {
	v, err := cluster.LoadView(ctx, o.Queues.Control, o.Cfg.Workload)
	if err != nil {
		o.Cfg.Log.Warn("who waits at the gate could not be read; they look by themselves", "gate", c.Gate,
			"error", err)
		return
	}
	var nudges []pump.Nudge
	for i := range v.Members {
		if m := &v.Members[i]; m.Waiting == c.Gate {
			nudges = append(nudges, nudging.To(m, pump.Nudge{Gate: c.Gate}))
		}
	}
	c.Waiting = len(nudges)
	if c.Open {
		c.Nudged = nudging.Send(ctx, &o.Cfg.Config, nudges)
	}
}

// ErrWaiting is what Remove gives while processes wait at the gate.
var ErrWaiting = errors.New("processes wait at it")

// Remove takes away a gate that is not needed any more. While processes wait at the gate, Remove
// refuses with [ErrWaiting]: no list of opened and closed gates would show where they wait. A
// process that comes to it later, or between the look and the removal, finds it closed, as any gate
// that was never opened. Removed is false when there was none.
func Remove(ctx context.Context, cfg pump.Config, name string) (removed bool, err error) {
	if err := coordination.CheckGate(name); err != nil {
		return false, err
	}
	list, err := List(ctx, cfg)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(list, func(g Status) bool { return g.Name == name })
	if i < 0 {
		return false, nil
	}
	if n := list[i].Waiting; n > 0 {
		return false, fmt.Errorf("gate %q: %w: %d", name, ErrWaiting, n)
	}
	o, err := setup.Reach(cfg)
	if err != nil {
		return false, err
	}
	return true, o.Logged(ctx, setup.Operator(), "gate remove "+name, func() error {
		return coordination.NewGate(o.Queues.Control, cfg.Workload, name).Remove(ctx)
	})
}

// List gives the workload's gates, by name, including gates that no operator has opened or closed
// and processes wait at.
func List(ctx context.Context, cfg pump.Config) ([]Status, error) {
	o, err := setup.Reach(cfg)
	if err != nil {
		return nil, err
	}
	v, err := cluster.LoadView(ctx, o.Queues.Control, cfg.Workload)
	if err != nil {
		return nil, o.Advise(ctx, err)
	}
	states, err := coordination.Gates(ctx, o.Queues.Control, cfg.Workload)
	if err != nil {
		return nil, err
	}
	gates := []Status{}
	for _, g := range setup.Gates(states, v.Members) {
		gates = append(gates, Status(g))
	}
	return gates, nil
}

// Status is one gate.
type Status struct {
	Name  string     `json:"name"`
	Open  bool       `json:"open"`
	By    string     `json:"by"`
	Since *time.Time `json:"since"`
	// instances that say that they wait at it; in a Status without the silent ones
	Waiting int `json:"waiting"`
}
