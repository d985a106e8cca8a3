package engine

import (
	"testing"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// ready does what Run does before it polls.
func ready(t *testing.T, r *processing) {
	t.Helper()
	if err := r.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.launch()
	r.member.Load().Admit()
}

// procWorld is a world of the simulator and what its tests do in it.
type procWorld struct{ *baseWorld }

func procInWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *procWorld)) {
	t.Helper()
	procInWorldOf(t, workload.Spec{}, accounts, queues, change, test)
}

func procInWorldOf(t *testing.T, spec workload.Spec, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *procWorld)) {
	t.Helper()
	baseInWorldOf(t, spec, accounts, queues, change, func(t *testing.T, w *baseWorld) { test(t, &procWorld{w}) })
}

func procInSharedWorldOf(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *procWorld)) {
	t.Helper()
	procInWorldOf(t, workload.Spec{Shared: true}, accounts, queues, change, test)
}

func procInOnceWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *procWorld)) {
	t.Helper()
	procInWorldOf(t, workload.Spec{Delivery: workload.DeliverOnce}, accounts, queues, change, test)
}

// processor makes the processor of instance "p".
func (w *procWorld) processor(h pump.Handler, o ProcessorOptions) *Processor {
	w.t.Helper()
	return w.processorOf("p", h, o)
}

func (w *procWorld) processorOf(instance string, h pump.Handler, o ProcessorOptions) *Processor {
	w.t.Helper()
	p, err := NewProcessor(w.config(instance, w.cfg.Accounts[0].Queues), h, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// procStarted is a processor at work.
type procStarted = baseStarted[*Processor, ProcessorSummary]

func (w *procWorld) start(p *Processor) *procStarted { return baseStart(w.t, p) }

// join starts a processor of the cluster.
func (w *procWorld) join(instance string, h pump.Handler, o ProcessorOptions) *procStarted {
	return w.start(w.processorOf(instance, h, o))
}
