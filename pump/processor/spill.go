package processor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/poll"
)

// When a spill mark is taken back.
const (
	// spillQuiet is for how long a marked queue must have brought nothing of the segment. Messages
	// that were put back, or a put that was under way when the mark was set, may come later. They are
	// strays then, and the queue's sweeper brings them home.
	spillQuiet = time.Minute
	// spillLeast is the least age of a mark: a distributor that relies on it may have read it, and the
	// map, as long ago as maps are believed, and a put takes a request's time.
	spillLeast = workload.MapMaxAge + waits.RequestTimeout
	// spillEvery is how often that is looked at.
	spillEvery = 10 * time.Second
)

// spillWatch follows the marks of held segments, and takes back marks that are not needed any more.
// Only the owner does that.
type spillWatch struct {
	*base.Env
	poller *poll.Poller

	mu    sync.Mutex // guards what follows
	marks map[spillKey]*spillMark
}

type spillKey struct {
	segment uint32
	choice  int
}

// spillMark is a mark as this process has seen it.
type spillMark struct {
	queue, home *queues.Queue
	since       time.Time // when it was first seen
	last        time.Time // when the queue last brought a message of the segment, or since
}

// follow notes which marks there are.
func (w *spillWatch) follow(s *base.Assignment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(s.Spills) == 0 && len(w.marks) == 0 {
		return
	}
	now := time.Now()
	old := w.marks
	w.marks = make(map[spillKey]*spillMark, len(s.Spills))
	for _, sp := range s.Spills {
		k := spillKey{sp.Segment, sp.Choice}
		queue, home := s.Shards[sp.Shard], s.Shards[s.Of.Home(sp.Segment)]
		m := old[k]
		if m == nil || m.queue != queue || m.home != home { // a new map may mean another queue by it
			m = &spillMark{queue: queue, home: home, since: now, last: now}
		}
		w.marks[k] = m
	}
}

// got notes that a queue brought a message of a segment that is held here.
func (w *spillWatch) got(from *queues.Queue, segment uint32, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.marks) == 0 {
		return
	}
	for choice := 1; choice <= spillChoices; choice++ {
		if m := w.marks[spillKey{segment, choice}]; m != nil && m.queue == from {
			m.last = sent
		}
	}
}

// spillChoices is how many queues besides its home a segment may have messages in.
const spillChoices = 2

// over lists the segments whose marks are not needed any more, by choice.
func (w *spillWatch) over(now time.Time) (by [spillChoices + 1][]uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, m := range w.marks {
		if m.queue == nil || m.home == nil || now.Sub(m.since) < spillLeast {
			continue
		}
		// Silence counts as far as the queue was read.
		if read, _ := w.poller.LastAnswer(m.queue); read.Sub(m.last) < spillQuiet {
			continue
		}
		if _, well := w.poller.LastAnswer(m.home); well {
			by[k.choice] = append(by[k.choice], k.segment)
		}
	}
	for _, segments := range by {
		slices.Sort(segments) // so that requests do not depend on a map's order (P9)
	}
	return by
}

// run takes back marks until the context ends.
func (w *spillWatch) run(ctx context.Context) {
	waits.Every(ctx, spillEvery, func(now time.Time) { w.clear(ctx, now) })
}

func (w *spillWatch) clear(ctx context.Context, now time.Time) {
	by := w.over(now)
	for choice, segments := range by {
		if len(segments) == 0 || w.Stopping.Load() {
			continue
		}
		try, cancel := context.WithTimeout(ctx, waits.RequestTimeout)
		err := w.Member.Load().ClearSpill(try, segments, choice)
		cancel()
		if err != nil {
			w.Log.Warn("a spill mark could not be taken back; it is tried again",
				"segments", segments, "choice", choice, "error", err)
			continue
		}
		w.forget(segments, choice)
		w.Log.Info("tasks go only to their homes again", "segments", segments, "choice", choice)
	}
}

// forget makes removed marks count as new if they are seen again: others may set them before this
// process has looked.
func (w *spillWatch) forget(segments []uint32, choice int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range segments {
		delete(w.marks, spillKey{s, choice})
	}
}
