package settle_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// These are figures of the code under test, which no caller can name.
const (
	poisonGroups = 8
)

func TestAPanicIsAFailureOfThatTaskOnly(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 10)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.N == 3 && task.Attempt == 1 {
				panic("boom")
			}
			return nil
		}}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute, Concurrency: 1}) // the slot goes on
		h.Expect(t, 10, 11)
		if s.Handled != 10 || s.Failed != 1 || s.Retried != 1 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		if w.Logged("panic=boom") != 1 || w.Logged("handle_test.go") == 0 {
			t.Error("the panic is not in the log with its stack")
		}
	})
}

func TestAHandlerThatEndsItsGoroutineIsAFailureAndCostsNoSlot(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 10)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt == 1 {
				runtime.Goexit()
			}
			return nil
		}}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute, Concurrency: 2})
		h.Expect(t, 10, 20)
		if s.Handled != 10 || s.Failed != 10 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestAHandlerThatIgnoresItsContextCostsItsSlotAndNotItsTask(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 6)
		release := make(chan struct{})
		var hanging atomic.Int64
		h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
			if task.N == 2 && task.Attempt == 1 {
				hanging.Add(1)
				<-release
				// Its buffer is still its own, however long that takes.
				proof.Same(t, string(task.Body), fmt.Sprintf("%d/2", task.Segment), "body", task.Body)
				return nil
			}
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 2, Timeout: 30 * time.Second})
		time.Sleep(5 * time.Minute)
		// Redelivered and done, while the first handler still hangs.
		h.Expect(t, 6, 7)
		if hanging.Load() != 1 || w.Left() != 0 {
			t.Errorf("%d hang, %d messages left", hanging.Load(), w.Left())
		}
		if w.Logged("takes too long") != 1 || w.Logged("ignores that its context has ended") != 1 {
			t.Error("the hanging handler is not in the log")
		}
		w.Put("accounta", "work-00", 3, 10) // the other slot goes on, alone
		time.Sleep(time.Minute)
		h.Expect(t, 36, 37)
		close(release)
		time.Sleep(time.Second)
		w.Put("accounta", "work-00", 3, 10)
		s := p.End()
		if s.Failed != 1 || s.Retried != 1 {
			t.Errorf("%+v", s)
		}
		if n := h.AtOnce(); n > 2 {
			t.Errorf("%d handlers at once", n)
		}
	})
}

func TestWhenEveryHandlerHangsNothingMoreIsFetched(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Spread(50, 1)
		release := make(chan struct{})
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { <-release; return nil }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 4, Timeout: 20 * time.Second, Grace: time.Second})
		time.Sleep(10 * time.Minute)
		if n := h.AtOnce(); n != 4 || h.Deliveries() != 4 {
			t.Errorf("%d at once, %d deliveries", n, h.Deliveries())
		}
		if got := w.Visible("accounta", "work-00") + w.Visible("accounta", "work-01"); got < 2*32 {
			t.Errorf("only %d messages are left to other processors", got)
		}
		before := w.Requests("GetMessages")
		time.Sleep(10 * time.Minute)
		if n := w.Requests("GetMessages") - before; n > 10 {
			t.Errorf("%d gets while nothing can be handled", n)
		}
		stopped := time.Now()
		p.End()
		if d := time.Since(stopped); d > 15*time.Second {
			t.Errorf("it took %v to stop", d)
		}
		proof.Same(t, w.Left(), 100, "messages left")
		close(release)
	})
}

func TestWhatCannotBeStartedWithinALeaseIsGivenBack(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 40, 1)
		var slow atomic.Bool
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			if slow.Load() {
				return testworld.Pause(ctx, 10*time.Minute)
			}
			return testworld.Pause(ctx, 20*time.Millisecond)
		}}
		// It seems quick at first, so it fetches more than it then can start.
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 1})
		time.Sleep(300 * time.Millisecond)
		slow.Store(true)
		time.Sleep(90 * time.Second)
		if left, seen := w.Left(), w.Visible("accounta", "work-00"); seen != min(32, left-1) {
			t.Errorf("%d of %d messages are visible; one is being handled, no worker can start the others here", seen, left)
		}
		p.Stop()
		<-p.Done
	})
}

