package worlds

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// A message with an empty text is a task as any other: it is handled, quarantined, listed, redriven
// and dropped.
func TestAMessageWithAnEmptyTextIsAMessage(t *testing.T) {
	for name, spec := range map[string]workload.Spec{"at least once": {}, "once": {Delivery: string(pump.Once)}} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, spec, 1, 2, nil, func(t *testing.T, w *world) {
				var well atomic.Bool
				h := &testworld.Seen{Work: func(context.Context, *pump.Task) error {
					if !well.Load() {
						return pump.Reject(errors.New("it is empty"))
					}
					return nil
				}}
				p := w.start(w.processor(h, processor.Options{}))
				account, poison := "accounta", workload.PoisonQueue("work")
				w.PutText(account, "work-01", []byte{})
				w.Within(time.Minute, "it is in quarantine", func() bool { return w.Count(account, poison) == 1 })
				w.PutText(account, poison, []byte{}) // as another program may leave it
				time.Sleep(time.Second)
				for _, m := range w.listed(quarantine.Filter{}) {
					tasks, err := m.Open()
					if m.Matching != 1 || m.Problem != "" || err != nil || len(tasks) != 1 || len(tasks[0].Body) != 0 {
						t.Errorf("%+v, %v, %v", m, tasks, err)
					}
				}
				well.Store(true)
				before := h.Deliveries()
				for _, out := range w.redrive(quarantine.Filter{}, quarantine.Options{}) {
					if out.Outcome != quarantine.Redriven {
						t.Errorf("%+v", out)
					}
				}
				w.Within(time.Minute, "nothing is left", func() bool { return w.Left() == 0 && w.Count(account, poison) == 0 })
				time.Sleep(time.Minute)
				if n := h.Deliveries() - before; n != 2 {
					t.Errorf("of 2 empty messages that were redriven %d were done", n)
				}
				w.PutText(account, poison, []byte{})
				time.Sleep(time.Second)
				if outs := w.drop(quarantine.Filter{}); len(outs) != 1 || outs[0].Outcome != quarantine.Dropped || w.Count(account, poison) != 0 {
					t.Errorf("%+v", outs)
				}
				p.End()
			})
		})
	}
}
