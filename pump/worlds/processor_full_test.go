package worlds

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/reduce"
)

// hoarder is a reducer. Of each task of one segment it keeps 300 KiB that do not compress, and 8
// bytes of any other.
func hoarder(segment uint32, calls *sync.Map) *reduce.Reducer[[]byte, []byte] {
	return &reduce.Reducer[[]byte, []byte]{
		Name: "hoard/1",
		Map: func(_ context.Context, t *pump.Task) ([]byte, error) {
			n, _ := calls.LoadOrStore(testworld.Identity(t), new(int))
			*n.(*int)++
			out := make([]byte, 8)
			if t.Segment == segment && t.N > 0 {
				out = make([]byte, 300<<10)
			}
			r := rand.New(rand.NewPCG(uint64(t.Segment), t.N))
			for i := 0; i < len(out); i += 8 {
				binary.LittleEndian.PutUint64(out[i:], r.Uint64())
			}
			return out, nil
		},
		Fold:   func(state *[]byte, d []byte) { *state = append(*state, d...) },
		Encode: func(state *[]byte) ([]byte, error) { return *state, nil },
		Decode: func(stored []byte) ([]byte, error) { return append([]byte{}, stored...), nil },
	}
}

// A13: a result that does not fit into a state is refused before the handler, less and less often,
// and is no suspect. It stands in quarantine with a cause of its own when the state has been full
// for an hour. Results that fit go on.
func TestTasksThatAStateHasNoRoomForAreTriedSeldomAndThenQuarantined(t *testing.T) {
	proof.Only(t)
	const tasks = 8
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		w.PutTasks(testworld.SomeSegment, 1, 2, 3) // 900 KiB
		var calls sync.Map
		p := w.start(w.processor(hoarder(testworld.SomeSegment, &calls).Handler(), processor.Options{}))
		time.Sleep(time.Minute)
		w.ExpectBook(3, 0) // and the state is nearly full
		updates := w.Requests("UpdateMessage")
		w.PutTasks(testworld.SomeSegment, 10, 11, 12, 13, 14, 15, 16, 17)
		time.Sleep(30 * time.Minute)

		s := p.Of.State()
		if s.Ready || !strings.Contains(strings.Join(s.Reasons, "; "), "state of 1 of its segments is full") || s.StatesFull != 1 || s.StateUsed < 0.8 {
			t.Errorf("the state is full and it says %q, %d full, %.2f used", s.Reasons, s.StatesFull, s.StateUsed)
		}
		if s.Done.Split != 0 {
			t.Errorf("%d messages were split", s.Done.Split)
		}
		w.PutTasks(testworld.SomeSegment, 0) // fits
		time.Sleep(25 * time.Minute)
		w.ExpectBook(4, 0)
		time.Sleep(35 * time.Minute)
		w.ExpectBook(4, tasks)
		time.Sleep(2 * time.Hour)
		s = p.Of.State()
		if len(s.Reasons) != 0 || s.StatesFull != 0 {
			t.Errorf("nothing was refused for two hours, and it says %q", s.Reasons)
		}
		summary := p.End()
		if summary.Split != 0 || summary.Quarantined != tasks || w.Left() != 0 {
			t.Errorf("%d messages left: %+v", w.Left(), summary)
		}
		n := 0
		calls.Range(func(_, c any) bool { n += *c.(*int); return true })
		if most := 4 + 12*tasks; n > most {
			t.Errorf("%d calls of the handler, want %d at most", n, most)
		}
		if n := w.Requests("UpdateMessage") - updates; n > 60 {
			t.Errorf("%d updates of messages", n)
		}
		texts := w.Poisoned("accounta")
		if len(texts) != 1 {
			t.Fatalf("%d messages in quarantine", len(texts))
		}
		h, err := codec.ReadHeader(texts[0])
		if err != nil || h.Cause == nil || h.Cause.Reason != codec.ReasonStateFull || h.Attempt != 0 {
			t.Errorf("%+v, %v", h, err)
		}
		if !strings.Contains(w.Log.String(), "more than half") {
			t.Error("nothing was said when the state was half full")
		}
	})
}
