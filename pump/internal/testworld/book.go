package testworld

import (
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// Text makes an envelope of some tasks of the world's run, with a header that edit changes.
func (w *World) Text(segment uint32, edit func(h *codec.Header), ns ...uint64) []byte {
	w.T.Helper()
	h := codec.Header{Workload: w.Cfg.Workload, Run: w.Run, Segment: segment, MapVersion: 1}
	if edit != nil {
		edit(&h)
	}
	tasks := make([]codec.Task, len(ns))
	for i, n := range ns {
		tasks[i] = codec.Task{N: n, Key: []byte("key"), Body: fmt.Appendf(nil, "%d/%d", segment, n)}
	}
	return w.Sealed(h, tasks...)
}

// Sealed makes an envelope of a header and tasks.
func (w *World) Sealed(h codec.Header, tasks ...codec.Task) []byte {
	w.T.Helper()
	b := codec.NewBuilder(0)
	b.Reset(h)
	for _, task := range tasks {
		if fits, err := b.Add(task); err != nil || !fits {
			w.T.Fatalf("task does not fit: %v", err)
		}
	}
	text, _, err := b.Seal(nil)
	proof.Must(w.T, err)
	return text
}

// Home is the queue of a segment.
func (w *World) Home(segment uint32) (account, queue string) {
	w.T.Helper()
	m := w.ShardMap()
	s := m.Shards[m.Home(segment)]
	return s.Account, s.Queue
}

// PutTasks puts an envelope of some tasks into the home of their segment.
func (w *World) PutTasks(segment uint32, ns ...uint64) {
	w.T.Helper()
	account, queue := w.Home(segment)
	w.PutText(account, queue, w.Text(segment, nil, ns...))
}

// book is what the ledger holds of one run.
type book struct {
	Done, quarantined uint64
	Records           map[uint32]*ledger.SegmentRecord
}

// Book reads what is recorded of the world's run.
func (w *World) Book() book {
	w.T.Helper()
	b := book{Records: map[uint32]*ledger.SegmentRecord{}}
	for r, err := range ledger.ReadRecord(w.T.Context(), w.Table(), w.Cfg.Workload,
		w.ShardMap().Segments) {
		proof.Must(w.T, err)
		done, quarantined := r.Counts(w.Run)
		b.Done, b.quarantined = b.Done+done, b.quarantined+quarantined
		b.Records[r.Segment] = r
	}
	return b
}

// ExpectBook checks how many tasks of the world's run are recorded.
func (w *World) ExpectBook(done, quarantined int) {
	w.T.Helper()
	if b := w.Book(); b.Done != uint64(done) || b.quarantined != uint64(quarantined) {
		w.T.Errorf("%d tasks are recorded as done and %d as quarantined, want %d and %d",
			b.Done, b.quarantined, done, quarantined)
	}
}

// ExpectEmpty checks that nothing is left in any queue of the workload.
func (w *World) ExpectEmpty() {
	w.T.Helper()
	proof.Same(w.T, w.Left(), 0, "messages are left")
}

// Within waits until something is so. It does not end the test, whose processors must be stopped.
func (w *World) Within(d time.Duration, what string, so func() bool) {
	w.T.Helper()
	for began := time.Now(); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > d {
			w.T.Errorf("not within %v: %s", d, what)
			return
		}
	}
}

// SomeSegment is a segment like any other.
var SomeSegment = shardmap.Segment([]byte("some key"), 64)

// AllRuns gives a handle on the run rows.
func (w *World) AllRuns() *workload.Runs { return workload.NewRuns(w.Table(), w.Cfg.Workload) }

// Condemned lists the tasks in all poison queues by identity, with their causes.
func (w *World) Condemned() map[string]codec.Cause {
	w.T.Helper()
	out := map[string]codec.Cause{}
	for _, a := range w.Cfg.Accounts {
		for _, text := range w.Poisoned(a.Name) {
			h, err := codec.ReadHeader(text)
			if err != nil || h.Cause == nil {
				w.T.Fatalf("a poison message without a cause: %v, %v", err, h)
			}
			for n := range h.Tasks.All() {
				out[fmt.Sprintf("%v/%d/%d", h.Run, h.Segment, n)] = *h.Cause
			}
		}
	}
	return out
}

// Greeting is a foreign text like any other, and greeted its segment.
var (
	Greeting = []byte("hello")
	Greeted  = shardmap.Segment(Greeting, 64)
)
