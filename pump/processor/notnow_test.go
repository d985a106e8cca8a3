package processor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// answer is what the handler of an endpoint returns that answers 429 or 503.
func answer(cause string, hint time.Duration) error {
	return &pump.TaskError{Outcome: pump.OutcomeBusy, Answer: cause, After: hint, Err: errors.New("the endpoint answered " + cause)}
}

// endpoint allows so many requests a second, with a burst of a second, and answers 429 to the rest.
type endpoint struct {
	rate  float64
	hint  time.Duration
	takes time.Duration // an answer
	dark  func(t *pump.Task) bool

	mu     sync.Mutex
	tokens float64
	asked  time.Time
	said   map[string]int
	last   time.Time // when the last task was done
}

func (e *endpoint) Handle(ctx context.Context, t *pump.Task) error {
	if err := testworld.Pause(ctx, e.takes); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if e.said == nil {
		e.said, e.tokens, e.asked = map[string]int{}, e.rate, now
	}
	e.tokens, e.asked = min(e.rate, e.tokens+e.rate*now.Sub(e.asked).Seconds()), now
	switch {
	case e.dark != nil && e.dark(t):
		e.said["503"]++
		return answer("503", e.hint)
	case e.tokens < 1:
		e.said["429"]++
		return answer("429", e.hint)
	}
	e.tokens--
	e.said["200"]++
	e.last = now
	return nil
}

// done is how many tasks the endpoint took, requests how often it was asked.
func (e *endpoint) done() (done, requests int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.said["200"], e.said["200"] + e.said["429"] + e.said["503"]
}

// three are three processors with an endpoint behind them.
func three(w *testworld.World, e *endpoint, o processor.Options) (all []*started) {
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, testworld.Begun(w, processor.New, name, e, o))
	}
	w.Settled(3)
	time.Sleep(15 * time.Second)
	return all
}

// An endpoint that says when to come back is neither asked more often nor costs tasks their
// attempts: what it allows is what is done.
func TestAnEndpointThatSaysNotNowGetsWhatItAllows(t *testing.T) {
	const tasks, rate = 5000, 20.
	for _, c := range []struct {
		name  string
		hint  time.Duration
		each  int // tasks in a message
		takes time.Duration
	}{
		{"after a second", time.Second, 1, 0},
		{"at once", 0, 100, 300 * time.Millisecond},
		{"a date", 2 * time.Second, 1, 300 * time.Millisecond},
		{"a date, packed", 2 * time.Second, 100, 20 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 8, nil, func(t *testing.T, w *testworld.World) {
				e := &endpoint{rate: rate, hint: c.hint, takes: c.takes}
				all := three(w, e, processor.Options{})
				began := time.Now()
				spreadTasks(w, tasks, c.each)
				for done, _ := e.done(); done < tasks && time.Since(began) < time.Hour; done, _ = e.done() {
					time.Sleep(time.Second)
				}
				done, requests := e.done()
				took := e.last.Sub(began)
				if done != tasks || requests > 2*tasks {
					t.Errorf("%d tasks were done with %d requests: %v", done, requests, e.said)
				}
				if float64(done)/took.Seconds() < 0.85*rate {
					t.Errorf("%d tasks took %v, with %d requests", done, took, requests)
				}
				t.Logf("%v in %v", e.said, took)
				for _, p := range all {
					if s := p.End(); s.Quarantined+s.Split > 0 {
						t.Errorf("%d in quarantine, %d split", s.Quarantined, s.Split)
					}
				}
				if w.Left() != 0 || len(w.Poisoned("accounta")) > 0 {
					t.Errorf("%d messages are left", w.Left())
				}
			})
		})
	}
}

// spreadTasks puts so many tasks, in messages of each.
func spreadTasks(w *testworld.World, tasks, each int) {
	w.T.Helper()
	segments := w.EverySegment()
	for n := 0; n < tasks; n += each {
		segment := segments[n/each%len(segments)]
		account, queue := w.Home(segment)
		w.PutText(account, queue, w.Envelope(segment, each))
	}
}

