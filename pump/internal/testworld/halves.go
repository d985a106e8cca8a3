package testworld

import (
	"context"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// What most worlds are of: any workload, one of delivery mode once, and one whose segments have no
// owners.
var (
	Plain  = workload.Spec{}
	Once   = workload.Spec{Delivery: string(pump.Once)}
	Shared = workload.Spec{Shared: true}
)

// Made makes a half of the pump, by its New, for an instance of the world: of is its handler or its
// source.
func Made[P, H, O any](
	w *World, n func(pump.Config, H, O) (P, error), instance string, of any, o O,
) P {
	var h H
	if of != nil {
		h = of.(H)
	}
	p, err := n(w.Config(instance, w.Cfg.Accounts[0].Queues), h, o)
	proof.Must(w.T, err)
	return p
}

// Begun is a half at work: what Made makes is started.
func Begun[P runner[S], S, H, O any](
	w *World, n func(pump.Config, H, O) (P, error), instance string, of any, o O,
) *Started[P, S] {
	return Start(w.T, Made(w, n, instance, of, o))
}

// Distributed is a run of so many tasks, by a distributor's New, sealed in a world of mode once,
// with nothing done yet.
func Distributed[P runner[S], S, O any](
	w *World, n func(pump.Config, source.Source, O) (P, error), tasks int,
) workload.Run {
	var o O
	Ran(w, n, "d", &ListSource{Print: "a", N: tasks}, o)
	return w.RunRow(w.Newest())
}

// Prepared is the start of a distributor, by its New.
func Prepared[P interface{ Prepare(context.Context) error }, O any](
	ctx context.Context, n func(pump.Config, source.Source, O) (P, error), c pump.Config,
) error {
	var o O
	d, err := n(c, &ListSource{Print: "list", N: 10}, o)
	if err == nil {
		err = d.Prepare(ctx)
	}
	return err
}

// Ran is what a half says that has run until it ended by itself.
func Ran[P runner[S], S, H, O any](
	w *World, n func(pump.Config, H, O) (P, error), instance string, of any, o O,
) S {
	s, err := Made(w, n, instance, of, o).Run(w.T.Context())
	proof.Must(w.T, err)
	return s
}
