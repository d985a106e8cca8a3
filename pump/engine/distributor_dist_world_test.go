package engine

import (
	"testing"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// distWorld is a world of the simulator and what its tests do in it.
type distWorld struct{ *baseWorld }

func distInWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *distWorld)) {
	t.Helper()
	distInWorldOf(t, workload.Spec{}, accounts, queues, change, test)
}

func distInWorldOf(t *testing.T, spec workload.Spec, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *distWorld)) {
	t.Helper()
	baseInWorldOf(t, spec, accounts, queues, change, func(t *testing.T, w *baseWorld) { test(t, &distWorld{w}) })
}

func (w *distWorld) distributor(instance string, s source.Source, o DistributorOptions) *Distributor {
	w.t.Helper()
	d, err := NewDistributor(w.config(instance, w.cfg.Accounts[0].Queues), s, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// distWorking is a distributor at work.
type distWorking = baseStarted[*Distributor, Summary]

func (w *distWorld) startDistributor(d *Distributor) *distWorking { return baseStart(w.t, d) }