func TestRetriesKeepTheIdentityAndCountTheAttempt(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 3, 20)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt <= int(task.N%4) { // 0 to 3 failures
				return testworld.ErrFlop
			}
			return nil
		}}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, 60, 15*(1+2+3+4))
		attempts := map[string]int{}
		for _, task := range h.Order {
			id := testworld.Identity(&task)
			if attempts[id]++; task.Attempt != attempts[id] {
				t.Errorf("%s: delivery %d has attempt %d", id, attempts[id], task.Attempt)
			}
			if want := fmt.Sprintf("%d/%d", task.Segment, task.N); string(task.Body) != want || string(task.Key) != "key" || task.Run != w.Run {
				t.Errorf("%s came back as %+v", id, task)
			}
		}
		if s.Failed != 15*(1+2+3) || s.Retried != s.Failed || s.Handled != 60 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestAReleasedTaskComesBackWithoutAnAttempt(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 2, 10)
		released := map[string]int{}
		h := &testworld.Seen{}
		h.Work = func(_ context.Context, task *pump.Task) error {
			proof.Same(t, task.Attempt, 1, testworld.Identity(task), "attempt")
			if id := testworld.Identity(task); task.N%2 == 0 && released[id] < 10 { // more often than a task is tried
				released[id]++
				return pump.Release(testworld.ErrFlop)
			}
			return nil
		}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute, Concurrency: 1})
		h.Expect(t, 20, 10+10*11)
		if s.Handled != 20 || s.Failed != 0 || s.Retried != 0 || s.Released == 0 || s.Quarantined != 0 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestRetryDelaysGrowUpToTheLimit(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		var at []time.Time
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { at = append(at, time.Now()); return testworld.ErrFlop }}
		policy := pump.RetryPolicy{MaxAttempts: 30, Base: 4 * time.Second, Max: time.Minute}
		testworld.Ran(w, processor.New, "p", h, processor.Options{Retry: policy, UntilIdle: 2 * time.Minute})
		if len(at) != 30 {
			t.Fatalf("%d attempts", len(at))
		}
		total := at[29].Sub(at[0])
		for i := 1; i < len(at); i++ {
			// A second to the next whole one, 6 s for the poll of an idle queue.
			limit := min(policy.Base<<(i-1), policy.Max) + 8*time.Second
			if i > 10 {
				limit = policy.Max + 8*time.Second
			}
			if d := at[i].Sub(at[i-1]); d > limit {
				t.Errorf("attempt %d came after %v, limit %v", i+1, d, limit)
			}
		}
		if total < 5*time.Minute {
			t.Errorf("30 attempts took %v: the delays do not grow", total)
		}
	})
}

// Deliveries without work are no attempts (P4.2): where many share a
// queue a healthy message has been delivered hundreds of times.
func TestTheFirstRetryComesSoonHoweverOftenTheMessageWasDelivered(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 8, 1)
		for range 20 {
			proof.Must(t, proof.ErrOf(w.Queue("accounta", "work-00").Get(t.Context(), 32, time.Second)))
			time.Sleep(2 * time.Second)
		}
		var mu sync.Mutex // guards first
		first := map[uint64]time.Time{}
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			mu.Lock()
			defer mu.Unlock()
			if task.Attempt == 1 {
				first[task.N] = time.Now()
				return testworld.ErrFlop
			}
			if d := time.Since(first[task.N]); d > 10*time.Second {
				t.Errorf("the second attempt of task %d came after %v; its base is 2 s", task.N, d)
			}
			return nil
		}}
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 20 * time.Minute})
		h.Expect(t, 8, 16)
	})
}

func TestRetryAfterIsNeverEarlyAndAtMostTwiceAsLate(t *testing.T) {
	proof.Only(t)
	proof.Only(t)
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 40)
		first := map[uint64]time.Time{}
		wants := func(n uint64) time.Duration { return time.Duration(n*n*n) * 200 * time.Millisecond } // up to 3.3 h
		h := &testworld.Seen{}
		seenAgain := 0
		h.Work = func(_ context.Context, task *pump.Task) error {
			h.Mu.Lock()
			defer h.Mu.Unlock()
			if task.Attempt == 1 {
				first[task.N] = time.Now()
				return pump.RetryAfter(wants(task.N), nil)
			}
			seenAgain++
			d, want := time.Since(first[task.N]), wants(task.N)
			if d < want || d > 2*want+10*time.Second {
				t.Errorf("task %d asked for %v and came back after %v", task.N, want, d)
			}
			return nil
		}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{
			UntilIdle: 4 * time.Hour, Retry: pump.RetryPolicy{Max: 4 * time.Hour},
		})
		if seenAgain != 40 || s.Retried != 40 || s.Failed != 0 || w.Left() != 0 {
			t.Errorf("%d came back, %+v", seenAgain, s)
		}
		if puts := s.Requests["accounta"]["put"]; puts > 14 {
			t.Errorf("%d messages more, want no more than there are powers of two in 3.3 h", puts)
		}
	})
}

