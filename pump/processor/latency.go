package processor

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is how long tasks took from when their message was ready to be put until their handler
// was started, in seconds: the distributor's budget, the put, the queue, the wait for the next get,
// the fetched messages before it and the opening of its own message together. The times come from a
// histogram with steps of 1 %, or of a millisecond if that is more, so a percentile is too high by
// one step at most.
//
// The times depend on two machines' clocks. If the sender's clock is ahead of the service's, a time
// is not reported shorter than the service's own whole seconds allow.
type Latency struct {
	Tasks int64   `json:"tasks"` // measured tasks; the other fields are zero without any
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

const (
	// latencyMost bounds what is counted: a week, the longest that a task may be put back for.
	latencyMost = 7 * 24 * time.Hour
	// latencyDigits is the number of significant digits. With two of them a histogram of a week
	// in milliseconds takes 25 KiB.
	latencyDigits = 2
	// latencyParts is how many histograms share the work, so that handlers on many cores
	// do not wait for one another.
	latencyParts = 8
	// latencyRecent is what counts as lately: at least that long, at most twice.
	latencyRecent = time.Minute
)

// latencies measures the tasks of one processor. It may be used from many goroutines.
type latencies struct{ parts [latencyParts]latencyPart }

// latencyPart is what some of the slots have measured. Its histograms are made with the first task:
// most processes of a test, and those that only wait, have none.
type latencyPart struct {
	mu            sync.Mutex
	all           *hdrhistogram.Histogram
	recent, older *hdrhistogram.Histogram // of this minute, and of the last
	turned        time.Time               // when recent was begun
	_             [64]byte                // its neighbour's lock is in another cache line
}

func newLatencyHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, latencyMost.Milliseconds(), latencyDigits)
}

// add counts tasks that are started now.
func (l *latencies) add(slot, tasks int, took time.Duration, now time.Time) {
	p := &l.parts[slot%latencyParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all, p.recent, p.older, p.turned = newLatencyHistogram(), newLatencyHistogram(),
			newLatencyHistogram(), now
	}
	p.turn(now)
	ms := min(max(took, 0), latencyMost).Milliseconds()
	_ = p.all.RecordValues(ms, int64(tasks)) // in range
	_ = p.recent.RecordValues(ms, int64(tasks))
}

// turn begins another minute when one is over.
func (p *latencyPart) turn(now time.Time) {
	passed := now.Sub(p.turned)
	if passed < latencyRecent {
		return
	}
	p.recent, p.older = p.older, p.recent
	p.recent.Reset()
	if passed >= 2*latencyRecent {
		p.older.Reset()
	}
	p.turned = now
}

// total is of all tasks so far, lately of those of the last minute or two.
func (l *latencies) total() Latency { return l.merged(time.Time{}) }

func (l *latencies) lately() Latency { return l.merged(time.Now()) }

// merged joins what all parts have measured: everything, or the newest as of now.
func (l *latencies) merged(now time.Time) Latency {
	sum := newLatencyHistogram()
	for i := range l.parts {
		p := &l.parts[i]
		p.mu.Lock()
		switch {
		case p.all == nil:
		case now.IsZero():
			sum.Merge(p.all)
		default:
			p.turn(now)
			sum.Merge(p.recent)
			sum.Merge(p.older)
		}
		p.mu.Unlock()
	}
	n := sum.TotalCount()
	if n == 0 {
		return Latency{}
	}
	at := func(quantile float64) float64 { return float64(sum.ValueAtQuantile(quantile)) / 1e3 }
	return Latency{
		Tasks: n, Mean: sum.Mean() / 1e3, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
		Max: float64(sum.Max()) / 1e3,
	}
}
