package worlds

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

const eightHours = 8 * time.Hour

// keyed puts one envelope with a task for each key into a queue; the body of each is its key.
func (w *world) keyed(account, queue string, segment uint32, keys ...string) {
	w.T.Helper()
	var tasks []codec.Task
	for _, key := range keys {
		tasks = append(tasks, codec.Task{N: w.Ns[segment], Key: []byte(key), Body: []byte(key)})
		w.Ns[segment]++
	}
	header := codec.Header{Workload: w.Cfg.Workload, Run: w.Run, Segment: segment, MapVersion: 1}
	w.PutText(account, queue, w.Sealed(header, tasks...))
}

// TestAKeyIsHandledOnceInAnInterval: of all its tasks the first (origins B3);
// the others are settled, and counted as skipped.
func TestAKeyIsHandledOnceInAnInterval(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		o := processor.Options{MinInterval: eightHours}
		h := &testworld.Seen{}
		w.keyed("accounta", "work-00", 5, "oslo", "bern", "oslo", "oslo")
		w.keyed("accounta", "work-00", 5, "bern", "riga")
		if s := w.drain(h, o); s.Handled != 3 || s.Skipped != 3 || s.Failed+s.Released+s.Retried+s.Quarantined != 0 || w.Left() != 0 {
			t.Errorf("in the interval: %+v, %d messages left", s, w.Left())
		}
		time.Sleep(eightHours - 10*time.Minute)
		w.keyed("accounta", "work-00", 5, "oslo")
		if s := w.drain(h, o); s.Handled != 0 || s.Skipped != 1 {
			t.Errorf("shortly before its end: %+v", s)
		}
		time.Sleep(10 * time.Minute)
		w.keyed("accounta", "work-00", 5, "oslo")
		if s := w.drain(h, o); s.Handled != 1 || s.Skipped != 0 {
			t.Errorf("after it: %+v", s)
		}
		if got := h.HandledKeys(); got["oslo"] != 2 || got["bern"] != 1 || got["riga"] != 1 {
			t.Errorf("handled: %v", got)
		}
	})
}

// TestARetryIsNoSecondBeginning: what failed is tried again at once, while
// other tasks of its key are skipped.
func TestARetryIsNoSecondBeginning(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{Work: func(_ context.Context, t *pump.Task) error {
			switch {
			case t.Attempt == 1:
				return testworld.ErrFlop
			case t.Attempt == 2:
				return pump.RetryAfter(time.Minute, nil)
			case t.Attempt == 3:
				panic("flop")
			}
			return nil
		}}
		w.keyed("accounta", "work-00", 5, "oslo")
		s := w.drain(h, processor.Options{MinInterval: eightHours, UntilIdle: 10 * time.Minute})
		if s.Handled != 1 || s.Failed != 2 || s.Retried != 3 || s.Skipped != 0 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		w.keyed("accounta", "work-00", 5, "oslo")
		if s := w.drain(h, processor.Options{MinInterval: eightHours}); s.Handled != 0 || s.Skipped != 1 {
			t.Errorf("another task: %+v", s)
		}
		h.Expect(t, 1, 4)
	})
}

// TestWhatADeadProcessorBeganWaitsForTheInterval: its own task comes back after
// the interval and not before (origins B4), without an attempt; other tasks of the
// key are skipped.
func TestWhatADeadProcessorBeganWaitsForTheInterval(t *testing.T) {
	proof.Only(t)
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		const interval = time.Hour
		dead := queues.Open(&w.Cfg)
		of := coordination.TaskRef{Run: w.Run, Segment: 5, N: w.Ns[5]}
		began := time.Now()
		if _, verdict, _, err := coordination.NewClaims(dead.Control, "work", interval, "dead").Claim(t.Context(), []byte("oslo"), of); err != nil || verdict != coordination.Granted {
			t.Fatalf("%v, %v", verdict, err)
		}
		claimed := time.Now()
		var mu sync.Mutex
		at := map[uint64]time.Time{} // by n
		h := &testworld.Seen{Work: func(_ context.Context, t *pump.Task) error {
			mu.Lock()
			defer mu.Unlock()
			at[t.N] = time.Now()
			return nil
		}}
		w.keyed("accounta", "work-00", 5, "oslo", "bern", "oslo")
		s := w.drain(h, processor.Options{MinInterval: interval, UntilIdle: 2 * interval})
		if s.Handled != 2 || s.Skipped != 1 || s.Released == 0 || s.Failed+s.Retried != 0 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		taken, ok := at[of.N]
		if !ok || taken.Sub(began) < interval || taken.Sub(claimed) > interval+30*time.Second {
			t.Errorf("it was taken over %v after it began", taken.Sub(began))
		}
		for _, task := range h.Order {
			if task.Attempt != 1 {
				t.Errorf("%s: attempt %d", testworld.Identity(&task), task.Attempt)
			}
		}
	})
}

