package pack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// must ends a test with an error.
var must = proof.Must

func newTestPacker(segments, most, maxHeld int, emit func(*Message) error) *Packer {
	return &Packer{
		Head: codec.Header{Workload: "work", Run: pump.RunID{1}, MapVersion: 1}, Most: most, MaxHeld: maxHeld,
		Opened: func(int) {}, Emit: emit, Open: make([]*OpenEnvelope, segments), Stride: 1,
		MapVersion: func() uint64 { return 1 }, Writes: func() uint8 { return codec.Version },
		Limit: func(uint32) int { return 0 },
	}
}

// P6.2: open envelopes share one budget of memory, and the oldest is sealed when
// it is exceeded. Whatever is added, each task comes out once, in its segment's order.
func TestOpenEnvelopesShareOneByteBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segments := rapid.IntRange(1, 12).Draw(t, "segments")
		most := rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "most")
		maxHeld := rapid.IntRange(8<<10, 96<<10).Draw(t, "maxHeld")
		opened := map[uint32]int{} // when each open envelope was begun
		next := make([]uint64, segments)
		step, adding := 0, uint32(0)
		p := newTestPacker(segments, most, maxHeld, nil)
		p.Emit = func(c *Message) error {
			e, err := codec.Open(c.Text, codec.Limits{})
			must(t, err)
			defer e.Release()
			if len(e.Tasks) != c.Tasks || most > 0 && c.Tasks > most {
				t.Fatalf("%d tasks in an envelope of %d, the cap is %d", len(e.Tasks), c.Tasks, most)
			}
			for _, task := range e.Tasks {
				if task.N != next[c.Segment] || string(task.Key) != fmt.Sprint(c.Segment, task.N) {
					t.Fatalf("segment %d: task %d with key %q, want %d", c.Segment, task.N, task.Key, next[c.Segment])
				}
				next[c.Segment]++
			}
			if c.Segment != adding { // only for room
				for segment, at := range opened {
					if at < opened[c.Segment] {
						t.Fatalf("the envelope of segment %d was sealed for room, that of %d is older", c.Segment, segment)
					}
				}
			}
			delete(opened, c.Segment)
			return nil
		}
		added := make([]uint64, segments)
		for range rapid.IntRange(1, 200).Draw(t, "tasks") {
			step++
			segment := uint32(rapid.IntRange(0, segments-1).Draw(t, "segment"))
			body := testworld.Incompressible(rapid.SampledFrom([]int{0, 100, 3000, 20_000}).Draw(t, "size"))
			adding = segment
			if p.Open[segment] == nil {
				opened[segment] = step
			}
			err := p.add(segment, codec.Task{N: added[segment], Key: fmt.Append(nil, segment, added[segment]), Body: body}, time.Time{})
			must(t, err)
			added[segment]++
			if p.Open[segment] != nil && p.Open[segment].builder.Len() == 1 {
				opened[segment] = step
			}
			held := 0
			for _, e := range p.order {
				held += e.builder.Held()
			}
			if held != p.held || held > maxHeld {
				t.Fatalf("%d bytes are held, the packer counts %d, the budget is %d", held, p.held, maxHeld)
			}
		}
		for len(p.order) > 0 {
			adding = p.order[0].segment
			must(t, p.seal(p.order[0]))
		}
		for s := range added {
			if added[s] != next[s] {
				t.Fatalf("segment %d: %d tasks in, %d out", s, added[s], next[s])
			}
		}
		if p.held != 0 || len(p.order) > 0 {
			t.Fatalf("%d bytes are held by nothing", p.held)
		}
	})
}

// replay is a source of records in memory that pauses after each step.
type replay struct {
	next, until int
	bad         map[int]bool
}

var errPause = errors.New("pause")

func (r *replay) Next(context.Context) (source.Record, error) {
	if r.next == r.until {
		return source.Record{}, errPause
	}
	i := r.next
	r.next++
	if r.bad[i] {
		return source.Record{}, &source.BadInput{Where: fmt.Sprint(i), Err: testworld.ErrFlop}
	}
	return source.Record{Key: replayKey(i), Body: fmt.Append(nil, i)}, nil
}