// While an endpoint is away for an hour no task loses an attempt, and afterwards all are done soon.
func TestAnEndpointThatIsAwayForAnHourCostsNoTask(t *testing.T) {
	for _, each := range []int{1, 50} {
		t.Run(fmt.Sprint(each, " a message"), func(t *testing.T) {
			if each == 1 {
				proof.Only(t)
			}
			testworld.In(t, testworld.Plain, 1, 8, nil, func(t *testing.T, w *testworld.World) {
				away := time.Now().Add(time.Hour)
				e := &endpoint{rate: 1e6, hint: 2 * time.Second}
				e.dark = func(*pump.Task) bool { return time.Now().Before(away) }
				all := three(w, e, processor.Options{})
				spreadTasks(w, 1000, each)
				time.Sleep(time.Until(away))
				for done, _ := e.done(); done < 1000 && time.Since(away) < time.Hour; done, _ = e.done() {
					time.Sleep(time.Second)
				}
				done, requests := e.done()
				t.Logf("%v, the last after %v", e.said, e.last.Sub(away))
				if took := e.last.Sub(away); done != 1000 || took > 15*time.Minute {
					t.Errorf("%d tasks were done with %d requests, the last after %v", done, requests, took)
				}
				for _, p := range all {
					if s := p.End(); s.Quarantined+s.Split+s.Failed > 0 {
						t.Errorf("%+v", s)
					}
				}
			})
		})
	}
}

// A task that alone is told 503 has made its attempts, and costs the others nothing.
func TestATaskThatAloneIsToldNotNowIsItsOwnTrouble(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 8, nil, func(t *testing.T, w *testworld.World) {
		took := func(bad func(t *pump.Task) bool) (rate float64, quarantined, requests int) {
			e := &endpoint{
				rate: 1e6, hint: time.Second,
				takes: 200 * time.Millisecond, dark: bad,
			}
			all := three(w, e, processor.Options{Concurrency: 4})
			began := time.Now()
			spreadTasks(w, 1000, 10)
			for done, _ := e.done(); done < 999; done, _ = e.done() {
				time.Sleep(100 * time.Millisecond)
			}
			rate = 999 / e.last.Sub(began).Seconds()
			time.Sleep(30 * time.Minute)
			for _, p := range all {
				quarantined += int(p.End().Quarantined)
			}
			return rate, quarantined, e.said["503"]
		}
		healthy, none, _ := took(nil)
		var once sync.Once
		var bad string
		rate, one, requests := took(func(t *pump.Task) bool {
			once.Do(func() { bad = testworld.Identity(t) })
			return testworld.Identity(t) == bad
		})
		if none != 0 || one != 1 || requests < 8 || requests > 10 {
			t.Errorf("%d and %d tasks are in quarantine, after %d requests", none, one, requests)
		}
		if _, cause := w.Cause("accounta"); cause.Reason != codec.ReasonAttempts {
			t.Errorf("cause %+v", cause)
		}
		if rate < 0.95*healthy {
			t.Errorf("the others were done at %.1f a second, without it at %.1f", rate, healthy)
		}
	})
}

