package trial

import (
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// How many deliveries that left no trace make a message suspicious.
const (
	// suspectAfter of them can be an accident if a queue has one owner: a get with a lost answer, a
	// machine that went away, a hand-over.
	suspectAfter = 3
	// suspectOwner more are no sign of guilt for each further owner of the queue: each owner gets
	// others' messages and puts them back (P7). Measured of 2,000 healthy messages: the median of 8
	// owners is 7 deliveries, 99 in 100 have at most 69, the most is 82; of 16 owners it is 13, 83 and
	// 124. One or two in a hundred are split then, which costs about as many requests as three more
	// deliveries to each owner; guilt takes 45 deaths among 8 owners to find.
	suspectOwner = 10
	// readersKept is for how long the most owners that a queue had are remembered: when most owners
	// leave, its messages still have the counts from before.
	readersKept = 15 * time.Minute
)

// Suspects reports whether a message has come back often enough for its tasks to
// be suspected of ending their processes.
func (t *Trials) Suspects(d *message.Delivery) bool {
	if c := t.Recorder; c != nil && c.States.Full(d.Header.Segment) {
		return false // it was put back for want of room (internal/record/full.go)
	}
	n := d.Traceless()
	return n >= suspectAfter && n >= SuspiciousAfter(t.readersOf(d))
}

// SuspiciousAfter is after how many deliveries without a trace a message is suspicious, by the
// number of owners of its queue.
func SuspiciousAfter(owners int) int64 { return suspectAfter + suspectOwner*int64(owners-1) }

// readersOf is how many processors may have passed a message on to each other.
func (t *Trials) readersOf(d *message.Delivery) int {
	s := t.Assignment.Load()
	if s == nil || s.View.Workload.Shared {
		return 1 // the processor that gets it keeps it
	}
	if s.Shards[s.Of.Home(d.Header.Segment)] != d.Queue {
		// marks and sweepers of any time decide which of them look here
		return max(1, len(s.View.Processors()))
	}
	return t.readers.most(d.Queue)
}

// readerCounts remembers how many processors have lately looked into queues.
type readerCounts struct {
	mu sync.Mutex // guards what follows
	of map[*queues.Queue]readerCount
}

type readerCount struct {
	readers int
	until   time.Time
}

// Follow takes the counts of a new view.
func (t *Trials) Follow(s *base.Assignment) { t.readers.follow(s) }

func (c *readerCounts) follow(s *base.Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[*queues.Queue]readerCount{}
	}
	now := time.Now()
	for i, q := range s.Shards {
		if q == nil {
			continue
		}
		// While messages of other homes are looked for in a queue, its own are passed on as often.
		if old := c.of[q]; s.Readers[i] >= old.readers || !now.Before(old.until) {
			c.of[q] = readerCount{s.Readers[i], now.Add(readersKept)}
		}
	}
}

func (c *readerCounts) most(q *queues.Queue) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(1, c.of[q].readers)
}

// outOfTrials reports whether a single task has had all of its attempts, the last of them alone in
// a process. Attempts by themselves do not say so: they may be failures under a larger MaxAttempts.
func (t *Trials) outOfTrials(d *message.Delivery) bool {
	most := t.o.MaxAttempts()
	return most > 0 && int64(d.Header.Attempt) >= int64(most) &&
		d.AloneTrials() >= min(aloneAttempts, most)
}

// KillsProcess gives the quarantine of a single task that comes back although it is out of
// attempts: its last attempt was written down before it began, and nothing was heard of it.
// Otherwise KillsProcess is nil.
func (t *Trials) KillsProcess(d *message.Delivery) *message.Disposition {
	if d.Count != 1 || d.Trial || !t.outOfTrials(d) || !t.Suspects(d) {
		return nil
	}
	return &message.Disposition{
		Reason: codec.ReasonEndsProcess,
		Detail: fmt.Sprintf("%d attempts; the last ones ended without a word from the process "+
			"that made them, which died, was cut off, or lost the message", d.Header.Attempt),
	}
}

// Acquits reports whether a message that a live process puts back should be put as a new message,
// so that its deliveries count from zero: it would be suspicious when it comes back, although its
// tasks have not ended a process. (A handler that gives tasks back again and again would otherwise
// have every message cut into single tasks.) A message of one task keeps its deliveries, or the
// findings about it would be forgotten. It is put as a new message if there are no findings yet and
// it goes back because its segment is not ready here.
func (t *Trials) Acquits(d *message.Delivery) bool {
	paused := d.Whole != nil && d.Whole.Paused
	untried := paused && d.Header.Attempt == 0 // so there are no findings
	switch {
	case d.Whole != nil && !d.Whole.Ours,
		d.Count == 1 && (d.Whole == nil || t.Suspects(d) && !untried):
		return false
	case t.Assignment.Load().Foreign(d.Queue): // this workload puts nothing there
		return false
	}
	if _, ok := d.Wrap(d.Header.Attempt); d.Foreign != "" && !ok {
		return false // as a new message it would have another id (P1.4)
	}
	owners := t.readersOf(d)
	if paused {
		owners = 1 // as there may be, of the many of today, when its pause is over
	}
	return d.Traceless()+int64(owners) >= SuspiciousAfter(owners) && t.Keeper.Trusted(d)
}

// PlanPutBack puts back a message with no finished task if it is acquitted, or if its attempt was
// written down: the attempt is taken back. Otherwise PlanPutBack is nil.
func (t *Trials) PlanPutBack(d *message.Delivery, delay time.Duration, released int) *message.Plan {
	switch {
	case d.Written == message.WrittenInRow:
		d.Untried = true
	case t.Acquits(d): // the new text is from before the attempt
		text, ok := d.Wrap(d.Header.Attempt)
		if !ok {
			text = d.Text
		}
		return &message.Plan{
			Copies: []message.Copy{{Queue: d.Queue, Text: text, Delay: delay, Tasks: d.Count}},
			Final:  message.StepDelete, Released: released,
		}
	case d.Written == message.WrittenInText:
		if text, ok := t.UntriedText(d); ok {
			return &message.Plan{Final: message.StepReplace, Text: text, Delay: delay, Released: released}
		}
	}
	return nil
}
