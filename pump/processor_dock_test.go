package pump

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/control"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// putSuspects puts n single tasks of the world's run, numbered from 0, each with so many
// attempts written down and delivered suspiciously often since.
func (w *world) putSuspects(n int, attempts uint32) {
	w.t.Helper()
	account, queue := w.home(someSegment)
	for i := range n {
		w.putText(account, queue, w.text(someSegment, func(h *codec.Header) { h.Attempt = attempts }, uint64(i)))
	}
	w.passAround(account, queue, int(attempts)+suspectAfter)
}

// P4.2, window 18: who came through a trial alone is recorded before the next one begins. A result
// that still waited for its commit when the next suspect ended the process would leave
// a mark on a task that is innocent.
func TestP42WhoCameThroughATrialIsRecordedBeforeTheNextBegins(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		const guilty = 10 // the tenth to be tried ends the process
		w.putSuspects(16, 5)
		var begun atomic.Int64
		died := make(chan struct{})
		h := HandlerFunc(func(ctx context.Context, _ *Task) error {
			switch n := begun.Add(1); {
			case n == guilty:
				w.crash("p")
				close(died)
				fallthrough
			case n > guilty:
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		p := w.start(w.processor(h, ProcessorOptions{Visibility: 30 * time.Second, Grace: -1}))
		<-died
		p.stop()
		<-p.done
		w.expectBook(guilty-1, 0)
		windowHit(t, 1)
	})
}

// fenceOff makes another the writer of a segment's ledger.
func (w *world) fenceOff(segment uint32) {
	w.t.Helper()
	workload, err := control.LoadWorkload(w.t.Context(), w.table(), w.cfg.Workload)
	if err != nil {
		w.t.Error(err)
		return
	}
	l := control.OpenLedger(w.table(), workload, control.LedgerOptions{Instance: "another", Record: true})
	if _, err := l.Fence(w.t.Context(), []control.Hold{{Segment: segment, Epoch: 1 << 20}}); err != nil {
		w.t.Error(err)
	}
}

// P4.2, P3.5: fencing is no attempt. A task that came through its trial and whose result is
// dropped, because its segment has another owner by now, has its mark taken back.
func TestP42TheMarkOfATrialWhoseResultIsDroppedIsTakenBack(t *testing.T) {
	const attempts = 5
	random := rand.New(rand.NewPCG(1, 2)) // so that it cannot be compressed into an envelope
	full := make([]byte, storage.MaxText)
	for i := range full {
		full[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,:;!?'()[]{}=+-*/%$#@_|~^"[random.IntN(88)]
	}
	for _, where := range []string{"message", "row"} {
		t.Run("in a "+where, func(t *testing.T) {
			inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				segment, id := someSegment, ""
				if where == "message" {
					w.putSuspects(1, attempts)
				} else {
					segment = shardmap.Segment(full, w.segments())
					id = w.putText("accounta", "work-00", full)
					w.passAround("accounta", "work-00", attempts+suspectAfter)
					if _, err := w.table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
						Partition: "work.attempts", Row: "accounta.work-00." + id, Properties: map[string]any{"Attempts": int64(attempts)},
					}}); err != nil {
						t.Fatal(err)
					}
				}
				var tried atomic.Int64
				p := w.start(w.processor(HandlerFunc(func(_ context.Context, task *Task) error {
					tried.Add(1)
					if task.Attempt != attempts+1 {
						t.Errorf("attempt %d", task.Attempt)
					}
					w.fenceOff(segment)
					return nil
				}), ProcessorOptions{}))
				w.within(time.Minute, "its result is dropped", func() bool { return w.logged("results came after another owner") > 0 })
				w.within(time.Minute, "it is put back", func() bool { return w.count("accounta", "work-00") == 1 && p.of.State().Messages == 0 })
				p.end()
				if n := tried.Load(); n != 1 || w.logged("was written down before it begins") != 1 {
					t.Errorf("it was tried %d times", n)
				}
				if where == "message" {
					w.within(time.Minute, "it can be seen", func() bool { return len(w.headers("accounta", "work-00")) == 1 })
					if hs := w.headers("accounta", "work-00"); len(hs) != 1 || hs[0].Attempt != attempts {
						t.Errorf("what is in the queue: %+v", hs)
					}
					return
				}
				e, err := w.table().Read(t.Context(), "work.attempts", "accounta.work-00."+id)
				if err != nil || e.Properties["Attempts"] != int64(attempts) {
					t.Errorf("the row: %v, %v", e.Properties, err)
				}
			})
		})
	}
}