// TestClaimsThatCannotBeReadCostNoAttempt: the tasks wait, and are handled when
// the control account is back.
func TestClaimsThatCannotBeReadCostNoAttempt(t *testing.T) {
	inWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt != 1 {
				t.Errorf("attempt %d", task.Attempt)
			}
			return nil
		}}
		p := w.start(w.processor(h, processor.Options{MinInterval: eightHours}))
		time.Sleep(time.Minute)
		dark := w.Fault(azsim.Rule{Account: "accounta", Service: "table", Fault: azsim.FailBefore})
		for _, key := range []string{"oslo", "bern", "riga"} {
			w.keyed("accountb", "work-00", 5, key)
		}
		time.Sleep(15 * time.Minute)
		if n := h.Deliveries(); n != 0 {
			t.Errorf("%d tasks were handled without a claim", n)
		}
		dark.Remove()
		time.Sleep(2 * time.Minute)
		if s := p.End(); s.Handled != 3 || s.Failed+s.Skipped+s.Retried+s.Quarantined != 0 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		if n := w.Logged("keys cannot be claimed"); n == 0 || n > 20 {
			t.Errorf("%d alarms", n)
		}
	})
}

// TestWhatIsStoppedInMidWorkIsNotSkippedByTheNext: the end of the claim is
// written although the handler's context has ended.
func TestWhatIsStoppedInMidWorkIsNotSkippedByTheNext(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		o := processor.Options{MinInterval: eightHours, Grace: time.Second}
		w.keyed("accounta", "work-00", 5, "oslo")
		stopped := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
		p := w.start(w.processor(stopped, o))
		time.Sleep(time.Minute)
		p.End()
		stopped.Expect(t, 1, 1)
		h := &testworld.Seen{}
		if s := w.drain(h, o); s.Handled != 1 || s.Skipped != 0 || s.Released != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// batches notes the batches that it was given, and fails the first attempt of each task with one of
// its keys.
type batches struct {
	mu    sync.Mutex
	given [][]string
	fail  string
}

func (b *batches) Handle(context.Context, *pump.Task) error { return errors.New("not in a batch") }

func (b *batches) HandleBatch(_ context.Context, tasks []*pump.Task) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []string
	errs := make([]error, len(tasks))
	for i, t := range tasks {
		keys = append(keys, string(t.Key))
		if string(t.Key) == b.fail && t.Attempt == 1 {
			errs[i] = testworld.ErrFlop
		}
	}
	b.given = append(b.given, keys)
	return errs
}

// TestABatchIsOfWhatMayBegin: the others of its envelope are not in it, and
// each outcome goes to the right task.
func TestABatchIsOfWhatMayBegin(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		h := &batches{fail: "riga"}
		w.keyed("accounta", "work-00", 5, "oslo")
		o := processor.Options{MinInterval: eightHours}
		if s := w.drain(h, o); s.Handled != 1 {
			t.Fatalf("%+v", s)
		}
		w.keyed("accounta", "work-00", 5, "oslo", "bern", "oslo", "riga")
		s := w.drain(h, o)
		if s.Handled != 2 || s.Skipped != 2 || s.Failed != 1 || s.Retried != 1 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		if len(h.given) != 3 || len(h.given[1]) != 2 || h.given[1][0] != "bern" || h.given[1][1] != "riga" || len(h.given[2]) != 1 || h.given[2][0] != "riga" {
			t.Errorf("batches: %v", h.given)
		}
		w.keyed("accounta", "work-00", 5, "oslo", "bern")
		if s := w.drain(h, o); s.Handled != 0 || s.Skipped != 2 || len(h.given) != 3 {
			t.Errorf("%+v, batches: %v", s, h.given)
		}
	})
}

// TestATaskWithoutAKeyIsNotLimited, nor one that no distributor made.
func TestATaskWithoutAKeyIsNotLimited(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		w.keyed("accounta", "work-00", 5, "", "")
		w.PutText("accounta", "work-00", []byte("foreign"))
		w.PutText("accounta", "work-00", []byte("foreign"))
		if s := w.drain(h, processor.Options{MinInterval: eightHours}); s.Handled != 4 || s.Skipped != 0 {
			t.Errorf("%+v", s)
		}
	})
}
