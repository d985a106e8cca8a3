package pump

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
)

// P2.1: whatever is collected, handed over and packed together, the tasks of a segment come out in
// their order, each once, and an envelope counts for the interval in which its first task was read.
func TestALaneKeepsTheOrderOfASegmentAndOfBarriers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segments := rapid.IntRange(1, 6).Draw(t, "segments")
		var (
			read     = make([][]int, segments) // the interval of each task
			packed   = make([]int, segments)
			interval int
			passed   []int
		)
		p := newTestPacker(segments, rapid.SampledFrom([]int{0, 0, 0, 1, 4}).Draw(t, "most"), rapid.SampledFrom([]int{20_000, 1 << 20}).Draw(t, "held"), nil)
		p.emit = func(c *parcel) error {
			e, err := codec.Open(c.text, codec.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Release()
			first := packed[c.segment]
			if c.interval != read[c.segment][first] {
				t.Fatalf("an envelope of segment %d from task %d on is of interval %d, the task of %d", c.segment, first, c.interval, read[c.segment][first])
			}
			for _, task := range e.Tasks {
				n := packed[c.segment]
				if text := fmt.Sprintf("%d/%d", c.segment, n); task.N != uint64(n) || string(task.Key) != "k"+text || string(task.ID) != "i"+text || !bytes.HasPrefix(task.Body, []byte("b"+text)) {
					t.Fatalf("segment %d: task %d is %q %q %.20q, want %d", c.segment, task.N, task.Key, task.ID, task.Body, n)
				}
				packed[c.segment]++
			}
			return nil
		}
		l := newLane(p)
		l.passed = func(b int) { passed = append(passed, b) }
		work := func() {
			var q laneQueue
			l.swap(&q)
			if err := l.pack(&q); err != nil {
				t.Fatal(err)
			}
		}
		body := bytes.Repeat([]byte("x"), rapid.SampledFrom([]int{0, 100, 5000}).Draw(t, "body"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"offer", "offer", "offer", "mark", "hand over", "pack"}).Draw(t, "step") {
			case "offer":
				segment := rapid.IntRange(0, segments-1).Draw(t, "segment")
				for range rapid.IntRange(1, 10).Draw(t, "tasks") {
					n := len(read[segment])
					text := fmt.Sprintf("%d/%d", segment, n)
					r := Record{Key: []byte("k" + text), ID: "i" + text, Body: append([]byte("b"+text), body...)}
					if l.filling.full() {
						work() // or who offers would wait
					}
					if err := l.offer(t.Context(), uint32(segment), uint64(n), &r); err != nil {
						t.Fatal(err)
					}
					clear(r.Body) // it was copied
					read[segment] = append(read[segment], interval)
				}
			case "mark":
				interval++
				l.mark(interval)
			case "hand over":
				if len(l.waiting.bytes)+len(l.filling.bytes) > laneBytes || len(l.waiting.items)+len(l.filling.items) > laneTasks {
					work() // or who hands over would wait
				}
				if err := l.handOver(t.Context()); err != nil {
					t.Fatal(err)
				}
			case "pack":
				work()
			}
		}
		l.close()
		work()
		if err := p.sealAll(); err != nil {
			t.Fatal(err)
		}
		for s := range read {
			if packed[s] != len(read[s]) {
				t.Fatalf("segment %d: %d tasks in, %d out", s, len(read[s]), packed[s])
			}
		}
		for i, b := range passed {
			if b != i+1 {
				t.Fatalf("the barriers passed are %v", passed)
			}
		}
		if len(passed) != interval {
			t.Fatalf("%d of %d barriers were passed", len(passed), interval)
		}
	})
}

// What waits for a lane that does not pack is bounded, and its reader waits.
func TestALaneThatStandsStillHoldsItsReaderUp(t *testing.T) {
	const size = 1000
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l := newLane(newTestPacker(1, 0, 1<<20, nil))
		r := Record{Body: make([]byte, size)}
		for n := uint64(0); ; n++ {
			err := l.offer(ctx, 0, n, &r)
			if err == nil && n%7 == 0 {
				l.mark(int(n))
				err = l.handOver(ctx)
			}
			if held := len(l.filling.bytes) + len(l.waiting.bytes); held > 2*laneBytes+2*size {
				t.Fatalf("%d bytes wait for the lane", held)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// No record stays with the reader while its source is silent.
func TestWhatWasReadIsPackedWhileTheSourceIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, in := io.Pipe()
		defer in.Close()
		source, err := (&TextSource{Format: FormatLines, Paths: []string{stdin}, Stdin: out}).Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		l := newLane(newTestPacker(1, 0, 1<<20, nil))
		s := &segmenter{source: source, counts: make([]uint64, 1), lanes: []*lane{l}, tracker: newTracker(1), count: new(tally), trial: codec.NewBuilder(0)}
		reading, stop := context.WithCancel(t.Context())
		var done error
		go func() { done = s.read(t.Context(), reading) }()
		for n, text := range []string{"one\n", "two\nthree\n", "four\nhal"} {
			if _, err := io.WriteString(in, text); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			var q laneQueue
			l.swap(&q)
			if want := bytes.Count([]byte(text), []byte("\n")); len(q.items) != want {
				t.Errorf("step %d: %d tasks were handed over, want %d", n, len(q.items), want)
			}
		}
		if n := s.count.tasks.Load(); n != 4 {
			t.Errorf("%d tasks are counted", n)
		}
		stop()
		synctest.Wait()
		if !errors.Is(done, context.Canceled) {
			t.Errorf("reading ended with %v", done)
		}
	})
}
