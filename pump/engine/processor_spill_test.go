package engine

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/verify"
)

// Somebody else may need a mark again in the moment after it was taken back: that
// is a new one, and as good for as long as any.
func TestP63AMarkThatIsSetAgainAtOnceStays(t *testing.T) {
	verify.Only(t)
	procInWorld(t, 3, 1, nil, func(t *testing.T, w *procWorld) {
		p := w.join("p", &seen{}, ProcessorOptions{})
		v := w.settled(1)
		segment := []uint32{segmentOf(v.Workload.Map, 0)}
		set := func() bool { v := w.view(); return v.Spills != nil && v.Spills[segment[0]] != 0 }
		mark := func() {
			if err := p.of.running.Load().member.Load().MarkSpill(t.Context(), segment, 1); err != nil {
				t.Fatal(err)
			}
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
		p.end()
	})
}
