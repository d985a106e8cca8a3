package processor

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// truth is what lies in the queues of an account at a moment.
type truth struct {
	at              time.Time
	visible, hidden int
}

// watchQueues notes the truth every second until ctx ends.
func watchQueues(ctx context.Context, w *testworld.World) (between func(account string, from, to time.Time) []truth) {
	var mu sync.Mutex
	all := map[string][]truth{}
	go func() {
		for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
			seen := map[string]truth{}
			for _, s := range setup.Shards(w.Cfg) {
				visible, all := w.Sim.Depth(s.Account, s.Queue)
				t := seen[s.Account]
				seen[s.Account] = truth{time.Now(), t.visible + visible, t.hidden + all - visible}
			}
			mu.Lock()
			for name, t := range seen {
				all[name] = append(all[name], t)
			}
			mu.Unlock()
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return func(account string, from, to time.Time) (found []truth) {
		mu.Lock()
		defer mu.Unlock()
		for _, t := range all[account] {
			if !t.at.Before(from) && !t.at.After(to) {
				found = append(found, t)
			}
		}
		return found
	}
}

func span(of []truth, number func(truth) int) (least, most int) {
	least = math.MaxInt
	for _, t := range of {
		least, most = min(least, number(t)), max(most, number(t))
	}
	return least, most
}

// samplers starts processors that sample every 15 s.
func samplers(w *testworld.World, o Options, h func(instance string) pump.Handler, instances ...string) (all []*testworld.Started[*Processor, Summary]) {
	w.T.Helper()
	for _, name := range instances {
		cfg := w.Config(name, w.Cfg.Accounts[0].Queues)
		cfg.Sample = 15 * time.Second
		p, err := New(cfg, h(name), o)
		must(w.T, err)
		all = append(all, testworld.Start(w.T, p))
	}
	return all
}

// A sample lies between the least and the most that the simulator had in its time and in the age
// of the beats that it is made of: hundreds of messages, of which many are in hand and many put
// back for a minute and more.
func TestTheSampledBacklogIsTheSimulatorsWithinOneSample(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		between := watchQueues(ctx, w)
		for range 5 {
			w.PutHome(w.EverySegment(), 1)
		}
		o := Options{Concurrency: 8, Retry: pump.RetryPolicy{Base: time.Minute, Max: 4 * time.Minute}}
		all := samplers(w, o, func(string) pump.Handler {
			return pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
				if err := testworld.Pause(ctx, 12*time.Second); err != nil {
					return err
				}
				if task.Attempt == 1 && (uint64(task.Segment)+task.N)%3 == 0 {
					return errors.New("not yet")
				}
				return nil
			})
		}, "p", "q")
		var samples []*pump.Backlog
		for range 30 * 60 {
			time.Sleep(time.Second)
			if all[1].Of.State().Backlog != nil {
				t.Fatal("the processor of rank 1 samples, too")
			}
			if b := all[0].Of.State().Backlog; b != nil && (len(samples) == 0 || samples[len(samples)-1] != b) {
				samples = append(samples, b)
			}
		}
		delayed, held, waited, nothing := 0, 0, 0, false
		for _, b := range samples {
			if len(b.Accounts) != 2 {
				t.Fatalf("%+v", b)
			}
			for _, a := range b.Accounts {
				// A task that is done between a beat and the sample still counts as held by that beat, though
				// its message is gone. A beat may fall into the moment in which the handlers of a process are
				// between two tasks, which the truth of every second misses.
				was := between(a.Name, b.Time.Add(-20*time.Second), b.Time.Add(5*time.Second))
				for _, c := range []struct {
					what string
					got  int64
					of   func(truth) int
				}{
					{"visible", a.Visible, func(t truth) int { return t.visible }},
					{"in flight and delayed", a.InFlight + a.Delayed, func(t truth) int { return t.hidden }},
					{"messages", a.Messages, func(t truth) int { return t.visible + t.hidden }},
				} {
					if least, most := span(was, c.of); int(c.got) < least-o.Concurrency || int(c.got) > most+o.Concurrency {
						t.Errorf("at %v, %s: %s are %d, were %d to %d", b.Time, a.Name, c.what, c.got, least, most)
					}
				}
				delayed, held, waited = max(delayed, int(a.Delayed)), max(held, int(a.InFlight)), max(waited, int(a.Visible))
				nothing = a.Messages == 0 && a.Oldest == 0
			}
		}
		if len(samples) < 100 || delayed < 8 || held < 8 || waited < 200 || !nothing {
			t.Errorf("%d samples; at most %d were delayed, %d in flight, %d visible in an account; none at the end: %v", len(samples), delayed, held, waited, nothing)
		}
		for _, p := range all {
			p.End()
		}
	})
}

// The rate is that of all processors, the time that of what waits at that rate, the age that of the
// first message.
func TestTheBacklogInSecondsIsWhatWaitsAtTheRateAtWhichItIsDone(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		put := time.Now()
		for range 20 {
			w.PutHome(w.EverySegment(), 1)
		}
		took := time.Since(put).Seconds()
		all := samplers(w, Options{Concurrency: 4}, func(string) pump.Handler {
			return new(testworld.Handlings).Handler("p", 4*time.Second) // one a second
		}, "p", "q")
		time.Sleep(4 * time.Minute)
		b := all[0].Of.State().Backlog
		if b == nil || math.Abs(*b.Done-2) > 0.5 || math.Abs(*b.Seconds - float64(b.Accounts[0].Visible) / *b.Done) > 1 || *b.Seconds < 300 {
			t.Errorf("%+v", b)
		}
		if age := b.Time.Sub(put).Seconds(); b.Accounts[0].Oldest < age-took-1 || b.Accounts[0].Oldest > age+1 {
			t.Errorf("the oldest is %v s old, want %v", b.Accounts[0].Oldest, age)
		}
		for _, p := range all {
			p.Stop()
		}
		for _, p := range all {
			p.End()
		}
	})
}

