package send

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// destinationNames shows destinations as the choices that they are, 0 for the home.
func destinationNames(t *testing.T, r *Route, segment uint32) string {
	t.Helper()
	out := ""
	for _, o := range r.destinations(segment) {
		for i, shard := range r.Workload.Map.Choices(segment) {
			if r.sinks[shard] == o {
				out += string(rune('0' + i))
			}
		}
	}
	return out
}

// P6.3: the order in which a segment's queues are used, for each state of its home and choices.
func TestTheDestinationsOfASegment(t *testing.T) {
	testworld.In(t, workload.Spec{}, 3, 1, nil, func(t *testing.T, w *testworld.World) {
		const segment = 7
		for _, c := range []struct {
			states string // of home, second, third: o(pen), d(ark), l(imit)
			marks  string // of second, third
			want   string
			wanted string // marks of this segment that are asked for
		}{
			{"ooo", "xx", "0", ""},
			{"odd", "xx", "0", ""},
			{"doo", "--", "0", "1"},
			{"doo", "x-", "1", ""},
			{"doo", "xx", "12", ""},
			{"doo", "-x", "2", "1"}, // somebody else found the second dark
			{"ddo", "x-", "0", "2"},
			{"ddo", "xx", "2", ""},
			{"ddd", "xx", "0", ""},
			{"dlo", "x-", "1", "2"},
			{"dlo", "xx", "12", ""},
			{"dll", "xx", "12", ""},
			{"loo", "--", "0", "1"},
			{"loo", "x-", "01", ""},
			{"loo", "xx", "012", ""},
			{"llo", "x-", "0", "2"},
			{"llo", "xx", "02", ""},
			{"ldo", "-x", "02", ""},
			{"lll", "xx", "0", ""}, // when all are at their limit none helps
			{"ldd", "--", "0", ""},
		} {
			workload, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload)
			must(t, err)
			r := NewRouter(queues.Open(&w.Cfg), w.Cfg.Log)
			r.Update(workload)
			for i, shard := range workload.Map.Choices(segment) {
				h := &r.Current().sinks[shard].health
				h.dark, h.atLimit = c.states[i] == 'd', c.states[i] == 'l'
			}
			for i := range c.marks {
				if c.marks[i] == 'x' {
					r.marked([]uint32{segment}, i+1)
				}
			}
			proof.Same(t, destinationNames(t, r.Current(), segment), c.want,
				"states", c.states, "marks", c.marks, "destinations")
			asked := ""
			for choice, list := range r.Current().wanted() {
				for _, s := range list {
					if s == segment {
						asked += string(rune('0' + choice))
					}
				}
			}
			proof.Same(t, asked, c.wanted, "states", c.states, "marks", c.marks, "asks for marks")
		}
	})
}

// A mark that its owner has taken back must not be used any more; one that was
// stored after the look must.
func TestTheNewestLookSaysWhatIsMarked(t *testing.T) {
	testworld.In(t, workload.Spec{}, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		before := w.View()
		r := NewRouter(queues.Open(&w.Cfg), w.Cfg.Log)
		r.Update(before.Workload)
		time.Sleep(time.Second)
		r.marked([]uint32{3}, 1)
		r.See(before)
		if !r.Current().marked(3, 1) {
			t.Error("a look from before the mark hides it")
		}
		time.Sleep(time.Second)
		r.See(w.View())
		if r.Current().marked(3, 1) {
			t.Error("a mark is used that its owner has taken back")
		}
	})
}

// Sinks of queues that stay keep what is known of them.
func TestASinkOutlivesMaps(t *testing.T) {
	testworld.In(t, workload.Spec{}, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		r := NewRouter(queues.Open(&w.Cfg), w.Cfg.Log)
		r.Update(w.View().Workload)
		first := r.Current()
		w.Without("accountc")
		r.Update(w.View().Workload)
		second := r.Current()
		if len(second.sinks) != 4 || second.sinks[0] != first.sinks[0] || second.sinks[3] != first.sinks[3] || len(second.poison) != 2 {
			t.Errorf("sinks %v after %v", second.sinks, first.sinks)
		}
		select {
		case <-first.Changed:
		default:
			t.Error("no sink is told that there is another route")
		}
		r.Update(first.Workload) // read before the change, and answered late
		proof.Same(t, r.Current(), second, "an older map took the place of a newer one")
	})
}

// A message that probed a dark home in vain goes on to a choice at once, and one that its home had
// refused too often before it probes is still put.
func TestAMessageWhoseProbeIsOverBelongsElsewhere(t *testing.T) {
	testworld.In(t, workload.Spec{}, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		const segment = 7
		r := NewRouter(queues.Open(&w.Cfg), w.Cfg.Log)
		r.Update(w.View().Workload)
		r.marked([]uint32{segment}, 1)
		home := r.Current().home(segment)
		home.observe(func(h *health, now time.Time) { h.darken(now) })
		r.turned()
		time.Sleep(2 * probeEvery)
		p := NewPutter(Options{Router: r, Jitter: "d", Loops: &Loops{}})
		m := &message{Message: &pack.Message{Segment: segment}, refused: helpAfter}
		to, err := p.pick(m)
		if err != nil || to != home || !m.probe || m.refused != 0 {
			t.Fatalf("picked %v, %v, refused %d times; want its home, as a probe", to, err, m.refused)
		}
		m.sink = home
		if !p.belongs(m) {
			t.Error("a probe does not belong to the dark home that it probes")
		}
		p.endProbe(m)
		if p.belongs(m) {
			t.Error("a message whose probe is over belongs to the dark home")
		}
		if to, err = p.pick(m); err != nil || to == home || m.probe {
			t.Errorf("then picked %v, %v", to, err)
		}
	})
}
