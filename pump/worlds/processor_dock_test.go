package worlds

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// P4.2, window 18: who came through a trial alone is recorded before the next one begins. A result
// that still waited for its commit when the next suspect ended the process would leave
// a mark on a task that is innocent.
func TestP42WhoCameThroughATrialIsRecordedBeforeTheNextBegins(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		const guilty = 10 // the tenth to be tried ends the process
		w.PutSuspects(testworld.SomeSegment, 16, 5)
		var begun atomic.Int64
		died := make(chan struct{})
		h := pump.HandlerFunc(func(ctx context.Context, _ *pump.Task) error {
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
		p := w.start(w.processor(h, processor.Options{Visibility: 30 * time.Second, Grace: -1}))
		<-died
		p.Stop()
		<-p.Done
		w.ExpectBook(guilty-1, 0)
		windowHit(t, 1)
	})
}

// fenceOff makes another the writer of a segment's ledger, under an epoch above which there is
// none.
func (w *world) fenceOff(segment uint32) {
	w.T.Helper()
	w.fenceAt(segment, 1<<53)
}

// fenceAt makes another the writer of a segment's ledger under an epoch.
func (w *world) fenceAt(segment uint32, epoch uint64) {
	w.T.Helper()
	workload, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
	if err != nil {
		w.T.Error(err)
		return
	}
	l := ledger.Open(w.Table(), workload, ledger.Options{Instance: "another", Record: true})
	if _, err := l.Fence(w.T.Context(), []cluster.Hold{{Segment: segment, Epoch: epoch}}); err != nil {
		w.T.Error(err)
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
				segment, id := testworld.SomeSegment, ""
				if where == "message" {
					w.PutSuspects(testworld.SomeSegment, 1, attempts)
				} else {
					segment = shardmap.Segment(full, w.Segments())
					id = w.PutText("accounta", "work-00", full)
					w.PassAround("accounta", "work-00", attempts+suspectAfter)
					must(t, errOf(w.Table().Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
						Partition: "work.attempts", Row: "accounta.work-00." + id, Properties: map[string]any{"Attempts": int64(attempts)},
					}})))
				}
				var tried atomic.Int64
				p := w.start(w.processor(pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
					tried.Add(1)
					if task.Attempt != attempts+1 {
						t.Errorf("attempt %d", task.Attempt)
					}
					w.fenceOff(segment)
					return nil
				}), processor.Options{}))
				w.Within(time.Minute, "its result is dropped", func() bool { return w.Logged("results came after another owner") > 0 })
				w.Within(time.Minute, "it is put back", func() bool { return w.Count("accounta", "work-00") == 1 && p.Of.State().Messages == 0 })
				p.End()
				if n := tried.Load(); n != 1 || w.Logged("was written down before it begins") != 1 {
					t.Errorf("it was tried %d times", n)
				}
				if where == "message" {
					w.Within(time.Minute, "it can be seen", func() bool { return len(w.headers("accounta", "work-00")) == 1 })
					if hs := w.headers("accounta", "work-00"); len(hs) != 1 || hs[0].Attempt != attempts {
						t.Errorf("what is in the queue: %+v", hs)
					}
					return
				}
				e, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id)
				if err != nil || e.Properties["Attempts"] != int64(attempts) {
					t.Errorf("the row: %v, %v", e.Properties, err)
				}
			})
		})
	}
}
