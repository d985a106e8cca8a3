package worlds

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// world is a world of the simulator and what its tests do in it.
type world struct{ *testworld.World }

// inWorld runs a test in a world. Names of accounts are accounta, accountb, ...
func inWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{}, accounts, queues, change, test)
}

// inSharedWorldOf is inWorld with a workload whose segments have no owners.
func inSharedWorldOf(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{Shared: true}, accounts, queues, change, test)
}

// inOnceWorld is inWorld with delivery mode once.
func inOnceWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{Delivery: string(pump.Once)}, accounts, queues, change, test)
}

// inWorldOf is inWorld with what spec says of the workload besides its queues.
func inWorldOf(t *testing.T, spec workload.Spec, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	testworld.In(t, spec, accounts, queues, change, func(t *testing.T, w *testworld.World) { test(t, &world{w}) })
}

// processor makes the processor of instance "p".
func (w *world) processor(h pump.Handler, o processor.Options) *processor.Processor {
	w.T.Helper()
	return w.processorOf("p", h, o)
}

func (w *world) processorOf(instance string, h pump.Handler, o processor.Options) *processor.Processor {
	w.T.Helper()
	p, err := processor.New(w.Config(instance, w.Cfg.Accounts[0].Queues), h, o)
	must(w.T, err)
	return p
}

// drain runs a processor until it is idle.
func (w *world) drain(h pump.Handler, o processor.Options) processor.Summary {
	w.T.Helper()
	if o.UntilIdle == 0 {
		o.UntilIdle = 2 * time.Minute
	}
	s, err := w.processor(h, o).Run(w.T.Context())
	must(w.T, err)
	return s
}

// started is a processor at work.
type started = testworld.Started[*processor.Processor, processor.Summary]

func (w *world) start(p *processor.Processor) *started { return testworld.Start(w.T, p) }

// stopAll stops processors together, and waits for them.
func stopAll(all []*started) {
	for _, p := range all {
		p.Stop()
	}
	for _, p := range all {
		<-p.Done
	}
}

// endAll is stopAll of processors that end without an error.
func endAll(all []*started) {
	stopAll(all)
	endEach(all)
}

// endEach ends one processor after the other.
func endEach(all []*started) {
	for _, p := range all {
		p.End()
	}
}