func TestAnExhaustedOrRejectedTaskIsQuarantinedWithItsCause(t *testing.T) {
	const tooOld = "flop; its message is older than --max-age, 1m0s; give more if it is worth doing later, and redrive it"
	for _, c := range []struct {
		name, reason, detail string
		attempts             int
		policy               pump.RetryPolicy
		handler              func(context.Context, *pump.Task) error
	}{
		{"attempts", codec.ReasonAttempts, "flop", 3, pump.RetryPolicy{MaxAttempts: 3}, func(context.Context, *pump.Task) error { return testworld.ErrFlop }},
		{"deaths of a child", codec.ReasonEndsProcess, "flop", 2, pump.RetryPolicy{MaxAttempts: 3}, func(context.Context, *pump.Task) error { return childDied{testworld.ErrFlop} }},
		{"retries", codec.ReasonAttempts, "", 3, pump.RetryPolicy{MaxAttempts: 3}, func(context.Context, *pump.Task) error { return pump.RetryAfter(time.Second, nil) }},
		{"age", codec.ReasonAge, tooOld, 0, pump.RetryPolicy{MaxAge: time.Minute, MaxAttempts: -1}, func(context.Context, *pump.Task) error { return testworld.ErrFlop }},
		{"age of one that is told not now", codec.ReasonAge, tooOld, 0, pump.RetryPolicy{MaxAge: time.Minute}, func(context.Context, *pump.Task) error { return pump.Busy(time.Second, testworld.ErrFlop) }},
		{"rejected", codec.ReasonRejected, "never: flop", 1, pump.RetryPolicy{}, func(context.Context, *pump.Task) error {
			return pump.Reject(fmt.Errorf("never: %w", testworld.ErrFlop))
		}},
		{"panic", codec.ReasonAttempts, "panic: boom", 1, pump.RetryPolicy{MaxAttempts: 1}, func(context.Context, *pump.Task) error { panic("boom") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				began := time.Now()
				w.Put("accounta", "work-00", 1, 5)
				var hooked atomic.Int64
				h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
					if task.N != 3 {
						return nil
					}
					return c.handler(ctx, task)
				}}
				cfg := w.Config("p", 1)
				cfg.Hooks.Quarantine = func(account, reason string, tasks int) {
					if account != "accounta" || reason != c.reason {
						t.Errorf("hook: %s %s", account, reason)
					}
					hooked.Add(int64(tasks))
				}
				p, err := processor.New(cfg, h, processor.Options{Retry: c.policy, UntilIdle: 15 * time.Minute})
				proof.Must(t, err)
				s, err := p.Run(t.Context())
				proof.Must(t, err)
				head, cause := w.Cause("accounta")
				if cause.Reason != c.reason || cause.Detail != c.detail || cause.Instance != "p" {
					t.Errorf("cause %+v", cause)
				}
				if c.attempts > 0 && int(cause.Attempts) != c.attempts {
					t.Errorf("%d attempts, want %d", cause.Attempts, c.attempts)
				}
				if cause.First.Before(began.Add(-time.Second)) || !cause.Last.After(cause.First) {
					t.Errorf("from %v to %v", cause.First, cause.Last)
				}
				if !head.Tasks.Contains(3) || head.Tasks.Len() != 1 || head.Run != w.Run {
					t.Errorf("in quarantine: %v of %v", head.Tasks, head.Run)
				}
				if s.Quarantined != 1 || hooked.Load() != 1 || s.Handled != 4 || w.Left() != 0 {
					t.Errorf("%d hooked, %d left, %+v", hooked.Load(), w.Left(), s)
				}
			})
		})
	}
}

