package processor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

// The processors and a stopwatch agree on the way from put to handler.
func TestLatencyIsThatOfAStopwatch(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 4, nil, func(t *testing.T, w *testworld.World) {
		watch := newStopwatch()
		p := testworld.Begun(w, processor.New, "p", watch.handler("p"), processor.Options{})
		w.Settled(1)
		cfg := w.Cfg
		cfg.Instance, cfg.Hooks = "d", pump.Hooks{Request: watch.ack}
		d, err := distributor.New(cfg, source.FromSeq(func(yield func(source.Record, error) bool) {
			for i := range 200 {
				time.Sleep(time.Duration(1+i%7) * 137 * time.Millisecond)
				id := fmt.Sprint(i)
				watch.give(id)
				if !yield(source.Record{Key: fmt.Append(nil, i), ID: id, Body: []byte("body")}, nil) {
					return
				}
			}
		}), distributor.Options{Pack: 1})
		proof.Must(t, err)
		proof.Must(t, proof.ErrOf(d.Run(t.Context())))
		time.Sleep(10 * time.Second)
		lately := p.Of.State().Latency
		time.Sleep(3 * time.Minute)
		proof.Same(t, p.Of.State().Latency, (processor.Latency{}),
			"after three minutes without a task those of late took")
		all := p.End().Latency
		watch.check(t, 200)
		want := watch.delays(watch.given)
		t.Logf("stopwatch: %v; processor: %+v", want, all)
		proof.Same(t, all, lately, "in all …, of late")
		for name, c := range map[string]struct {
			got  float64
			want time.Duration
		}{
			"p50": {all.P50, want.percentile(50)}, "p90": {all.P90, want.percentile(90)},
			"p99": {all.P99, want.percentile(99)}, "max": {all.Max, want[len(want)-1]},
		} {
			if off := c.got - c.want.Seconds(); off < -0.002 || off > 0.002+0.01*c.want.Seconds() {
				t.Errorf("%s: %.3f s, by the stopwatch %.3f s", name, c.got, c.want.Seconds())
			}
		}
		proof.Same(t, all.Tasks, 200, "tasks were measured")
	})
}

// Time that a task waits for another attempt is not time on the way.
func TestLatencyLeavesOutFurtherAttempts(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt == 1 {
				return pump.RetryAfter(time.Minute, nil)
			}
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Settled(1)
		send(w, "d", 10)
		time.Sleep(3 * time.Minute)
		s := p.End()
		h.Expect(t, 10, 20)
		if s.Latency.Tasks != 10 || s.Latency.Max > 6 {
			t.Errorf("%+v", s.Latency)
		}
	})
}

// send distributes so many tasks of as many keys and says how it went.
func send(w *testworld.World, instance string, tasks int) distributor.Summary {
	w.T.Helper()
	cfg := w.Cfg
	cfg.Instance = instance
	d, err := distributor.New(cfg, source.FromSeq(func(yield func(source.Record, error) bool) {
		for i := range tasks {
			if !yield(source.Record{Key: fmt.Append(nil, i), Body: []byte("body")}, nil) {
				return
			}
		}
	}), distributor.Options{})
	proof.Must(w.T, err)
	s, err := d.Run(w.T.Context())
	proof.Must(w.T, err)
	return s
}

// A loaded queues: tasks come all the time, and the time from put to handler start is that of the
// gets and of what is in hand, not of any pause.
func TestLatencyOfALoadedFleetIsThatOfAFewRequests(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 2, 8, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 20*time.Millisecond) }}
		// Half of what four processors can do: 4 x 4 / 20 ms = 800 tasks a second. For so long
		// that the tasks of a first pause, of about 2 s here, are far from a tenth of all.
		const rate, seconds = 400, 40
		var all []*started
		for i := range 4 {
			all = append(all, testworld.Begun(w, processor.New, fmt.Sprint("p", i), h, processor.Options{Concurrency: 4}))
		}
		w.Settled(4)
		cfg := w.Cfg
		cfg.Instance = "d"
		d, err := distributor.New(cfg, source.FromSeq(func(yield func(source.Record, error) bool) {
			began := time.Now()
			for i := range rate * seconds {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / rate)))
				if !yield(source.Record{Key: fmt.Append(nil, i), Body: []byte("body")}, nil) {
					return
				}
			}
		}), distributor.Options{Pack: 8})
		proof.Must(t, err)
		proof.Must(t, proof.ErrOf(d.Run(t.Context())))
		time.Sleep(10 * time.Second)
		for _, p := range all {
			l := p.End().Latency
			t.Logf("%+v", l)
			// The first ones wait for the end of a pause, as no nudge comes here.
			if l.Tasks < rate*seconds/8 || l.P50 > 0.15 || l.P90 > 0.3 || l.Max > idleBound(16).Seconds()*1.3 {
				t.Errorf("%+v", l)
			}
		}
		h.Expect(t, rate*seconds, rate*seconds)
	})
}

