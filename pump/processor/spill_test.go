package processor

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// Somebody else may need a mark again in the moment after it was taken back: that
// is a new one, and as good for as long as any.
func TestP63AMarkThatIsSetAgainAtOnceStays(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 3, 1, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Begun(w, New, "p", &testworld.Seen{}, Options{})
		v := w.Settled(1)
		segment := []uint32{testworld.SegmentOf(v.Workload.Map, 0)}
		set := func() bool { v := w.View(); return v.Spills != nil && v.Spills[segment[0]] != 0 }
		mark := func() {
			must(t, p.Of.running.Load().Member.Load().MarkSpill(t.Context(), segment, 1))
		}
		mark()
		for began := time.Now(); set(); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > 5*time.Minute {
				t.Fatal("the mark is not taken back")
			}
		}
		mark()
		time.Sleep(spillLeast - time.Second)
		if !set() {
			t.Error("the new mark was taken back at once")
		}
		p.End()
	})
}
