package worlds

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

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
func (w *world) everyHome(n int) {
	w.T.Helper()
	m := w.Look().Workload.Map
	for i, s := range m.Shards {
		for segment := range uint32(m.Segments) {
			if m.Home(segment) == i {
				w.PutText(s.Account, s.Queue, w.Envelope(segment, n))
				break
			}
		}
	}
}

// However many processors there are and whichever have the tasks, together they start no more than
// the rate, and little less while there are tasks.
func TestMaxRateIsOfAllProcessorsTogether(t *testing.T) {
	inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		const rate = 20.
		var a, b []time.Time
		ha, hb := (&testworld.Seen{}).Starts(&a), (&testworld.Seen{}).Starts(&b)
		pa := w.start(w.processorOf("a", ha, processor.Options{MaxRate: rate}))
		pb := w.start(w.processorOf("b", hb, processor.Options{MaxRate: rate}))
		w.Settled(2)
		time.Sleep(15 * time.Second)
		began := time.Now()
		w.everyHome(150) // in all four queues: 600 tasks
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
		w.everyHome(50)
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
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{MaxRate: 0.05}))
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
		if n := w.Visible("accounta", "work-00"); n != 3 {
			t.Errorf("%d messages are visible, want 3", n)
		}
		rest := &testworld.Seen{}
		w.drain(rest, processor.Options{})
		if n := h.Tasks() + rest.Tasks(); n != 30 || rest.Deliveries() != rest.Tasks() {
			t.Errorf("%d of 30 tasks were handled, the rest by %d deliveries", n, rest.Deliveries())
		}
	})
}

func TestMaxRateOfADistributorIsOfItsSource(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		s := &testworld.ListSource{Print: "a", N: 101}
		began := time.Now()
		summary, err := w.distributor("d", s, distributor.Options{MaxRate: 10}).Run(t.Context())
		if took := time.Since(began); err != nil || took < 10*time.Second || took > 12*time.Second {
			t.Errorf("101 tasks at 10 a second took %v, %v", took, err)
		}
		w.Collect().Expect(t, w.Segments(), summary.Run, s, 101, 101)
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
			inWorld(t, 2, 4, nil, func(t *testing.T, w *world) {
				h := &testworld.Seen{}
				p := w.start(w.processor(h, processor.Options{}))
				w.Settled(1)
				began := time.Now()
				s := &testworld.ListSource{Print: "a", N: tt.n}
				d := w.startDistributor(w.distributor("d", s, distributor.Options{MaxRate: tt.rate}))
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
				d.cancel()
				_ = d.wait()
				p.End()
			})
		})
	}
}

func TestMaxRateOutOfRangeIsAMistakeInTheConfiguration(t *testing.T) {
	for _, rate := range []float64{-1, 1e-9, 1e10} {
		if err := setup.CheckMaxRate(rate); !isConfigError(err) {
			t.Errorf("%v: %v", rate, err)
		}
	}
}

func isConfigError(err error) bool {
	_, ok := errors.AsType[*pump.ConfigError](err)
	return ok
}