// A task that is always told "not now" has a budget of time from the first time, whatever becomes
// of its message.
func TestATaskThatIsAlwaysToldNotNowIsQuarantinedInTheEnd(t *testing.T) {
	for name, max := range map[string]time.Duration{"a day": 0, "two hours": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			if max == 0 {
				proof.Only(t)
			}
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 1, 20)
				var at []time.Time
				h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
					proof.Same(t, task.Attempt, 1, "attempt")
					if task.N != 7 {
						return nil
					}
					at = append(at, time.Now())
					return pump.Busy(time.Hour, testworld.ErrFlop)
				}}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{
					Concurrency: 1, Retry: pump.RetryPolicy{MaxBusy: max},
				})
				budget := max
				if budget == 0 {
					budget = 24 * time.Hour
				}
				time.Sleep(budget + time.Hour)
				s := p.End()
				head, cause := w.Cause("accounta")
				if cause.Reason != codec.ReasonNotNow || cause.Detail != "flop" || head.Tasks.String() != "7" {
					t.Errorf("%v is in quarantine: %+v", head.Tasks, cause)
				}
				lasted := at[len(at)-1].Sub(at[0])
				if lasted < budget || lasted > budget+11*time.Minute {
					t.Errorf("it was tried for %v, %d times", lasted, len(at))
				}
				for i := range at[1:] { // the hint is cut to --retry-max
					if d := at[i+1].Sub(at[i]); d < 10*time.Minute || d > 11*time.Minute {
						t.Errorf("tried again after %v", d)
					}
				}
				proof.Same(t, w.Logged("such delays are cut"), 1, "that the hint was cut is said … times")
				if s.Split+s.Retried+s.Failed > 0 || s.NotNow != int64(len(at)) || s.Handled != 19 {
					t.Errorf("%+v", s)
				}
				if told := head.NotNow; int(told.Deliveries) != len(at)-1 || told.First.Sub(at[0]).Abs() > 2*time.Second {
					t.Errorf("its header says %+v, it was told so %d times from %v on", told, len(at), at[0])
				}
			})
		})
	}
}

// In once, what is told "not now" is neither done nor given up in the ledger until it is. What is
// known of it goes with its tasks into other messages.
func TestTheLedgerAgreesWithWhatWasToldNotNow(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		busy := map[string]int{}
		h := &testworld.Seen{}
		h.Work = func(_ context.Context, task *pump.Task) error {
			h.Mu.Lock()
			defer h.Mu.Unlock()
			id := testworld.Identity(task)
			switch busy[id]++; {
			case task.N == 9:
				return pump.Busy(0, testworld.ErrFlop)
			case task.N == 8 && busy[id] > 2:
				return pump.Reject(testworld.ErrFlop)
			case task.N%2 == 0 && busy[id] <= 2+int(task.N):
				return pump.Busy(time.Second, testworld.ErrFlop)
			}
			return nil
		}
		began := time.Now()
		w.PutTasks(3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Retry: pump.RetryPolicy{Max: 20 * time.Second}})
		time.Sleep(20 * time.Minute)
		w.ExpectBook(8, 1)
		account, queue := w.Home(3)
		var head codec.Header
		for range 60 { // it is in hand for a moment now and then
			if ms, err := w.Queue(account, queue).Peek(t.Context(), 1); err == nil && len(ms) == 1 {
				head, err = codec.ReadHeader(ms[0].Text)
				proof.Must(t, err)
				break
			}
			time.Sleep(time.Second)
		}
		told := head.NotNow
		if head.Tasks.String() != "9" || head.Attempt != 0 || told.Deliveries < 30 ||
			told.First.Sub(began).Abs() > 10*time.Second {
			t.Errorf("%v is left, with %+v", head.Tasks, head)
		}
		if gone, _ := w.Cause(account); gone.NotNow.First.Sub(told.First).Abs() > 10*time.Second ||
			gone.NotNow.Here != 0 || gone.NotNow.Deliveries < 2 {
			t.Errorf("in quarantine it says %+v", gone.NotNow)
		}
		if s := p.End(); s.Split+s.Failed+s.Retried > 0 || s.Quarantined != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// However short the hint is, the delay grows with the time for which a task has been told "not now";
// and however long that is, it is within --retry-max.
func TestTheDelayOfNotNowGrowsWithItsTime(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 1, 1)
		var at []time.Time
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error {
			at = append(at, time.Now())
			return pump.Busy(time.Second, testworld.ErrFlop)
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(2 * time.Hour)
		p.End()
		if len(at) < 15 || len(at) > 40 {
			t.Fatalf("it was tried %d times in two hours", len(at))
		}
		for i := 1; i < len(at); i++ {
			gap, told := at[i].Sub(at[i-1]), at[i-1].Sub(at[0])
			if gap < time.Second || gap < min(told/2, 5*time.Minute)-2*time.Second || gap > min(told+10*time.Second, 11*time.Minute) {
				t.Errorf("told so for %v it was tried again after %v", told, gap)
			}
		}
	})
}
