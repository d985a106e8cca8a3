package settle_test

import (
	"context"
	"errors"
	"regexp"
	"strconv"
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

func TestWindow27GetsStopBeforeLeasesRunOutForWantOfDeletes(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(750, 1)
		cfg := w.Config("p", 2)
		cfg.Budget = pump.Budget{Account: 40, Queue: 40} // a message's get and delete cost 2
		h := &testworld.Seen{}
		pr, err := processor.New(cfg, h, processor.Options{Visibility: 12 * time.Second, UntilIdle: time.Minute})
		proof.Must(t, err)
		began := time.Now()
		s, err := pr.Run(t.Context())
		proof.Must(t, err)
		h.Expect(t, tasks, tasks)
		if s.Lost != 0 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
		if d := time.Since(began) - time.Minute; d > 100*time.Second {
			t.Errorf("%d messages took %v at 40 requests a second", tasks, d)
		}
	})
}

func TestWindow26AThrottledServerIsNotAskedMoreThanItGives(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, func(c *azsim.Config) { c.Limits = azsim.Limits{Queue: 100, QueueAccount: 100} }, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 10, 1)
		for range 99 {
			time.Sleep(time.Second) // within the limit
			w.Put("accounta", "work-00", 10, 1)
		}
		h := &testworld.Seen{}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: time.Minute})
		h.Expect(t, 1000, 1000)
		if s.Lost != 0 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
		// This process believes in 2,000 a second and must find out that it is 100.
		if share := float64(s.Throttled) / float64(s.Requests.Total()); share > 0.5 {
			t.Errorf("%.0f %% of %d requests were refused", 100*share, s.Requests.Total())
		}
		t.Logf("%d of %d requests refused, %.0f s", s.Throttled, s.Requests.Total(), s.Seconds)
	})
}

func TestASlowDeleteHoldsUpNeitherHandlersNorGets(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(100, 1)
		w.Fault(azsim.Rule{Fault: azsim.DelayBefore, Delay: 2 * time.Second}, "DeleteMessage")
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 100*time.Millisecond) }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(3 * time.Second)
		h.Expect(t, tasks, tasks)
		time.Sleep(20 * time.Second)
		proof.Same(t, w.Left(), 0, "left: deletes are made one after the other")
		p.End()
	})
}

func TestWhoIsToldToRetryAfterAWhileDoesSoAndNotAllAtOnce(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, func(c *azsim.Config) {
		c.Limits = azsim.Limits{Queue: 5, QueueAccount: 5, GetCost: 1, RetryAfter: 7 * time.Second}
	}, func(t *testing.T, w *testworld.World) {
		for range 20 {
			time.Sleep(time.Second)
			w.Put("accounta", "work-00", 1, 1)
		}
		time.Sleep(10 * time.Second)
		h := &testworld.Seen{}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: time.Minute})
		h.Expect(t, 20, 20)
		time.Sleep(time.Second) // the test's own request is one of five a second
		if s.Throttled > 100 || w.Left() != 0 {
			t.Errorf("%d refusals for 20 deletes, %d left", s.Throttled, w.Left())
		}
	})
}

// C9: 20,000 rejected tasks made 20,000 lines.
func TestQuarantinedMessagesMakeFewLinesWhichCountThemAll(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		n := w.Spread(300, 1)
		began := time.Now()
		s := testworld.Ran(w, processor.New, "p", pump.HandlerFunc(func(context.Context, *pump.Task) error { return pump.Reject(testworld.ErrFlop) }), processor.Options{UntilIdle: 2 * time.Minute})
		w.Mu.Lock()
		lines := regexp.MustCompile(`msg=quarantined .*tasks=(\d+)`).FindAllStringSubmatch(w.Log.String(), -1)
		w.Mu.Unlock()
		told := 0
		for _, l := range lines {
			tasks, err := strconv.Atoi(l[1])
			proof.Must(t, err)
			told += tasks
		}
		if most := 2 + int(time.Since(began)/(10*time.Second)); s.Quarantined != int64(n) || told != n || len(lines) < 2 || len(lines) > most {
			t.Errorf("%d tasks quarantined, %d lines tell of %d of %d; at most %d lines", s.Quarantined, len(lines), told, n, most)
		}
	})
}

// childDied is a handler's error as of a command whose child has ended.
type childDied struct{ error }

func (childDied) Ended() {}

const eightHours = 8 * time.Hour

