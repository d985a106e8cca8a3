package distributor

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// stopLine is what waits in a full sink (send.lineFor).
const stopLine = 8 * time.Second

// slowLimit is what a queue takes in these tests, and all that a process asks of it.
const slowLimit = 100

func slowWorld(t *testing.T, queues int, test func(t *testing.T, w *testworld.World)) {
	t.Helper()
	testworld.In(t, testworld.Plain, 1, queues, func(c *azsim.Config) { c.Limits = azsim.Limits{Queue: slowLimit} }, test)
}

func slowDistributor(w *testworld.World, s source.Source, o Options) *Distributor {
	w.T.Helper()
	c := w.Config("d", w.Cfg.Accounts[0].Queues)
	c.Budget.Queue = slowLimit
	d, err := New(c, s, o)
	proof.Must(w.T, err)
	return d
}

// A configuration may leave queues out of a workload that has many: what is on its way follows the
// workload's map, and so does the memory that the collector is to leave to it.
func TestTheMemoryGoalFollowsTheWorkloadsMap(t *testing.T) {
	testworld.In(t, workload.Spec{Segments: 1024}, 8, 100, nil, func(t *testing.T, w *testworld.World) {
		d, err := New(w.Config("d", 0), source.Lines("-"), Options{})
		proof.Must(t, err)
		const most = 144<<20 + 800*96<<10
		proof.Same(t, d.Memory(), 208<<20, "bytes for the 64 queues of the configuration")
		wl, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
		proof.Must(t, err)
		d.router.Update(wl)
		proof.Same(t, d.Memory(), most, "bytes for the 800 queues of the workload")
	})
}

// Requests to a queue that answers nothing have short deadlines, until it answers one.
func TestAQueueThatAnswersNothingIsNotWaitedForAsLong(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		f := queues.Open(&w.Cfg)
		s, err := f.Queue("accounta", "work-00")
		proof.Must(t, err)
		takes := func() time.Duration {
			began := time.Now()
			_ = s.Put(context.Background(), []byte("text"), 0)
			return time.Since(began)
		}
		w.Sim.Hang("accounta", true)
		for range queues.SilentAfter {
			proof.Same(t, takes(), waits.RequestTimeout, "given up after")
		}
		proof.Same(t, takes(), queues.TroubledTimeout, "given up after")
		w.Sim.Hang("accounta", false)
		takes()
		w.Sim.Hang("accounta", true)
		proof.Same(t, takes(), waits.RequestTimeout,
			"given up after …, though the one before was answered")
	})
}

// A distributor that is told to stop sends the waiting tasks before its grace is over.
func TestNoMoreWaitsThanIsPutBeforeAStopsGraceIsOver(t *testing.T) {
	proof.Only(t)
	slowWorld(t, 2, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 1 << 30}
		d := testworld.Start(w.T, slowDistributor(w, s, Options{Pack: 10, Every: time.Hour}))
		time.Sleep(30 * time.Second)
		began := time.Now()
		d.Stop()
		proof.Must(t, d.Wait())
		// The tasks in the sinks, in flight, and in the bounded queues of the lanes.
		if took := time.Since(began); took < stopLine/2 || took > 15*time.Second {
			t.Errorf("stopping took %v", took)
		}
		w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, int(d.Summary.Tasks), int(d.Summary.Tasks))
	})
}