func replayKey(i int) []byte                     { return fmt.Append(nil, i%7) }
func (r *replay) AppendCursor(dst []byte) []byte { return fmt.Append(dst, r.next) }
func (r *replay) Progress() (int64, int64)       { return 0, 0 }
func (r *replay) Close() error                   { return nil }

// P2.1 and P2.2: at whatever moment a checkpoint is saved, its cursor and its
// counters are of one instant, and everything before it is acknowledged: each
// task's envelope and each bad line's quarantine. And once all is acknowledged,
// all barriers are complete.
func TestACheckpointCoversOnlyWhatIsAcknowledged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newCheckpoints(t, 2)
		s := w.segmenter
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				for i := range rapid.IntRange(1, 10).Draw(t, "n") {
					if rapid.IntRange(0, 9).Draw(t, "bad") == 0 {
						w.src.bad[w.src.until+i] = true
					}
					w.src.until++
				}
				if err := s.Read(t.Context(), t.Context()); !errors.Is(err, errPause) {
					t.Fatal(err)
				}
			},
			"barrier": func(t *rapid.T) {
				s.Check.want.Store(true)
				must(t, s.checkpoint(t.Context(), t.Context()))
			},
			"pack": func(t *rapid.T) { packWaiting(t, rapid.SampledFrom(s.Lanes).Draw(t, "lane")) },
			"force": func(t *rapid.T) {
				l := rapid.SampledFrom(s.Lanes).Draw(t, "lane")
				must(t, l.packer.sealBefore(rapid.IntRange(0, s.interval).Draw(t, "barrier")))
			},
			"acknowledge": func(t *rapid.T) {
				if len(w.flying) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(w.flying)-1).Draw(t, "which")
				w.flying[i]()
				w.flying = append(w.flying[:i], w.flying[i+1:]...)
			},
			"": w.verify,
		})
		newest := s.interval
		for _, l := range s.Lanes {
			packWaiting(t, l)
			must(t, l.packer.sealBefore(math.MaxInt))
		}
		w.verify(t)
		for _, f := range w.flying {
			f()
			w.verify(t)
		}
		if w.saved != newest {
			t.Fatalf("everything is acknowledged and barrier %d of %d is complete", w.saved, newest)
		}
	})
}

// checkpoints is a segmenter with its lanes, whose messages are acknowledged when a test says so.
type checkpoints struct {
	src       *replay
	segmenter *Segmenter
	acked     map[string]bool // identities and bad lines
	flying    []func()        // acknowledgements to come
	saved     int             // the barrier that was complete last
}

func newCheckpoints(t *rapid.T, lanes int) *checkpoints {
	const segments = 8
	w := &checkpoints{src: &replay{bad: map[int]bool{}}, acked: map[string]bool{}}
	track := NewTracker(lanes)
	w.segmenter = &Segmenter{
		Source: w.src, Counts: make([]uint64, segments), Tracker: track, Count: new(Tally),
		Check: &Checkpointer{Tracker: track, Max: 1 << 40}, Trial: codec.NewBuilder(0), Quarantines: true,
	}
	w.segmenter.OnBad = func(bad *source.BadInput, interval int) error {
		track.Opened(interval)
		w.fly(interval, "bad "+bad.Where)
		return nil
	}
	for range lanes {
		p := newTestPacker(segments, rapid.IntRange(1, 6).Draw(t, "most"), 1<<30, func(c *Message) error {
			e, err := codec.Open(c.Text, codec.Limits{})
			if err != nil {
				return err
			}
			var ids []string
			for _, task := range e.Tasks {
				ids = append(ids, fmt.Sprintf("%d/%d %s", c.Segment, task.N, task.Body))
			}
			w.fly(c.Interval, ids...)
			return nil
		})
		p.Opened = track.Opened
		l := NewLane(p)
		l.Passed = track.Passed
		w.segmenter.Lanes = append(w.segmenter.Lanes, l)
	}
	return w
}

// fly puts a message on its way, which holds what these identities name.
func (w *checkpoints) fly(interval int, ids ...string) {
	w.flying = append(w.flying, func() {
		for _, id := range ids {
			w.acked[id] = true
		}
		w.segmenter.Tracker.Done(interval)
	})
}