// keyed puts one envelope with a task for each key into a queue; the body of each is its key.
func keyed(w *testworld.World, account, queue string, segment uint32, keys ...string) {
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
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		o := processor.Options{UntilIdle: 2 * time.Minute, MinInterval: eightHours}
		h := &testworld.Seen{}
		keyed(w, "accounta", "work-00", 5, "oslo", "bern", "oslo", "oslo")
		keyed(w, "accounta", "work-00", 5, "bern", "riga")
		if s := testworld.Ran(w, processor.New, "p", h, o); s.Handled != 3 || s.Skipped != 3 || s.Failed+s.Released+s.Retried+s.Quarantined != 0 || w.Left() != 0 {
			t.Errorf("in the interval: %+v, %d messages left", s, w.Left())
		}
		time.Sleep(eightHours - 10*time.Minute)
		keyed(w, "accounta", "work-00", 5, "oslo")
		if s := testworld.Ran(w, processor.New, "p", h, o); s.Handled != 0 || s.Skipped != 1 {
			t.Errorf("shortly before its end: %+v", s)
		}
		time.Sleep(10 * time.Minute)
		keyed(w, "accounta", "work-00", 5, "oslo")
		if s := testworld.Ran(w, processor.New, "p", h, o); s.Handled != 1 || s.Skipped != 0 {
			t.Errorf("after it: %+v", s)
		}
		if got := handledKeys(h); got["oslo"] != 2 || got["bern"] != 1 || got["riga"] != 1 {
			t.Errorf("handled: %v", got)
		}
	})
}

// TestARetryIsNoSecondBeginning: what failed is tried again at once, while
// other tasks of its key are skipped.
func TestARetryIsNoSecondBeginning(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
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
		keyed(w, "accounta", "work-00", 5, "oslo")
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{MinInterval: eightHours, UntilIdle: 10 * time.Minute})
		if s.Handled != 1 || s.Failed != 2 || s.Retried != 3 || s.Skipped != 0 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		keyed(w, "accounta", "work-00", 5, "oslo")
		if s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute, MinInterval: eightHours}); s.Handled != 0 || s.Skipped != 1 {
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
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
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
		keyed(w, "accounta", "work-00", 5, "oslo", "bern", "oslo")
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{MinInterval: interval, UntilIdle: 2 * interval})
		if s.Handled != 2 || s.Skipped != 1 || s.Released == 0 || s.Failed+s.Retried != 0 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		taken, ok := at[of.N]
		if !ok || taken.Sub(began) < interval || taken.Sub(claimed) > interval+30*time.Second {
			t.Errorf("it was taken over %v after it began", taken.Sub(began))
		}
		for _, task := range h.Order {
			proof.Same(t, task.Attempt, 1, testworld.Identity(&task), "attempt")
		}
	})
}

// TestClaimsThatCannotBeReadCostNoAttempt: the tasks wait, and are handled when
// the control account is back.
func TestClaimsThatCannotBeReadCostNoAttempt(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			proof.Same(t, task.Attempt, 1, "attempt")
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{MinInterval: eightHours})
		time.Sleep(time.Minute)
		dark := w.Fault(azsim.Rule{Account: "accounta", Service: "table", Fault: azsim.FailBefore})
		for _, key := range []string{"oslo", "bern", "riga"} {
			keyed(w, "accountb", "work-00", 5, key)
		}
		time.Sleep(15 * time.Minute)
		proof.Same(t, h.Deliveries(), 0, "tasks were handled without a claim")
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
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		o := processor.Options{UntilIdle: 2 * time.Minute, MinInterval: eightHours, Grace: time.Second}
		keyed(w, "accounta", "work-00", 5, "oslo")
		stopped := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
		p := testworld.Begun(w, processor.New, "p", stopped, o)
		time.Sleep(time.Minute)
		p.End()
		stopped.Expect(t, 1, 1)
		h := &testworld.Seen{}
		if s := testworld.Ran(w, processor.New, "p", h, o); s.Handled != 1 || s.Skipped != 0 || s.Released != 0 {
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
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &batches{fail: "riga"}
		keyed(w, "accounta", "work-00", 5, "oslo")
		o := processor.Options{UntilIdle: 2 * time.Minute, MinInterval: eightHours}
		if s := testworld.Ran(w, processor.New, "p", h, o); s.Handled != 1 {
			t.Fatalf("%+v", s)
		}
		keyed(w, "accounta", "work-00", 5, "oslo", "bern", "oslo", "riga")
		s := testworld.Ran(w, processor.New, "p", h, o)
		if s.Handled != 2 || s.Skipped != 2 || s.Failed != 1 || s.Retried != 1 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		if len(h.given) != 3 || len(h.given[1]) != 2 || h.given[1][0] != "bern" || h.given[1][1] != "riga" || len(h.given[2]) != 1 || h.given[2][0] != "riga" {
			t.Errorf("batches: %v", h.given)
		}
		keyed(w, "accounta", "work-00", 5, "oslo", "bern")
		if s := testworld.Ran(w, processor.New, "p", h, o); s.Handled != 0 || s.Skipped != 2 || len(h.given) != 3 {
			t.Errorf("%+v, batches: %v", s, h.given)
		}
	})
}

// TestATaskWithoutAKeyIsNotLimited, nor one that no distributor made.
func TestATaskWithoutAKeyIsNotLimited(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		keyed(w, "accounta", "work-00", 5, "", "")
		w.PutText("accounta", "work-00", []byte("foreign"))
		w.PutText("accounta", "work-00", []byte("foreign"))
		if s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute, MinInterval: eightHours}); s.Handled != 4 || s.Skipped != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// handledKeys counts by key what a handler was given.
func handledKeys(s *testworld.Seen) map[string]int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	out := map[string]int{}
	for _, t := range s.Order {
		out[string(t.Key)]++
	}
	return out
}
