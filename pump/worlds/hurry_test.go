package worlds

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// hurries are machines that end: before the stop or in the midst of it, and when it is over then.
var hurries = []struct {
	name      string
	after, by time.Duration // of the stop
}{
	{"with the stop", 0, 5 * time.Second},
	{"in the midst of the stop", 4 * time.Second, 9 * time.Second},
}

// TestADistributorWhoseMachineEndsLeavesInTime: it does not use its whole grace to send what it
// read.
func TestADistributorWhoseMachineEndsLeavesInTime(t *testing.T) {
	for _, tt := range hurries {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				source := &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}
				d := w.distributor("d", source, distributor.Options{Pack: 2})
				s := w.startDistributor(d)
				time.Sleep(2500 * time.Millisecond)
				w.Fault(azsim.Rule{Fault: azsim.HangBefore, Instance: "d"}, "PutMessage")
				began := time.Now()
				if tt.after == 0 {
					d.Hurry(5 * time.Second)
				}
				s.cancel()
				if tt.after > 0 {
					time.Sleep(tt.after)
					d.Hurry(5 * time.Second)
				}
				if err := s.wait(); err == nil {
					t.Error("no error")
				}
				if took := time.Since(began); took < tt.by || took > tt.by+time.Second {
					t.Errorf("stopping took %v, want %v", took, tt.by)
				}
				if row := w.RunRow(s.summary.Run); row.State != workload.RunBroken {
					t.Errorf("the run's row: %+v", row)
				}
			})
		})
	}
}

// TestAProcessorWhoseMachineEndsLeavesInTime: its tasks do not get its whole grace.
func TestAProcessorWhoseMachineEndsLeavesInTime(t *testing.T) {
	for _, tt := range hurries {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				w.Put("accounta", "work-00", 1, 3)
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
				of := w.processor(h, processor.Options{Grace: time.Minute})
				p := w.start(of)
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