func TestOneEnvelopeMayEndInEveryWayAtOnce(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 100)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt > 1 {
				return nil
			}
			switch task.N % 5 {
			case 0:
				return testworld.ErrFlop
			case 1:
				return pump.RetryAfter(10*time.Minute, testworld.ErrFlop)
			case 2:
				return pump.Reject(fmt.Errorf("number %d", task.N)) // 20 different details
			}
			return nil
		}}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 20 * time.Minute})
		h.Expect(t, 100, 140)
		if s.Handled != 80 || s.Failed != 20 || s.Retried != 40 || s.Rejected != 20 || s.Quarantined != 20 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
		texts := w.Poisoned("accounta")
		proof.Same(t, len(texts), poisonGroups, "messages in quarantine")
		var all []uint64
		for _, text := range texts {
			h, err := codec.ReadHeader(text)
			proof.Must(t, err)
			for n := range h.Tasks.All() {
				proof.Same(t, n%5, 2, "task", n, "in quarantine")
				all = append(all, n)
			}
		}
		proof.Same(t, len(all), 20, "tasks in quarantine")
	})
}

// batcher is a BatchHandler.
type batcher struct {
	t     *testing.T
	sizes []int
	work  func(tasks []*pump.Task) []error
}

func (b *batcher) Handle(context.Context, *pump.Task) error {
	b.t.Error("Handle was called")
	return nil
}

func (b *batcher) HandleBatch(_ context.Context, tasks []*pump.Task) []error {
	b.sizes = append(b.sizes, len(tasks))
	return b.work(tasks)
}

func TestABatchHandlerGetsWholeEnvelopesAndAnswersForEachTask(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 20)
		b := &batcher{t: t}
		b.work = func(tasks []*pump.Task) []error {
			switch len(b.sizes) {
			case 1:
				errs := make([]error, len(tasks))
				errs[4], errs[7], errs[9] = testworld.ErrFlop, pump.RetryAfter(time.Second, nil), pump.Reject(testworld.ErrFlop)
				return errs
			case 2:
				return make([]error, 1) // of another length: all fail
			case 3:
				panic("boom")
			}
			return nil
		}
		s := testworld.Ran(w, processor.New, "p", b, processor.Options{UntilIdle: 2 * time.Minute, Concurrency: 1})
		proof.Same(t, fmt.Sprint(b.sizes), "[20 2 2 2]", "batches", b.sizes)
		if s.Handled != 19 || s.Quarantined != 1 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestAForeignMessageIsOneTaskWithAnIdentityOfItsOwn(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		text := []byte("plain <text> from another program")
		id := w.PutText("accounta", "work-00", text)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt < 3 {
				return testworld.ErrFlop
			}
			return nil
		}}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, 1, 3)
		for i, task := range h.Order {
			if task.Foreign != "work-00/"+id || !bytes.Equal(task.Body, text) || task.ID != "" || task.Attempt != i+1 || task.Segment != h.Order[0].Segment {
				t.Errorf("delivery %d: %+v", i, task)
			}
		}
		if s.Foreign != 1 || w.Left() != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A text without room for an envelope's header around it cannot carry its attempts. It comes back
// more and more slowly. Once that is suspicious, its attempts are counted in a row (P4.2).
func TestAForeignMessageTooFullToBeRewrittenIsQuarantinedInTheEnd(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		text := testworld.Incompressible(64 << 10)
		id := w.PutText("accounta", "work-00", text)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if !bytes.Equal(task.Body, text) {
				t.Error("the text has changed")
			}
			return testworld.ErrFlop
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 3, Max: time.Hour}})
		time.Sleep(24 * time.Hour)
		p.End()
		if n := h.Deliveries(); n < 3 || n > 3+3 {
			t.Errorf("%d deliveries, want 3 counted ones and up to 3 before it was suspicious", n)
		}
		if texts := w.Poisoned("accounta"); w.Left() != 0 || len(texts) != 1 || !bytes.Equal(texts[0], text) {
			t.Errorf("%d left, %d in quarantine", w.Left(), len(texts))
		}
		row, err := w.Table().Read(t.Context(), "work.quarantine", "accounta.work-00."+id)
		if err != nil || row.Properties["Reason"] != codec.ReasonAttempts || row.Properties["Detail"] != testworld.ErrFlop.Error() {
			t.Errorf("its cause is %v, %v", row.Properties, err)
		}
	})
}
