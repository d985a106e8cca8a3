package engine

import (
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// text makes an envelope of some tasks of the world's run, with a header that edit changes.
func (w *baseWorld) text(segment uint32, edit func(h *codec.Header), ns ...uint64) []byte {
	w.t.Helper()
	h := codec.Header{Workload: w.cfg.Workload, Run: w.run, Segment: segment, MapVersion: 1}
	if edit != nil {
		edit(&h)
	}
	b := codec.NewBuilder(0)
	b.Reset(h)
	for _, n := range ns {
		fits, err := b.Add(codec.Task{N: n, Key: []byte("key"), Body: fmt.Appendf(nil, "%d/%d", segment, n)})
		if err != nil || !fits {
			w.t.Fatalf("task does not fit: %v", err)
		}
	}
	text, _, err := b.Seal(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// home is the queue of a segment.
func (w *baseWorld) home(segment uint32) (account, queue string) {
	w.t.Helper()
	m := w.shardMap()
	s := m.Shards[m.Home(segment)]
	return s.Account, s.Queue
}

// putTasks puts an envelope of some tasks into the home of their segment.
func (w *baseWorld) putTasks(segment uint32, ns ...uint64) {
	w.t.Helper()
	account, queue := w.home(segment)
	w.putText(account, queue, w.text(segment, nil, ns...))
}

// book is what the ledger holds of one run.
type book struct {
	done, quarantined uint64
	records           map[uint32]*ledger.SegmentRecord
}

// book reads what is recorded of the world's run.
func (w *baseWorld) book() book {
	w.t.Helper()
	b := book{records: map[uint32]*ledger.SegmentRecord{}}
	for r, err := range ledger.ReadRecord(w.t.Context(), w.table(), w.cfg.Workload, w.shardMap().Segments) {
		if err != nil {
			w.t.Fatal(err)
		}
		done, quarantined := r.Counts(w.run)
		b.done, b.quarantined = b.done+done, b.quarantined+quarantined
		b.records[r.Segment] = r
	}
	return b
}

// expectBook checks how many tasks of the world's run are recorded.
func (w *baseWorld) expectBook(done, quarantined int) {
	w.t.Helper()
	if b := w.book(); b.done != uint64(done) || b.quarantined != uint64(quarantined) {
		w.t.Errorf("%d tasks are recorded as done and %d as quarantined, want %d and %d", b.done, b.quarantined, done, quarantined)
	}
}

// expectEmpty checks that nothing is left in any queue of the workload.
func (w *baseWorld) expectEmpty() {
	w.t.Helper()
	if n := w.left(); n != 0 {
		w.t.Errorf("%d messages are left", n)
	}
}

// within waits until something is so. It does not end the test, whose processors must be stopped.
func (w *baseWorld) within(d time.Duration, what string, so func() bool) {
	w.t.Helper()
	for began := time.Now(); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > d {
			w.t.Errorf("not within %v: %s", d, what)
			return
		}
	}
}

// someSegment is a segment like any other.
var someSegment = shardmap.Segment([]byte("some key"), 64)

// allRuns gives a handle on the run rows.
func (w *baseWorld) allRuns() *workload.Runs { return workload.NewRuns(w.table(), w.cfg.Workload) }

// condemned lists the tasks in all poison queues by identity, with their causes.
func (w *baseWorld) condemned() map[string]codec.Cause {
	w.t.Helper()
	out := map[string]codec.Cause{}
	for _, a := range w.cfg.Accounts {
		for _, text := range w.poisoned(a.Name) {
			h, err := codec.ReadHeader(text)
			if err != nil || h.Cause == nil {
				w.t.Fatalf("a poison message without a cause: %v, %v", err, h)
			}
			for n := range h.Tasks.All() {
				out[fmt.Sprintf("%v/%d/%d", h.Run, h.Segment, n)] = *h.Cause
			}
		}
	}
	return out
}

// greeting is a foreign text like any other, and greeted its segment.
var (
	greeting = []byte("hello")
	greeted  = shardmap.Segment(greeting, 64)
)
