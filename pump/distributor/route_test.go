package distributor

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// wayNames shows ways as the choices that they are, 0 for the home.
func wayNames(t *testing.T, r *route, segment uint32) string {
	t.Helper()
	var buffer [3]*outbox
	ways, err := r.ways(segment, &buffer)
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, o := range ways {
		for i, shard := range r.workload.Map.Choices(segment) {
			if r.boxes[shard] == o {
				out += string(rune('0' + i))
			}
		}
	}
	return out
}

// P6.3: the order in which a segment's queues are used, for each state of its home and choices.
func TestTheWaysOfASegment(t *testing.T) {
	inWorld(t, 3, 1, nil, func(t *testing.T, w *world) {
		const segment = 7
		for _, c := range []struct {
			states string // of home, second, third: o(pen), d(ark), c(rowded)
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
			{"dco", "x-", "1", "2"},
			{"dco", "xx", "12", ""},
			{"dcc", "xx", "12", ""},
			{"coo", "--", "0", "1"},
			{"coo", "x-", "01", ""},
			{"coo", "xx", "012", ""},
			{"cco", "x-", "0", "2"},
			{"cco", "xx", "02", ""},
			{"cdo", "-x", "02", ""},
			{"ccc", "xx", "0", ""}, // when all are at their limit nobody helps
			{"cdd", "--", "0", ""},
		} {
			workload, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload)
			if err != nil {
				t.Fatal(err)
			}
			r := newRouter(queues.Open(&w.Cfg, row.TableName), w.Cfg.Log)
			r.update(workload)
			for i, shard := range workload.Map.Choices(segment) {
				h := &r.now().boxes[shard].health
				h.dark, h.crowded = c.states[i] == 'd', c.states[i] == 'c'
			}
			for i := range c.marks {
				if c.marks[i] == 'x' {
					r.marked([]uint32{segment}, i+1)
				}
			}
			if got := wayNames(t, r.now(), segment); got != c.want {
				t.Errorf("states %s, marks %s: ways %s, want %s", c.states, c.marks, got, c.want)
			}
			asked := ""
			for choice, list := range r.now().wanted() {
				for _, s := range list {
					if s == segment {
						asked += string(rune('0' + choice))
					}
				}
			}
			if asked != c.wanted {
				t.Errorf("states %s, marks %s: asks for marks of %q, want %q", c.states, c.marks, asked, c.wanted)
			}
		}
	})
}

// A mark that its owner has taken back must not be used any more; one that was
// stored after the look must.
func TestTheNewestLookSaysWhatIsMarked(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		before := w.Look()
		r := newRouter(queues.Open(&w.Cfg, row.TableName), w.Cfg.Log)
		r.update(before.Workload)
		time.Sleep(time.Second)
		r.marked([]uint32{3}, 1)
		r.see(before)
		if !r.now().marked(3, 1) {
			t.Error("a look from before the mark hides it")
		}
		time.Sleep(time.Second)
		r.see(w.Look())
		if r.now().marked(3, 1) {
			t.Error("a mark is used that its owner has taken back")
		}
	})
}

// Outboxes of queues that stay keep what is known of them.
func TestAnOutboxOutlivesMaps(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		r := newRouter(queues.Open(&w.Cfg, row.TableName), w.Cfg.Log)
		r.update(w.Look().Workload)
		first := r.now()
		w.Without("accountc")
		r.update(w.Look().Workload)
		second := r.now()
		if len(second.boxes) != 4 || second.boxes[0] != first.boxes[0] || second.boxes[3] != first.boxes[3] || len(second.poison) != 2 {
			t.Errorf("boxes %v after %v", second.boxes, first.boxes)
		}
		select {
		case <-first.changed:
		default:
			t.Error("nobody is told that the ways have changed")
		}
		r.update(first.workload) // read before the change, and answered late
		if r.now() != second {
			t.Error("an older map took the place of a newer one")
		}
	})
}
