package pack

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// wayOut is the way of a task from a line of a source to a sealed envelope, in one
// goroutine: reader, segmenting, a lane's queue, its packer.
type wayOut struct {
	lines    []byte
	counts   []uint64
	lane     *Lane
	queue    laneQueue
	sealed   int // tasks in sealed envelopes
	messages int
}

const wayTasks = 20_000

func newWayOut(tb testing.TB) *wayOut {
	w := &wayOut{counts: make([]uint64, 64)}
	for i := range wayTasks {
		w.lines = fmt.Appendf(w.lines, `{"id":"task-%09d","city":"city-%06d","country":"CH","kind":"refresh","amount":%d,"at":"2026-11-%02dT00:00:00Z","try":100}`+"\n",
			i, i*7919%100_000, 100_000+i*31%900_000, i%28+1)
	}
	p := newTestPacker(len(w.counts), 0, 64<<20, nil)
	p.Emit = func(c *Message) error {
		w.sealed += c.Tasks
		w.messages++
		Texts.Put(&c.Text)
		return nil
	}
	w.lane = NewLane(p)
	w.lane.Passed = func(int) {}
	w.round(tb) // pools and buffers are what they will be
	return w
}

// round takes all lines through.
func (w *wayOut) round(tb testing.TB) {
	r, err := (&source.TextSource{Key: "city", ID: "id", Paths: []string{"-"}, Stdin: bytes.NewReader(w.lines)}).Open(tb.Context(), nil)
	must(tb, err)
	defer r.Close()
	w.sealed, w.messages = 0, 0
	for n := 0; ; n++ {
		rec, err := r.Next(tb.Context())
		if err == io.EOF && n == wayTasks {
			break
		}
		must(tb, err)
		segment := shardmap.Segment(rec.Key, len(w.counts))
		must(tb, w.lane.append(tb.Context(), segment, w.counts[segment], &rec))
		w.counts[segment]++
		if n%1000 == 999 {
			w.pack(tb)
		}
	}
	w.pack(tb)
	must(tb, w.lane.packer.sealBefore(math.MaxInt))
	if w.sealed != wayTasks {
		tb.Fatalf("%d of %d tasks were sealed", w.sealed, wayTasks)
	}
}

func (w *wayOut) pack(tb testing.TB) {
	must(tb, w.lane.flush(tb.Context()))
	w.lane.swap(&w.queue)
	must(tb, w.lane.pack(&w.queue))
}

// From source line to sealed envelope a task costs no allocation of its own.
func TestNoAllocationOfATaskItself(t *testing.T) {
	if testworld.RaceDetector {
		t.Skip("the race detector drops what pools hold")
	}
	const most = 0.05
	w := newWayOut(t)
	if got := testing.AllocsPerRun(5, func() { w.round(t) }) / wayTasks; got > most {
		t.Errorf("%.3f allocations a task from line to envelope", got)
	} else {
		t.Logf("%.4f allocations a task from line to envelope, %d tasks a message", got, wayTasks/w.messages)
	}
}

// A server asks of each task that is posted to it.
func TestThatASmallTaskFitsIsKnownWithoutATry(t *testing.T) {
	rec := source.Record{Key: []byte("key"), Body: make([]byte, 1<<10)}
	if got := testing.AllocsPerRun(100, func() { must(t, TooLarge("work", &rec, 1<<10)) }); got > 0 {
		t.Errorf("%v allocations a task", got)
	}
}

// BenchmarkLineToEnvelope is what a task costs a distributor up to the put.
func BenchmarkLineToEnvelope(b *testing.B) {
	w := newWayOut(b)
	b.ReportAllocs()
	for b.Loop() {
		w.round(b)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/wayTasks, "ns/task")
}
