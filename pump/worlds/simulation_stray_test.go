package worlds

import (
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// simStray is the body of a task of no run.
const simStray = "stray"

// stray puts a message of a run that has no row (P1.3): handling it would be doing work without an
// order.
func (w *simWorld) stray(s simStep) {
	b := codec.NewBuilder(0)
	h := codec.Header{Workload: "work", Segment: uint32(w.roll(uint64(w.plan.segments), "stray", int(s.at))), MapVersion: 1}
	for i := range h.Run {
		h.Run[i] = byte(w.roll(256, "stray run", i))
	}
	b.Reset(h)
	if _, err := b.Add(codec.Task{Key: []byte(simStray), Body: []byte(simStray)}); err != nil {
		panic(err)
	}
	text, _, err := b.Seal(nil)
	if err != nil {
		panic(err)
	}
	q := w.account(s.who).Queue(fmt.Sprintf("work-%02d", w.roll(uint64(w.plan.queues), "stray queue", int(s.at))))
	w.goes.Go(func() {
		if _, err := q.Put(context.Background(), text, 0); err == nil {
			w.count("message of an unknown run")
		}
	})
}

// simCopy is a message that will come again, as after a Put whose answer was lost and an
// account that was dark for a day.
type simCopy struct {
	queue storage.Queue
	text  []byte
}

// copy keeps what can be seen in a queue for copiesAreKnown.
func (w *simWorld) copy(s simStep) {
	q := w.account(s.who).Queue(fmt.Sprintf("work-%02d", w.roll(uint64(w.plan.queues), "copied queue", int(s.at))))
	w.goes.Go(func() {
		ms, err := q.Peek(context.Background(), storage.MaxGet)
		if err != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range ms {
			if h, err := codec.ReadHeader(m.Text); err == nil && h.Run != (codec.RunID{}) {
				w.copies = append(w.copies, simCopy{q, m.Text})
			}
		}
	})
}

// simClosing is how long runs that are done take to be closed and forgotten by the ledger.
const simClosing = 4 * time.Minute

// copiesAreKnown puts the copies when everything is done, and in mode once
// everything closed, and waits until they are gone again.
func (w *simWorld) copiesAreKnown(ctx context.Context) bool {
	w.mu.Lock()
	copies := w.copies
	w.mu.Unlock()
	if len(copies) == 0 || w.plan.delivery != pump.Once {
		return true
	}
	waits.Wait(ctx, simClosing)
	runs, err := w.runs(ctx)
	if err != nil {
		w.wrongf("the runs cannot be read: %v", err)
		return false
	}
	w.mu.Lock()
	for _, r := range runs {
		if r.State == workload.RunClosed {
			w.judge.shut[r.ID] = true
		}
	}
	w.mu.Unlock()
	for _, c := range copies {
		h, err := codec.ReadHeader(c.text)
		if err != nil || !w.judge.shut[h.Run] {
			continue
		}
		_, err = c.queue.Put(ctx, c.text, 0)
		if storage.Is(err, storage.Missing) || storage.Is(err, storage.MaybeDone) {
			continue // its account is still disabled or gone: that may last longer than the world
		}
		if err != nil && !storage.Is(err, storage.Throttled) {
			w.wrongf("a copy could not be put: %v", err)
			return false
		}
		w.count("copy of a closed run's message")
	}
	recovery := w.recovery
	defer func() { w.recovery = recovery }()
	return w.recovers(ctx)
}
