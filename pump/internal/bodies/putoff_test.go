package bodies_test

import (
	"context"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/source"
)

// key is that of the task which one puts.
var key = workload.PausedPart{Key: []byte("key 0")}

// mark pauses a run or a key, or lets it go on. The operator's clock is a year behind.
func mark(w *testworld.World, p workload.PausedPart, on bool) {
	w.T.Helper()
	if on {
		p.Since, p.By = time.Now().AddDate(-1, 0, 0), "me"
	}
	_, changed, err := workload.SetPausedPart(w.T.Context(), w.Table(), "work", p)
	if err != nil || !changed {
		w.T.Errorf("%t %v", changed, err)
	}
}

// A redriven task is put off for longer than the retention, without a turn that makes its body young,
// while closers change: its keys and runs are paused in turn, by operators whose clocks are wrong; its
// handler asks for it; or the account of its body does not answer.
func TestARedrivenTaskThatIsPutOffForLongKeepsItsBody(t *testing.T) {
	proof.Only(t)
	for name, c := range map[string]struct {
		early bool  // it is redriven while its run has a row
		asks  error // of the handler, once
		begin func(w *testworld.World, run pump.RunID)
	}{
		"paused": {begin: func(w *testworld.World, run pump.RunID) {
			of := workload.PausedPart{Run: run}
			mark(w, of, true)
			time.AfterFunc(3*time.Hour, func() { mark(w, key, true); mark(w, of, false) })
			time.AfterFunc(8*time.Hour, func() { mark(w, key, false) })
		}},
		"early": {early: true, asks: pump.RetryAfter(8*time.Hour, testworld.ErrFlop)},
		"later": {asks: pump.RetryAfter(8*time.Hour, testworld.ErrFlop)},
		"busy":  {asks: pump.Busy(8*time.Hour, testworld.ErrFlop)},
		"dark": {begin: func(w *testworld.World, _ pump.RunID) {
			dark := w.Sim.Inject(azsim.Rule{
				Operations: []string{"GetBlob"}, Skip: 1, Fault: azsim.FailBefore, // a redrive reads the body
			})
			time.AfterFunc(8*time.Hour, dark.Remove)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			asks, retry := pump.Reject(testworld.ErrFlop), pump.RetryPolicy{Max: 24 * time.Hour}
			o := processor.Options{Retry: retry, Beat: time.Minute, Lease: 4 * time.Minute}
			one(t, o, func(context.Context, *pump.Task) (err error) {
				err, asks = asks, nil
				return err
			}, func(w *testworld.World, seen *testworld.Seen, run pump.RunID) {
				if time.Sleep(100 * time.Minute); !c.early {
					time.Sleep(4 * time.Hour)
					proof.Is(w.T, proof.ErrOf(w.AllRuns().Get(w.T.Context(), run)), pump.ErrNoRun)
				}
				want := 2
				if asks = c.asks; asks != nil {
					want = 3
				}
				if c.begin != nil {
					c.begin(w, run)
				}
				time.Sleep(time.Minute)
				again(w)
				time.Sleep(3 * time.Hour)
				a := testworld.Begun(w, processor.New, "a", seen, o)
				time.Sleep(150 * time.Minute)
				proof.Same(w.T, blobs(w), 1, "bodies")
				w.Within(210*time.Minute, "it is done", func() bool { return w.Left() == 0 })
				if seen.Deliveries() != want || len(w.Condemned()) > 0 {
					w.T.Errorf("%d deliveries, and %v", seen.Deliveries(), w.Condemned())
				}
				w.Within(5*time.Hour, "no body is left", func() bool {
					time.Sleep(time.Minute)
					return blobs(w) == 0
				})
				a.End()
			})
		})
	}
}

// again redrives what is in quarantine.
func again(w *testworld.World) {
	w.T.Helper()
	q, err := quarantine.Open(w.T.Context(), w.Operator())
	proof.Must(w.T, err)
	proof.Must(w.T, q.Redrive(w.T.Context(), quarantine.Filter{}, quarantine.Options{Again: true},
		func(quarantine.Outcome) bool { return true }))
}

// A task is redriven between a sweep's page of bodies and its look into quarantine.
func TestABodyThatIsRedrivenDuringASweepStays(t *testing.T) {
	one(t, processor.Options{}, func(context.Context, *pump.Task) error {
		return pump.Reject(testworld.ErrFlop)
	}, func(w *testworld.World, seen *testworld.Seen, run pump.RunID) {
		time.Sleep(6 * time.Hour)
		slow := w.Sim.Inject(azsim.Rule{
			Operations: []string{"GetQueueMetadata"}, Object: workload.PoisonQueue("work"), Instance: "p",
			Fault: azsim.DelayBefore, Delay: 5 * time.Second,
		})
		w.Within(2*time.Hour, "a sweep looks into quarantine", func() bool { return slow.Hits() > 0 })
		slow.Remove()
		// No delivery brings it back into quarantine, or is noted.
		w.Sim.Inject(azsim.Rule{Operations: []string{"GetMessages"}, Instance: "p", Fault: azsim.FailBefore})
		again(w)
		time.Sleep(time.Minute)
		proof.Same(w.T, blobs(w), 1, "bodies")
	})
}

// A task of which key and context are too much for its message goes before its context, as in one
// that has its body.
func TestATaskWhoseKeyLeavesNoRoomForItsContextIsSent(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("d", 1)
		cfg.TracerProvider = sdk.NewTracerProvider()
		s, err := distributor.NewSender(cfg, distributor.SenderOptions{BlobAbove: 40 << 10})
		proof.Must(t, err)
		state, err := trace.ParseTraceState("of=" + hex.EncodeToString(testworld.Incompressible(120)))
		proof.Must(t, err)
		ctx := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, TraceState: state,
		}))
		sent := 0
		for key := 58_000; err == nil; key += 100 {
			err = s.Send(ctx, source.Record{Key: testworld.Incompressible(key), Body: large(0)})
			sent++
		}
		if !errors.Is(err, codec.ErrTaskTooLarge) || sent < 5 {
			t.Errorf("%d are sent: %v", sent, err)
		}
		proof.Must(t, proof.ErrOf(s.Close(t.Context())))
	})
}
