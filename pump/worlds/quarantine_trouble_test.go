package worlds

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
)

// What cannot be redriven says so and stays; dropping takes it.
func TestQuarantineSaysWhatCannotBeRedrivenAndWhy(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		queue := workload.PoisonQueue("work")
		good := w.Envelope(3, 2)
		build := func(h codec.Header) []byte {
			return w.Sealed(h, codec.Task{Body: []byte("x")})
		}
		cause := func(text []byte, reason string) []byte {
			text, err := codec.Quarantined(text, codec.Cause{Reason: reason, Last: time.Now()})
			must(t, err)
			return text
		}
		bad := map[string]string{} // id to a part of the problem
		for _, c := range []struct {
			text []byte
			part string
		}{
			{cause(build(codec.Header{Workload: "other", Run: w.Run}), codec.ReasonOtherWorkload), `belongs to workload "other"`},
			{cause(build(codec.Header{Workload: "work", Run: w.Run, Segment: 4000}), codec.ReasonCorrupt), "segment 4000 of 64"},
			{cause(good[:len(good)-8], codec.ReasonTruncated), "it cannot be unpacked"},
			{good[:40], "it is damaged"},
			{cause(build(codec.Header{Workload: "work"}), codec.ReasonBadLine), "correct its source"},
		} {
			bad[w.PutText("accounta", queue, c.text)] = c.part
		}
		time.Sleep(time.Second)
		for _, dry := range []bool{true, false} {
			outs := w.redrive(quarantine.Filter{}, quarantine.Options{Dry: dry})
			if len(outs) != len(bad) {
				t.Errorf("%d outcomes", len(outs))
			}
			for _, o := range outs {
				if o.Outcome != quarantine.Kept || !strings.Contains(o.Problem, bad[o.ID]) {
					t.Errorf("%s: %q, want %q", o.Outcome, o.Problem, bad[o.ID])
				}
			}
		}
		if w.Count("accounta", queue) != len(bad) || w.Left() != 0 {
			t.Error("something was moved")
		}
		w.drop(quarantine.Filter{})
		if w.Count("accounta", queue) != 0 || w.Left() != 0 {
			t.Error("something was not dropped")
		}
	})
}

// A text that is no envelope goes back as it is; the cause that stands in a row
// for want of room is shown, and goes with it.
func TestQuarantineOfAForeignTextWithItsCauseInARow(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		random := rand.New(rand.NewPCG(1, 2))
		full := make([]byte, storage.MaxText)
		for i := range full {
			full[i] = byte('0' + random.IntN(75))
			if full[i] == '<' || full[i] == '>' {
				full[i] = 'x'
			}
		}
		w.PutText("accountb", "work-01", full)
		var good atomic.Bool
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if !good.Load() {
				return pump.Reject(errors.New("no such city"))
			}
			return nil
		}}
		w.drain(h, processor.Options{})
		ms := w.listed(quarantine.Filter{Reasons: []string{codec.ReasonRejected}})
		if len(ms) != 1 || ms[0].Detail != "no such city" || !bytes.Equal(ms[0].Text(), full) || ms[0].Segment != nil || ms[0].Attempts != 1 {
			t.Fatalf("%+v", ms)
		}
		good.Store(true)
		if outs := w.redrive(quarantine.Filter{}, quarantine.Options{}); len(outs) != 1 || outs[0].Outcome != quarantine.Redriven {
			t.Fatalf("%+v", outs)
		}
		for e, err := range w.Table().Query(t.Context(), storage.Query{Partition: "work.quarantine"}) {
			t.Errorf("a row is left: %v, %v", e.Row, err)
		}
		w.drain(h, processor.Options{})
		if h.Deliveries() != 2 || !bytes.Equal(h.Order[1].Body, full) || w.Left() != 0 || len(w.listed(quarantine.Filter{})) != 0 {
			t.Errorf("%d deliveries, %d left", h.Deliveries(), w.Left())
		}
	})
}

// An account that does not answer is named, and the others are done.
func TestQuarantineGoesOnWithoutAnAccountThatIsDark(t *testing.T) {
	inWorld(t, 3, 1, nil, func(t *testing.T, w *world) {
		for _, a := range w.Cfg.Accounts {
			w.poison(a.Name, 1, codec.ReasonAttempts, time.Now(), "k")
		}
		time.Sleep(time.Second)
		w.Sim.Blackout("accountb", true)
		n := 0
		err := w.quarantine().List(t.Context(), quarantine.Filter{}, func(*quarantine.Message) bool { n++; return true })
		if n != 2 || err == nil || !strings.Contains(err.Error(), "accountb") {
			t.Errorf("%d, %v", n, err)
		}
	})
}