// packWaiting has a lane pack all that was read for it.
func packWaiting(t *rapid.T, l *Lane) {
	var q laneQueue
	must(t, l.flush(t.Context()))
	l.swap(&q)
	must(t, l.pack(&q))
}

// verify checks the barrier that is complete now: all before it is acknowledged, and its counters
// are those of what is before it.
func (w *checkpoints) verify(t *rapid.T) {
	b, _, _, _ := w.segmenter.Tracker.fetch()
	if b == nil {
		return
	}
	if b.number < w.saved {
		t.Fatalf("barrier %d after barrier %d", b.number, w.saved)
	}
	w.saved = b.number
	var cursor, bad int
	fmt.Sscan(string(b.at.Cursor), &cursor)
	counts := make([]uint64, len(w.segmenter.Counts))
	for i := range cursor {
		if w.src.bad[i] {
			bad++
			if !w.acked[fmt.Sprint("bad ", i)] {
				t.Fatalf("barrier at %d: the bad line %d is not acknowledged", cursor, i)
			}
			continue
		}
		segment := shardmap.Segment(replayKey(i), len(counts))
		if id := fmt.Sprintf("%d/%d %d", segment, counts[segment], i); !w.acked[id] {
			t.Fatalf("barrier at %d: task %s is not acknowledged", cursor, id)
		}
		counts[segment]++
	}
	if fmt.Sprint(counts) != fmt.Sprint(b.at.Counts) || bad != int(b.at.Quarantined) {
		t.Fatalf("barrier at %d: counters %v, want %v; %d bad lines, want %d",
			cursor, b.at.Counts, counts, b.at.Quarantined, bad)
	}
}

// A barrier older than its age limit forces what it waits for to be sealed, and
// nothing else.
func TestAnOldBarrierForcesWhatItWaitsForToBeSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		track := NewTracker(1)
		var mu sync.Mutex // guards sealed and savedAt
		var sealed []uint32
		savedAt := time.Time{}
		p := newTestPacker(8, 0, 1<<30, func(c *Message) error {
			mu.Lock()
			defer mu.Unlock()
			sealed = append(sealed, c.Segment)
			track.Done(c.Interval)
			return nil
		})
		p.Opened = track.Opened
		l := NewLane(p)
		l.Passed = track.Passed
		c := &Checkpointer{
			Tracker: track, Lanes: []*Lane{l}, Every: time.Second, Age: 10 * time.Second, Max: 1 << 40, Saved: make(chan struct{}, 1),
			Save: func(context.Context, []byte) error {
				mu.Lock()
				defer mu.Unlock()
				savedAt = time.Now()
				return nil
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.Run(ctx) }()
		go func() { _ = c.Run(ctx, nil) }()
		offer := func(segment uint32) {
			if err := errors.Join(l.append(ctx, segment, 0, &source.Record{Body: []byte("x")}), l.flush(ctx)); err != nil {
				t.Error(err)
			}
		}
		offer(1)
		offer(2)
		b := &Barrier{taken: time.Now()}
		track.take(b)
		l.mark(b.number)
		offer(3)
		began := time.Now()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		mu.Lock()
		proof.Same(t, len(sealed), 0, "sealed", sealed, "too early")
		mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		proof.Same(t, fmt.Sprint(sealed), "[1 2]", "sealed", sealed, "what came before the barrier")
		if after := savedAt.Sub(began); after < 10*time.Second || after > 11*time.Second {
			t.Errorf("saved after %v", after)
		}
		mu.Unlock()
		cancel()
		synctest.Wait()
	})
}

func BenchmarkPack(b *testing.B) {
	line := []byte(`{"city":"Bern","id":12345678,"note":"a line of about one hundred and thirty bytes, like the ones people have","x":[1,2,3]}`)
	tasks := 0
	p := newTestPacker(256, 0, DefaultMaxOpen, func(c *Message) error {
		tasks += c.Tasks
		Texts.Put(&c.Text)
		return nil
	})
	b.SetBytes(int64(len(line)))
	n := uint64(0)
	for b.Loop() {
		copy(line[20:], fmt.Appendf(nil, "%08d", n*2654435761%100000000))
		must(b, p.add(uint32(n%256), codec.Task{N: n, Key: line[9:13], Body: line}, time.Time{}))
		n++
	}
}
