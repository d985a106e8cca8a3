package scenario

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/queuepump/queuepump/loadtest/report"
)

// Groups of tasks that are looked at by themselves. In a test with bursts each burst
// is a group, counted from 1.
const (
	groupRest = 0
	groupHot  = 1
)

// recorder notes what becomes of each task. It is for many goroutines at once.
type recorder struct {
	id    string
	began time.Time

	sent        atomic.Int64
	handledSome chan struct{} // has a token when tasks were handled since it was last empty

	mu         sync.Mutex // guards what follows
	seen       []uint64   // a bit for each task that was handled
	handled    int64      // different ones
	duplicates int64
	strangers  int64
	last       time.Duration // when the handling of the last new one began
	interval   latencies     // since the last interval ended
	phase      latencies     // since the last phase ended
	groups     map[uint8]*groupSeen
}

type groupSeen struct {
	handled int64
	last    time.Duration
	latencies
}

func newRecorder(id string) *recorder {
	return &recorder{
		id: id, began: time.Now(), handledSome: make(chan struct{}, 1),
		interval: newLatencies(), phase: newLatencies(), groups: map[uint8]*groupSeen{},
	}
}

// start sets the zero of all times.
func (r *recorder) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = time.Now()
}

// now is the time since the load began. Only goroutines that were started after start call it.
func (r *recorder) now() time.Duration { return time.Since(r.began) }

// waiting is how many tasks are sent and not handled.
func (r *recorder) waiting() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent.Load() - r.handled
}

// maxTasks bounds the memory for what was seen, also against tasks of other programs: 128 MiB.
const maxTasks = 1 << 30

// begins notes that the handling of a task begins.
func (r *recorder) begins(body []byte) {
	t, ok := readTask(body, r.id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok || t.n >= maxTasks || int64(t.n) >= r.sent.Load() {
		r.strangers++
		return
	}
	word, bit := t.n/64, uint64(1)<<(t.n%64)
	if need := int(word) + 1 - len(r.seen); need > 0 {
		r.seen = append(r.seen, make([]uint64, need)...)
	}
	if r.seen[word]&bit != 0 {
		r.duplicates++
		return
	}
	r.seen[word] |= bit
	r.handled++
	now := time.Since(r.began)
	r.last = now
	r.interval.add(now, t)
	r.phase.add(now, t)
	if t.group != groupRest || len(r.groups) > 0 {
		r.grouped(t, now)
	}
	select {
	case r.handledSome <- struct{}{}:
	default:
	}
}

func (r *recorder) grouped(t task, now time.Duration) {
	g := r.groups[t.group]
	if g == nil {
		g = &groupSeen{latencies: newLatencies()}
		r.groups[t.group] = g
	}
	g.handled++
	g.last = now
	g.add(now, t)
}

// latencies are the times until the handling of tasks began: since they were due, if they had a
// schedule, and since they were sent.
type latencies struct{ schedule, send *hdrhistogram.Histogram }

// The histograms tell times from a microsecond to a day apart to a tenth of a per cent.
const (
	shortest = int64(time.Microsecond)
	longest  = int64(24 * time.Hour)
	digits   = 3
)

func newLatencies() latencies {
	return latencies{
		hdrhistogram.New(1, longest/shortest, digits),
		hdrhistogram.New(1, longest/shortest, digits),
	}
}

// add notes that a task was begun to be handled.
func (l latencies) add(now time.Duration, t task) {
	put := func(h *hdrhistogram.Histogram, d time.Duration) {
		// within its bounds, which is all that can fail
		_ = h.RecordValue(min(max(int64(d), shortest), longest) / shortest)
	}
	if t.at != noSchedule {
		put(l.schedule, now-t.at)
	}
	put(l.send, now-t.sent)
}

func (l latencies) reset() {
	l.schedule.Reset()
	l.send.Reset()
}

// latency is a histogram as it is reported.
func latency(h *hdrhistogram.Histogram) report.Latency {
	l := report.Latency{Count: h.TotalCount()}
	if l.Count == 0 {
		return l
	}
	seconds := func(v float64) *float64 { return new(v * float64(shortest) / float64(time.Second)) }
	at := func(q float64) *float64 { return seconds(float64(h.ValueAtQuantile(q))) }
	l.Mean, l.Max = seconds(h.Mean()), seconds(float64(h.Max()))
	l.P50, l.P90, l.P99, l.P999 = at(50), at(90), at(99), at(99.9)
	return l
}
