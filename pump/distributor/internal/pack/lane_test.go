package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// requireNext checks that an envelope holds the tasks of its segment from first on, of the interval
// in which the first of them was read, and gives how many they are.
func requireNext(t *rapid.T, c *Message, intervals []int, first int) (tasks int) {
	t.Helper()
	e, err := codec.Open(c.Text, codec.Limits{})
	must(t, err)
	defer e.Release()
	if c.Interval != intervals[first] {
		t.Fatalf("an envelope of segment %d from task %d on is of interval %d, the task of %d",
			c.Segment, first, c.Interval, intervals[first])
	}
	for i, task := range e.Tasks {
		n := first + i
		text := fmt.Sprintf("%d/%d", c.Segment, n)
		if task.N != uint64(n) || string(task.Key) != "k"+text || string(task.ID) != "i"+text ||
			!bytes.HasPrefix(task.Body, []byte("b"+text)) {
			t.Fatalf("segment %d: task %d is %q %q %.20q, want %d", c.Segment, task.N, task.Key, task.ID, task.Body, n)
		}
	}
	return len(e.Tasks)
}

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
		p.Emit = func(c *Message) error {
			packed[c.Segment] += requireNext(t, c, read[c.Segment], packed[c.Segment])
			return nil
		}
		l := NewLane(p)
		l.Passed = func(b int) { passed = append(passed, b) }
		work := func() {
			var q laneQueue
			l.swap(&q)
			must(t, l.pack(&q))
		}
		body := bytes.Repeat([]byte("x"), rapid.SampledFrom([]int{0, 100, 5000}).Draw(t, "body"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"offer", "offer", "offer", "mark", "hand over", "pack"}).Draw(t, "step") {
			case "offer":
				segment := rapid.IntRange(0, segments-1).Draw(t, "segment")
				for range rapid.IntRange(1, 10).Draw(t, "tasks") {
					n := len(read[segment])
					text := fmt.Sprintf("%d/%d", segment, n)
					r := source.Record{Key: []byte("k" + text), ID: "i" + text, Body: append([]byte("b"+text), body...)}
					if l.filling.full() {
						work() // or who offers would wait
					}
					must(t, l.append(t.Context(), uint32(segment), uint64(n), &r))
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
				must(t, l.flush(t.Context()))
			case "pack":
				work()
			}
		}
		l.Close()
		work()
		must(t, p.sealBefore(math.MaxInt))
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

// The tasks that wait for a lane that does not pack are bounded, and its reader waits.
func TestALaneThatStandsStillHoldsItsReaderUp(t *testing.T) {
	const size = 1000
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l := NewLane(newTestPacker(1, 0, 1<<20, nil))
		r := source.Record{Body: make([]byte, size)}
		for n := uint64(0); ; n++ {
			err := l.append(ctx, 0, n, &r)
			if err == nil && n%7 == 0 {
				l.mark(int(n))
				err = l.flush(ctx)
			}
			if held := len(l.filling.bytes) + len(l.waiting.bytes); held > 2*laneBytes+2*size {
				t.Fatalf("%d bytes wait for the lane", held)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				return
			}
			must(t, err)
		}
	})
}

// No record stays with the reader while its source is silent.
func TestWhatWasReadIsPackedWhileTheSourceIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, in := io.Pipe()
		defer in.Close()
		source, err := (&source.TextSource{Format: source.FormatLines, Paths: []string{"-"}, Stdin: out}).Open(t.Context(), nil)
		must(t, err)
		defer source.Close()
		l := NewLane(newTestPacker(1, 0, 1<<20, nil))
		s := &Segmenter{Source: source, Counts: make([]uint64, 1), Lanes: []*Lane{l}, Tracker: NewTracker(1), Count: new(Tally), Trial: codec.NewBuilder(0)}
		reading, stop := context.WithCancel(t.Context())
		var done error
		go func() { done = s.Read(t.Context(), reading) }()
		for n, text := range []string{"one\n", "two\nthree\n", "four\nhal"} {
			must(t, proof.ErrOf(io.WriteString(in, text)))
			synctest.Wait()
			var q laneQueue
			l.swap(&q)
			proof.Same(t, len(q.items), bytes.Count([]byte(text), []byte("\n")),
				"step", n, "tasks were handed over")
		}
		proof.Same(t, s.Count.Tasks.Load(), 4, "tasks are counted")
		stop()
		synctest.Wait()
		proof.Is(t, done, context.Canceled, "reading ended with")
	})
}

