package processor

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

func TestP13AClosedRunIsADuplicateAndDeleted(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 2, 5)
		h := &testworld.Seen{}
		p := testworld.Made(w, New, "p", h, Options{UntilIdle: time.Second})
		r := p.newProcessing(t.Context())
		must(t, r.connect(t.Context()))
		// Nothing closes runs in this delivery mode, so the cache is told.
		c := base.NewRunCache(fixedRun{workload.Run{State: workload.RunClosed}}, r.Log)
		d := &message.Delivery{Count: 5, Header: codec.Header{Run: w.Run}}
		r.Runs = c
		if whole := r.beginRun(t.Context(), d); whole == nil || !whole.Forget || r.Counts.Duplicates.Load() != 5 {
			t.Errorf("%+v", whole)
		}
	})
}

type fixedRun struct{ run workload.Run }

func (f fixedRun) Get(context.Context, pump.RunID) (workload.Run, error) { return f.run, nil }
