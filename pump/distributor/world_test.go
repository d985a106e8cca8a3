package distributor

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// must ends a test with an error.
var must = proof.Must

// world is a world of the simulator and what its tests do in it.
type world struct{ *testworld.World }

func inWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{}, accounts, queues, change, test)
}

func inWorldOf(t *testing.T, spec workload.Spec, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	testworld.In(t, spec, accounts, queues, change, func(t *testing.T, w *testworld.World) { test(t, &world{w}) })
}

func (w *world) distributor(instance string, s source.Source, o Options) *Distributor {
	w.T.Helper()
	d, err := New(w.Config(instance, w.Cfg.Accounts[0].Queues), s, o)
	must(w.T, err)
	return d
}

// working is a distributor at work.
type working = testworld.Started[*Distributor, Summary]

func (w *world) startDistributor(d *Distributor) *working { return testworld.Start(w.T, d) }
