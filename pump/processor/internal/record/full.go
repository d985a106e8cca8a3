package record

import (
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// A reducer's state that has no room (A13). The ledger refuses a message's result that would make
// the state of its segment too large, and records nothing of it; others may fit. From then on the
// segment's messages are put back before the handler runs, except for one that is tried at the end
// of each pause. Pauses grow. When a result fits, all are tried again. After refusals for
// statePatience every message is tried by itself, and a refused one goes into quarantine with a
// cause of its own when it comes back, before the handler. A live process put such a message back,
// so it is not a suspect (see Acquits and Suspects of package trial).
const (
	// statePauseLeast and statePauseMost bound the pause: half as long as the state has been full.
	statePauseLeast = time.Minute
	statePauseMost  = 15 * time.Minute
	// statePatience is for how long tasks wait for room. In that time a version of the reducer that
	// keeps less can be rolled out, and quarantine keeps what did not fit.
	statePatience = time.Hour
	// stateWarns is the part of the bounds from which on there are warnings.
	stateWarns = 0.5
	// unfitMost bounds how many refused messages are remembered until they come back. Beyond that a
	// message waits and is tried once more.
	unfitMost = 1 << 14
)

// fullStates are the segments whose states have lately had no room. A process that takes a segment
// over knows of no refusal until it sees one itself: then the patience begins again.
type fullStates struct {
	mu     sync.Mutex // guards what follows
	of     map[uint32]*fullState
	warned map[uint32]bool // of being half full
}

type fullState struct {
	since time.Time       // the first refusal
	last  time.Time       // the latest
	until time.Time       // the next try is not before
	unfit map[string]bool // messages that were refused when the patience was over
}

// lately is the segment's state, if results for it were refused within the patience; nil otherwise.
func (f *fullStates) lately(segment uint32, now time.Time) *fullState {
	s := f.of[segment]
	if s != nil && now.Sub(s.last) > statePatience {
		delete(f.of, segment)
		return nil
	}
	return s
}

// Full reports whether results for a segment's state were refused lately.
func (f *fullStates) Full(segment uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lately(segment, time.Now()) != nil
}

// Count is how many segments are full.
func (f *fullStates) Count() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for segment := range f.of {
		if f.lately(segment, time.Now()) != nil {
			n++
		}
	}
	return n
}

// refused notes that there is no room for the result of a message, and gives for how long the
// message should be put back; first is when the state was found full.
func (f *fullStates) refused(
	segment uint32, message string,
) (delay time.Duration, first time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	s := f.lately(segment, now)
	if s == nil {
		if f.of == nil {
			f.of = map[uint32]*fullState{}
		}
		s = &fullState{since: now, unfit: map[string]bool{}}
		f.of[segment] = s
	}
	s.last = now
	if now.Sub(s.since) >= statePatience {
		s.until = time.Time{}
		if len(s.unfit) >= unfitMost && !s.unfit[message] {
			return statePauseLeast, s.since // it would be tried again and again
		}
		s.unfit[message] = true
		return 0, s.since
	}
	delay = min(max(now.Sub(s.since)/2, statePauseLeast), statePauseMost)
	s.until = now.Add(delay)
	return delay, s.since
}

// fits notes that a result was recorded in the segment: others may fit as well.
func (f *fullStates) fits(segment uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.of[segment]; s != nil {
		s.until = time.Time{}
	}
}

// gate says whether a message of the segment is to be put back for a while before its tasks are
// handled, or to go into quarantine; otherwise it is tried.
func (f *fullStates) gate(segment uint32, message string) (delay time.Duration, unfit bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	s := f.lately(segment, now)
	switch {
	case s == nil:
		return 0, false
	case s.unfit[message]:
		// It goes into quarantine, and others have room to be remembered. If it still comes back, it is
		// tried once more.
		delete(s.unfit, message)
		return 0, true
	case now.Before(s.until):
		return s.until.Sub(now), false
	case !s.until.IsZero(): // this message is tried, and the others wait for its outcome
		s.until = now.Add(min(max(now.Sub(s.since)/2, statePauseLeast), statePauseMost))
	}
	return 0, false
}

// Gate is what to do with a message whose segment's state is full, before its tasks are handled;
// nil: try it. A task that goes into quarantine is to be recorded like a begun task.
func (c *Recorder) Gate(d *message.Delivery) *message.Disposition {
	if c.r.Reducer == nil || c.asWhole(d) {
		return nil
	}
	delay, unfit := c.States.gate(d.Header.Segment, d.ID)
	switch {
	case unfit:
		return &message.Disposition{
			Reason: codec.ReasonStateFull,
			Detail: fmt.Sprintf("the reducer's state of segment %d has had no room for it for %v",
				d.Header.Segment, statePatience),
		}
	case delay > 0:
		return &message.Disposition{
			Delay: c.r.Jitter.Around(delay, "state", d.ID, uint64(d.Dequeued)), Ours: true,
		}
	}
	return nil
}

// refusedState puts a message back if its segment's state has no room for its results.
func (c *Recorder) refusedState(d *message.Delivery, err error) (delay time.Duration) {
	delay, since := c.States.refused(d.Header.Segment, d.ID)
	if delay == 0 {
		c.r.AlarmOnce("state",
			"a reducer's state is full; tasks that it has no room for go into quarantine",
			append(d.Attrs(), "full_since", since, "reason", codec.ReasonStateFull, "error", err)...)
		return 0
	}
	c.r.AlarmOnce("state", "a reducer's state is full; "+
		"tasks of its segment wait, and go into quarantine when it stays full: "+
		"keep less of each key, or use more segments",
		append(d.Attrs(), "full_since", since, "quarantine_after", statePatience, "error", err)...)
	return c.r.Jitter.Around(delay, "state", d.ID, uint64(d.Dequeued))
}

// recordedState notes that a message's results are recorded, and warns when the state reaches half
// of its bound.
func (c *Recorder) recordedState(d *message.Delivery) {
	if c.r.Reducer == nil {
		return
	}
	segment := d.Header.Segment
	c.States.fits(segment)
	used := c.Ledger.StateUse(segment)
	if used < stateWarns {
		return
	}
	c.States.mu.Lock()
	first := !c.States.warned[segment]
	if first && c.States.warned == nil {
		c.States.warned = map[uint32]bool{}
	}
	c.States.warned[segment] = true
	c.States.mu.Unlock()
	if first {
		c.r.Log.Warn("a reducer's state takes more than half of what it may have; "+
			"at its bound tasks of the segment wait and then go into quarantine: "+
			"keep less of each key, or use more segments",
			"segment", segment, "used", fmt.Sprintf("%.0f %%", 100*used))
	}
}

// StateUsed is the part of its bounds that the fullest state of this process's segments takes.
func (c *Recorder) StateUsed() (used float64) {
	if c.r.Reducer == nil {
		return 0
	}
	for segment := range c.r.Workload.Map.Segments {
		used = max(used, c.Ledger.StateUse(uint32(segment)))
	}
	return used
}