// mostWithin is the most starts in any time span of that length.
func mostWithin(span time.Duration, starts []time.Time) (most int) {
	slices.SortFunc(starts, time.Time.Compare)
	for i, j := 0, 0; j < len(starts); j++ {
		for starts[j].Sub(starts[i]) >= span {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}

// everyHome puts an envelope of n tasks into every queue, of a segment that is at home there.
func everyHome(w *testworld.World, n int) {
	w.T.Helper()
	m := w.View().Workload.Map
	for i, s := range m.Shards {
		for segment := range uint32(m.Segments) {
			if m.Home(segment) == i {
				w.PutText(s.Account, s.Queue, w.Envelope(segment, n))
				break
			}
		}
	}
}

// startsOf is a handler that notes when tasks were begun, in order.
func startsOf(times *[]time.Time) *testworld.Seen {
	s := &testworld.Seen{}
	s.Work = func(context.Context, *pump.Task) error {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		*times = append(*times, time.Now())
		return nil
	}
	return s
}

// However many processors there are and whichever have the tasks, together they start no more than
// the rate, and little less while there are tasks.
func TestMaxRateIsOfAllProcessorsTogether(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		const rate = 20.
		var a, b []time.Time
		ha, hb := startsOf(&a), startsOf(&b)
		pa := testworld.Begun(w, processor.New, "a", ha, processor.Options{MaxRate: rate})
		pb := testworld.Begun(w, processor.New, "b", hb, processor.Options{MaxRate: rate})
		w.Settled(2)
		time.Sleep(15 * time.Second)
		began := time.Now()
		everyHome(w, 150) // in all four queues: 600 tasks
		for ha.Tasks()+hb.Tasks() < 600 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took < 29*time.Second || took > 40*time.Second {
			t.Errorf("600 tasks at %v a second took %v", rate, took)
		}
		ha.Mu.Lock() // the last task is counted before its start is noted
		as := slices.Clone(a)
		ha.Mu.Unlock()
		hb.Mu.Lock()
		bs := slices.Clone(b)
		hb.Mu.Unlock()
		all := slices.Concat(as, bs)
		if n := mostWithin(time.Second, all); float64(n) > rate*1.15 {
			slices.SortFunc(all, time.Time.Compare)
			t.Errorf("%d tasks were started within a second; after %v at first, %v", n, all[0].Sub(began), all[50].Sub(began))
		}
		if len(as) < 100 || len(bs) < 100 {
			t.Errorf("one started %d and the other %d", len(as), len(bs))
		}
		// All of it for those that are left.
		pb.End()
		time.Sleep(15 * time.Second)
		before := ha.Tasks()
		began = time.Now()
		everyHome(w, 50)
		for ha.Tasks() < before+200 {
			time.Sleep(100 * time.Millisecond)
		}
		// The queues are idle: the first of them is asked within the bound.
		if took := time.Since(began); took < 9*time.Second || took > 10*time.Second+idleBound(4)+time.Second {
			t.Errorf("200 tasks at %v a second took %v alone", rate, took)
		}
		pa.End()
	})
}

// A task that waits for its turn is put back at once when the processor stops, without an attempt.
func TestMaxRateHoldsUpNoStop(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{MaxRate: 0.05})
		w.Settled(1)
		w.Put("accounta", "work-00", 3, 10)
		time.Sleep(30 * time.Second)
		began := time.Now()
		s := p.End()
		if took := time.Since(began); took > time.Second {
			t.Errorf("stopping took %v", took)
		}
		if h.Tasks() == 0 || h.Tasks() > 3 || s.Failed > 0 || s.Retried > 0 {
			t.Errorf("%d tasks were begun: %+v", h.Tasks(), s)
		}
		proof.Same(t, w.Visible("accounta", "work-00"), 3, "messages are visible")
		rest := &testworld.Seen{}
		testworld.Ran(w, processor.New, "p", rest, processor.Options{UntilIdle: 2 * time.Minute})
		if n := h.Tasks() + rest.Tasks(); n != 30 || rest.Deliveries() != rest.Tasks() {
			t.Errorf("%d of 30 tasks were handled, the rest by %d deliveries", n, rest.Deliveries())
		}
	})
}

// C1: what is read at a rate is sent within a second or so, however many segments share it.
func TestAPacedSourceReachesAHandlerWithinThreeSeconds(t *testing.T) {
	for _, tt := range []struct {
		name string
		n    int
		rate float64
	}{{"fast", 400_000, 2000}, {"slow", 1000, 5}} {
		t.Run(tt.name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 4, nil, func(t *testing.T, w *testworld.World) {
				h := &testworld.Seen{}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				w.Settled(1)
				began := time.Now()
				s := &testworld.ListSource{Print: "a", N: tt.n}
				d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{MaxRate: tt.rate})
				for h.Tasks() == 0 && time.Since(began) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the first task was handled after %v", took)
				}
				time.Sleep(5 * time.Second)
				if n, least := h.Tasks(), int(4*tt.rate); n < least {
					t.Errorf("%d tasks were handled 5 s later, want %d", n, least)
				}
				d.Stop()
				_ = d.Wait()
				p.End()
			})
		})
	}
}
