package record

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// Names of done tasks without a run ("Names" in package ledger): when they are forgotten, and what
// happens while a segment keeps as many as it may.
const (
	// namesKept is for how long a name is kept at least if there are many, while all queues answer. A
	// copy of its task has come by then: without a wish of the user no message is hidden for longer.
	namesKept = 15 * time.Minute
	// A message that waits for room is put back for half as long as its segment has had none.
	namesWaitLeast = 5 * time.Second
	namesWaitMost  = 2 * time.Minute
	// namesWaited is after how long with room a segment counts as one with room.
	namesWaited = 5 * time.Minute
)

// Deleted tells the ledger of a delete that was acknowledged, if it ended the task for good: the
// message was delivered once only, and as its producer put it, so that no process can have made a
// copy of it.
func (c *Recorder) Deleted(d *message.Delivery) {
	if s := d.Plan; s.Final == message.StepDelete && s.Recorded && d.Foreign != "" && d.Dequeued == 1 {
		c.Ledger.DeletedForeign(d.Header.Segment, d.Foreign)
	}
}

// pruneNames lets names go that are old, where they are many.
func (c *Recorder) pruneNames(ctx context.Context) error {
	before := time.Time{}
	// Copies may wait behind other work, and so may a message of a foreign queue that was brought
	// home and whose delete was lost.
	foreign, known := c.r.Assignment.Load().UnreadForeign()
	if dark, all := c.parts.Answered(); all && known && time.Since(dark) >= namesKept {
		before = time.Now().Add(-namesKept - max(c.parts.Unread(), foreign))
	}
	c.Ledger.AgeForeign(before)
	try, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	return c.Ledger.SweepForeign(try)
}

// crowdedForeign puts a message back whose segment keeps as many names as it may.
func (c *Recorder) crowdedForeign(d *message.Delivery, err error) *message.Disposition {
	c.r.AlarmOnce("foreign", "foreign messages wait, "+
		"because their segment keeps as many names of done ones as it may, "+
		"whose deletes were not acknowledged: see whether all accounts answer",
		append(d.Attrs(), "names_most", ledger.MaxForeign, "error", err)...)
	delay := c.Names.refused(d.Header.Segment)
	return &message.Disposition{
		Delay: c.r.Jitter.Around(delay, "names", d.ID, uint64(max(d.Dequeued, 1))), Ours: true,
	}
}

// fullNames are the segments in which foreign messages have lately waited for room.
type fullNames struct {
	mu sync.Mutex // guards what follows
	of map[uint32]fullName
}

type fullName struct{ since, last time.Time }

// refused notes that a message waits, and gives for how long.
func (f *fullNames) refused(segment uint32) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	s, is := f.of[segment]
	if !is || now.Sub(s.last) > namesWaited {
		s.since = now
	}
	s.last = now
	if f.of == nil {
		f.of = map[uint32]fullName{}
	}
	f.of[segment] = s
	return min(max(now.Sub(s.since)/2, namesWaitLeast), namesWaitMost)
}

// Count is in how many segments messages wait, or did lately.
func (f *fullNames) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.of, func(_ uint32, s fullName) bool { return time.Since(s.last) > namesWaited })
	return len(f.of)
}
