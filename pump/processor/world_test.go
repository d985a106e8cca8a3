package processor

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// must ends a test with an error.
var must = proof.Must

// ready does what Run does before it polls.
func ready(t *testing.T, r *run) {
	t.Helper()
	must(t, r.connect(t.Context()))
	must(t, r.join(t.Context()))
	r.launch()
	r.Member.Load().Admit()
}

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

func inSharedWorldOf(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{Shared: true}, accounts, queues, change, test)
}

func inOnceWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{Delivery: string(pump.Once)}, accounts, queues, change, test)
}

// processor makes the processor of instance "p".
func (w *world) processor(h pump.Handler, o Options) *Processor {
	w.T.Helper()
	return w.processorOf("p", h, o)
}

func (w *world) processorOf(instance string, h pump.Handler, o Options) *Processor {
	w.T.Helper()
	p, err := New(w.Config(instance, w.Cfg.Accounts[0].Queues), h, o)
	must(w.T, err)
	return p
}

// started is a processor at work.
type started = testworld.Started[*Processor, Summary]

func (w *world) start(p *Processor) *started { return testworld.Start(w.T, p) }

// join starts a processor of the cluster.
func (w *world) join(instance string, h pump.Handler, o Options) *started {
	return w.start(w.processorOf(instance, h, o))
}
