package worlds

import (
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// Where each run is one task, the rows of the runs of what a get brought are read side by side: one
// after another they would be what the pace of a processor is.
func TestP13TheRowsOfManyRunsAreReadSideBySide(t *testing.T) {
	for _, discard := range []bool{false, true} {
		t.Run(fmt.Sprintf("discard %v", discard), func(t *testing.T) {
			inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				const runs = 128
				for i := range runs {
					id := codec.RunID{1, byte(i)}
					must(t, w.AllRuns().Create(t.Context(), workload.Run{ID: id, Mode: "client"}))
					segment := uint32(i % 64)
					account, queue := w.Home(segment)
					w.PutText(account, queue, w.Text(segment, func(h *codec.Header) { h.Run = id }, 0))
				}
				w.Fault(azsim.Rule{Instance: "p", Fault: azsim.DelayBefore, Delay: 200 * time.Millisecond}, "GetEntity")
				h := &testworld.Seen{}
				processor, err := processor.New(w.Config("p", 1), h, processor.Options{Discard: discard})
				must(t, err)
				p := w.start(processor)
				handled := func() int64 { return processor.State().Done.Handled }
				for handled() == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				began := time.Now()
				for handled() < runs {
					time.Sleep(10 * time.Millisecond)
				}
				// Two at a time would be 13 s, one at a time in a get 25 s.
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the first of %d runs was handled %v before the last", runs, took)
				} else {
					t.Log(took)
				}
				p.End()
			})
		})
	}
}