// When the one that samples dies, the next one does; a process that does not sample says nothing.
func TestAnotherProcessSamplesWhenTheOneThatDoesIsGone(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		idle := func(string) pump.Handler { return new(testworld.Handlings).Handler("p", time.Second) }
		silent := testworld.Start(t, testworld.Made(w, New, "a", idle("a"), Options{}))
		all := samplers(w, Options{}, idle, "p", "q")
		time.Sleep(time.Minute)
		if silent.Of.State().Backlog != nil || all[0].Of.State().Backlog == nil || all[1].Of.State().Backlog != nil {
			t.Error("not the first of those that sample does")
		}
		all[0].End()
		time.Sleep(time.Minute)
		if all[1].Of.State().Backlog == nil {
			t.Error("nothing samples any more")
		}
		all[1].End()
		silent.End()
	})
}

// A dark account keeps no other from being sampled, and is forgotten.
func TestADarkAccountIsLeftOutOfTheSample(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		all := samplers(w, Options{}, func(string) pump.Handler { return new(testworld.Handlings).Handler("p", time.Second) }, "p")
		time.Sleep(time.Minute)
		w.Sim.Hang("accountb", true)
		time.Sleep(2 * time.Minute)
		b := all[0].Of.State().Backlog
		if len(b.Accounts) != 2 || time.Since(b.Accounts[0].Time) > 40*time.Second || time.Since(b.Accounts[1].Time) < 100*time.Second {
			t.Errorf("%+v", b)
		}
		time.Sleep(5 * time.Minute)
		if b := all[0].Of.State().Backlog; len(b.Accounts) != 1 {
			t.Errorf("%+v", b)
		}
		w.Sim.Hang("accountb", false)
		time.Sleep(time.Minute)
		if b := all[0].Of.State().Backlog; len(b.Accounts) != 2 {
			t.Errorf("%+v", b)
		}
		all[0].End()
	})
}

// While the control account is dark, what others do is not known: no rate of before and no time by it
// is shown, for a scaler would end processors by it. What was counted in queues that answer is.
func TestWhileTheControlAccountIsDarkNoRateIsKnown(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		for range 20 {
			w.PutHome(w.EverySegment(), 1)
		}
		all := samplers(w, Options{Concurrency: 4}, func(string) pump.Handler {
			return new(testworld.Handlings).Handler("p", 4*time.Second)
		}, "p", "q")
		time.Sleep(2 * time.Minute)
		if b := all[0].Of.State().Backlog; b == nil || b.Done == nil || *b.Done < 1 || b.Seconds == nil {
			t.Fatalf("before: %+v", b)
		}
		w.Sim.Hang("accounta", true)
		time.Sleep(time.Minute)
		if b := all[0].Of.State().Backlog; b == nil || b.Done != nil || b.Seconds != nil || len(b.Accounts) != 2 {
			t.Errorf("dark: %+v", b)
		}
		w.Sim.Hang("accounta", false)
		time.Sleep(2 * time.Minute)
		if b := all[0].Of.State().Backlog; b == nil || b.Done == nil || b.Seconds == nil {
			t.Errorf("again: %+v", b)
		}
		for _, p := range all {
			p.Stop()
		}
		for _, p := range all {
			p.End()
		}
	})
}

// 800 queues are looked at with 25 requests a second at most, beside all else.
func TestSamplingHasABoundedRate(t *testing.T) {
	testworld.In(t, testworld.Plain, 8, 32, nil, func(t *testing.T, w *testworld.World) {
		all := samplers(w, Options{}, func(string) pump.Handler { return new(testworld.Handlings).Handler("p", time.Second) }, "p")
		time.Sleep(5 * time.Minute)
		n := int64(0)
		for _, of := range all[0].Of.State().Done.Requests {
			n += of["count"] + of["peek"]
		}
		if n < 8*33*10 || n > 25*300 || all[0].Of.State().Backlog == nil {
			t.Errorf("%d requests in 5 minutes", n)
		}
		all[0].End()
	})
}

func TestRemainingTasksAreThoseOfTheLedger(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		sealed := make([]uint64, w.ShardMap().Segments)
		for _, s := range w.EverySegment() {
			sealed[s] = 10
		}
		tasks := w.PutHome(w.EverySegment(), 10)
		must(t, w.AllRuns().Seal(t.Context(), w.Run, sealed))
		done := new(testworld.Handlings)
		all := samplers(w, Options{Concurrency: 4}, func(string) pump.Handler { return done.Handler("p", time.Second) }, "p", "q")
		for range 6 {
			before := tasks - done.Tasks()
			time.Sleep(20 * time.Second)
			left := all[0].Of.State().TasksRemaining
			if left == nil || all[1].Of.State().TasksRemaining != nil {
				t.Fatal("not the processor of rank 0 says it")
			}
			if after := tasks - done.Tasks(); *left > int64(before)+50 || *left < int64(after) {
				t.Errorf("%d remain, were %d and are %d", *left, before, after)
			}
		}
		time.Sleep(3 * time.Minute)
		if left := all[0].Of.State().TasksRemaining; left == nil || *left != 0 {
			t.Errorf("%v remain", left)
		}
		for _, p := range all {
			p.End()
		}
	})
}
