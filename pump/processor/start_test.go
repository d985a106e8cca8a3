package processor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// A processor that is there to wait for work waits, at whichever request of its start the control
// account is disabled or lacks a right; and works when that is over.
func TestAProcessorWaitsWhereverItsStartIsRefused(t *testing.T) {
	for _, code := range []string{"AccountIsDisabled", "AuthorizationPermissionMismatch"} {
		for answered := range 12 {
			t.Run(fmt.Sprintf("%s after %d requests", code, answered), func(t *testing.T) {
				testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
					w.Put("accounta", "work-00", 2, 3)
					refused := w.Fault(azsim.Rule{
						Service: "table", Fault: azsim.Answer, Status: 403, Code: code, Skip: answered,
					})
					h := &testworld.Seen{}
					p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
					time.Sleep(5 * time.Minute)
					refused.Remove()
					time.Sleep(2 * time.Minute)
					p.End()
					h.Expect(t, 6, 6)
				})
			})
		}
	}
}

// TestAProcessorWhoseMachineEndsLeavesInTime: its tasks do not get its whole grace.
func TestAProcessorWhoseMachineEndsLeavesInTime(t *testing.T) {
	for _, tt := range []struct {
		name      string
		after, by time.Duration // of the stop
	}{
		{"with the stop", 0, 5 * time.Second},
		{"in the midst of the stop", 4 * time.Second, 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 1, 3)
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
				of := testworld.Made(w, processor.New, "p", h, processor.Options{Grace: time.Minute})
				p := testworld.Start(w.T, of)
				time.Sleep(30 * time.Second)
				began := time.Now()
				if tt.after == 0 {
					of.Hurry(5 * time.Second)
				}
				p.Stop()
				if tt.after > 0 {
					time.Sleep(tt.after)
					of.Hurry(5 * time.Second)
				}
				s := p.End()
				if took := time.Since(began); took < tt.by || took > tt.by+time.Second {
					t.Errorf("stopping took %v, want %v", took, tt.by)
				}
				if s.Handled != 0 || s.Released != 3 || w.Visible("accounta", "work-00") != 1 {
					t.Errorf("%d visible, %+v", w.Visible("accounta", "work-00"), s)
				}
			})
		})
	}
}
