package workloads_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/workloads"
)

// A run or key that cannot be paused is refused, and nothing has changed. To pause one that is paused
// and to resume one that is not changes nothing.
func TestWhatCannotBePausedIsRefused(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		refused := func(part workloads.Part, words string) {
			t.Helper()
			_, err := workloads.PausePart(t.Context(), w.Operator(), part, "me")
			proof.Says(t, err, words)
		}
		refused(workloads.Part{Run: "abcd"}, pump.ErrNoRun.Error())
		refused(workloads.Part{Run: "xyz"}, "is not the name of a run")
		refused(workloads.Part{}, "0 bytes")
		refused(workloads.Part{Key: make([]byte, workload.MaxPausedKey+1)}, "513 bytes")
		ended := w.NewRun()
		proof.Must(t, w.AllRuns().End(t.Context(), ended, false, "by hand"))
		refused(workloads.Part{Run: ended.String()}, "nothing of it is started any more")
		wl, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload)
		if err != nil || len(wl.PausedParts) > 0 {
			t.Errorf("%v, %v", wl.PausedParts, err)
		}
		key := func(i int) workloads.Part { return workloads.Part{Key: fmt.Appendf(nil, "key %d", i)} }
		for i := range workload.MaxPausedParts {
			proof.Must(t, proof.ErrOf(workloads.PausePart(t.Context(), w.Operator(), key(i), "me")))
		}
		refused(key(99), "16 runs and keys are paused")
		again, err := workloads.PausePart(t.Context(), w.Operator(), key(3), "another")
		if err != nil || again.Changed || !again.Paused || again.By != "me" {
			t.Errorf("%+v, %v", again, err)
		}
		if c, err := workloads.ResumePart(t.Context(), w.Operator(), key(99)); err != nil || c.Changed || c.Paused {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// A processor that was paused until a moment ago still says in its last beat that it stands still,
// and has begun again: a pause does not take that for news. Nor does nobody work because the processors'
// rows cannot be read.
func TestAPauseThatWaitsKnowsThatNoHandlerIsAtWork(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var now atomic.Int64
		p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(ctx context.Context, _ *pump.Task) error {
			defer now.Add(-1)
			now.Add(1)
			return testworld.Pause(ctx, 20*time.Second)
		}), processor.Options{})
		w.Settled(1)
		pause := func() (workloads.PauseChange, error) {
			return workloads.Pause(t.Context(), w.Operator(), "me", workloads.PauseOptions{Wait: true})
		}
		proof.Must(t, proof.ErrOf(pause()))
		w.PutHome([]uint32{3}, 2)
		proof.Must(t, proof.ErrOf(workloads.Resume(t.Context(), w.Operator())))
		w.Within(time.Minute, "tasks are begun", func() bool { return now.Load() > 0 })
		c, err := pause()
		if n := now.Load(); err != nil || n > 0 || c.Processors != 1 {
			t.Errorf("%d handlers are at work: %+v, %v", n, c, err)
		}
		w.Fault(azsim.Rule{Instance: "operator", Partition: w.Cfg.Workload, Fault: azsim.FailBefore}, "QueryEntities")
		if c, err = pause(); err == nil || !c.Paused {
			t.Errorf("what cannot be read says that nobody works: %+v, %v", c, err)
		}
		c, err = workloads.Resume(t.Context(), w.Operator())
		part, partErr := workloads.PausePart(t.Context(), w.Operator(), workloads.Part{Key: []byte("k")}, "me")
		if err != nil || partErr != nil || c.Processors != -1 || part.Processors != -1 {
			t.Errorf("of what cannot be read it says %+v, %v, %+v, %v", c, err, part, partErr)
		}
		p.End()
	})
}