// The source is silent as well while it is opened, and while the end of its command is waited for.
func TestWhatWasReadIsPackedWhileTheNextInputIsOpened(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "a.txt"), filepath.Join(dir, "fifo")
	must(t, os.WriteFile(file, []byte("one\ntwo\n"), 0o600))
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		t.Skipf("there are no pipes with names here: %v %s", err, out)
	}
	quiet := filepath.Join(dir, "quiet")
	for what, source := range map[string]*source.TextSource{
		"a pipe without a writer": {Format: source.FormatLines, Paths: []string{file, fifo}},
		"a command that goes on":  {Format: source.FormatLines, Command: []string{"sh", "-c", "printf 'one\ntwo'; exec >&-; while [ ! -e " + quiet + " ]; do sleep 0.05; done"}},
	} {
		t.Run(what, func(t *testing.T) {
			r, err := source.Open(t.Context(), nil)
			must(t, err)
			defer r.Close()
			l := NewLane(newTestPacker(1, 0, 1<<20, nil))
			s := &Segmenter{Source: r, Counts: make([]uint64, 1), Lanes: []*Lane{l}, Tracker: NewTracker(1), Count: new(Tally), Trial: codec.NewBuilder(0)}
			done := make(chan error)
			go func() { done <- s.Read(t.Context(), t.Context()) }()
			for tasks := 0; tasks < 2; {
				select {
				case <-l.wake:
				case err := <-done:
					t.Fatalf("the end came before what was read: %v", err)
				}
				var q laneQueue
				l.swap(&q)
				tasks += len(q.items)
			}
			must(t, os.WriteFile(quiet, nil, 0o600))
			if len(source.Paths) > 0 {
				w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
				must(t, err)
				w.Close()
			}
			must(t, <-done)
		})
	}
}

// A lane that stands still keeps nothing from the others that was read for them.
func TestALaneThatStandsStillKeepsNothingFromTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stuck, other := NewLane(newTestPacker(2, 0, 1<<20, nil)), NewLane(newTestPacker(2, 0, 1<<20, nil))
		s := &Segmenter{Source: &testworld.ListReader{S: &testworld.ListSource{}}, Counts: make([]uint64, 2), Lanes: []*Lane{stuck, other}, Tracker: NewTracker(2), Count: new(Tally), Trial: codec.NewBuilder(0)}
		keys := [][]byte{nil, nil} // of segment 0 and 1
		for i := 0; keys[0] == nil || keys[1] == nil; i++ {
			key := []byte(fmt.Sprint(i))
			keys[shardmap.Segment(key, 2)] = key
		}
		body := make([]byte, 1000)
		var offered int
		go func() {
			for n := 0; ; n++ {
				segment := 0
				if n%100 == 99 {
					segment = 1
				}
				if s.accept(ctx, &source.Record{Key: keys[segment], Body: body}) != nil {
					return
				}
				offered += segment
			}
		}()
		synctest.Wait()
		if len(stuck.waiting.items) == 0 || !stuck.filling.full() {
			t.Fatal("the lane is not full")
		}
		if n := len(other.waiting.items); n != offered || n == 0 {
			t.Errorf("the other lane has %d of the %d tasks that were read for it", n, offered)
		}
		cancel()
		synctest.Wait()
	})
}
