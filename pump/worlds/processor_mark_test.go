package worlds

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

// headers reads the headers of what is visible in a queue.
func (w *world) headers(account, queue string) (hs []codec.Header) {
	w.T.Helper()
	ms, err := w.Queue(account, queue).Peek(w.T.Context(), storage.MaxGet)
	must(w.T, err)
	for _, m := range ms {
		h, err := codec.ReadHeader(m.Text)
		must(w.T, err)
		hs = append(hs, h)
	}
	return hs
}

// P4.2: a text without room for a mark has its attempts counted in a row, and is
// quarantined by these, never by how often it was delivered.
func TestP42AFullForeignTextHasItsAttemptsInARow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) // so that it cannot be compressed into an envelope
	full := make([]byte, storage.MaxText)
	for i := range full {
		full[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,:;!?'()[]{}=+-*/%$#@_|~^"[random.IntN(88)]
	}
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		id := w.PutText("accounta", "work-00", full)
		w.PassAround("accounta", "work-00", 40)
		m := w.mortals(0, processor.Options{Visibility: 10 * time.Second}, func(t *pump.Task) bool { return t.Foreign == "work-00/"+id })
		m.start("p")
		m.until("it is quarantined", func() bool { return w.Left() == 0 })
		m.end()
		texts := w.Poisoned("accounta")
		if m.deaths != 8 || len(texts) != 1 || !bytes.Equal(texts[0], full) {
			t.Errorf("%d deaths, %d messages in quarantine", m.deaths, len(texts))
		}
		e, err := w.Table().Read(t.Context(), "work.quarantine", "accounta.work-00."+id)
		if err != nil || e.Properties["Reason"] != codec.ReasonEndsProcess || e.Properties["Attempts"] != int64(8) {
			t.Errorf("the cause's row: %v, %v", e.Properties, err)
		}
		if _, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id); !storage.Is(err, storage.Gone) {
			t.Errorf("the row of attempts is still there: %v", err)
		}
	})
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		id := w.PutText("accounta", "work-00", full)
		w.PassAround("accounta", "work-00", 40)
		n := 0
		h := pump.HandlerFunc(func(context.Context, *pump.Task) error {
			if n++; n < 20 {
				return pump.Release(nil)
			}
			return nil
		})
		s := w.drain(h, processor.Options{})
		if s.Handled != 1 || s.Quarantined != 0 || n != 20 {
			t.Errorf("released %d times: %+v", n, s)
		}
		if _, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id); !storage.Is(err, storage.Gone) {
			t.Errorf("the row of attempts is still there: %v", err)
		}
	})
}

// A19, P4.2: a task that failed under a larger --max-attempts is no task that ended processes.
// After a restart with a smaller one the processor quarantined it as such, without a trial.
func TestP42FewerAttemptsAfterARestartCondemnNobodyWithoutATrial(t *testing.T) {
	for name, attempts := range map[string]uint32{"as many as the attempts that it made": 3, "fewer": 5} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, workload.Spec{}, 1, 1, nil, func(t *testing.T, w *world) {
				w.PutSuspects(testworld.SomeSegment, 1, attempts)
				s := w.drain(&testworld.Seen{}, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 3}})
				if s.Handled != 1 || s.Quarantined != 0 || w.Left() != 0 {
					t.Errorf("%+v", s)
				}
				if n := w.Logged("was written down before it begins"); n != 1 {
					t.Errorf("%d trials", n)
				}
			})
		})
	}
}
