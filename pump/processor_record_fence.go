package pump

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump/control"
)

// When fencing that failed is tried again, and how long one try may take.
const (
	fenceBase    = 250 * time.Millisecond
	fenceMost    = 10 * time.Second
	fenceTimeout = 30 * time.Second
)

// fencing is the right to write a segment's record.
type fencing struct {
	epoch uint64
	at    time.Time // from then on nobody before it can have written
}

// hold gives a segment that this process may take tasks of: it holds it, and if
// there is a ledger it is the one who writes it (P3.2). What a former owner recorded
// is known then, and what that one finishes later is refused.
func (r *processing) hold(segment uint32) (control.Hold, bool) {
	h, ok := r.member.Load().hold(segment)
	if ok && r.recorder != nil && !r.recorder.ledger.Fenced(segment, h.Epoch) {
		return control.Hold{}, false
	}
	return h, ok
}

// fencedAt is since when this process has been the writer of a segment under an epoch.
func (c *recorder) fencedAt(segment uint32, epoch uint64) (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.fenced[segment]
	return f.at, ok && f.epoch == epoch
}

// follow notes what is held now: what is not fenced will be, and of what is not held
// any more nothing begins. Results of it that are finished are recorded all the same, as
// long as nobody else was fenced. It is called with each look at the cluster and each
// change of what is held.
func (c *recorder) follow(m *member) {
	c.ledger.Drop(c.ended(m))
	if len(c.toFence(m)) > 0 {
		signal(c.unfenced)
	}
}

// toFence lists what is held and not fenced.
func (c *recorder) toFence(m *member) (holds []control.Hold) {
	for s := range uint32(c.r.workload.Map.Segments) {
		if h, ok := m.hold(s); ok && !c.ledger.Fenced(s, h.Epoch) {
			holds = append(holds, h)
		}
	}
	return holds
}

// ended takes the segments that are not this member's any more off the list of those
// that are fenced, and gives them in order.
func (c *recorder) ended(m *member) (segments []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range uint32(c.r.workload.Map.Segments) {
		if _, ok := c.fenced[s]; ok && !m.keeps(s) {
			segments = append(segments, s)
			delete(c.fenced, s)
		}
	}
	return segments
}

// fence makes this process the writer of what it holds, until ctx ends.
func (c *recorder) fence(ctx context.Context) {
	m := c.r.member.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.unfenced:
		}
		c.r.cfg.seeding.turn.wait("fence")
		holds := c.toFence(m)
		if len(holds) == 0 {
			continue
		}
		try, cancel := context.WithTimeout(ctx, fenceTimeout)
		done, err := c.ledger.Fence(try, holds)
		cancel()
		c.note(holds, done)
		damaged := int64(0)
		if errors.Is(err, control.ErrCorrupt) {
			damaged = int64(len(holds) - len(done))
		}
		if c.damaged.Swap(damaged) != damaged || len(done) > 0 {
			c.r.follow()
		}
		if err == nil {
			c.trials = 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.tell(err, len(holds)-len(done))
		wait := c.r.jitter.around(doubled(fenceBase, fenceMost, c.trials), "fence", c.r.cfg.Workload, c.trials)
		c.trials++
		if !waitFor(ctx, wait) {
			return
		}
		signal(c.unfenced)
	}
}

// note keeps since when segments are fenced.
func (c *recorder) note(holds []control.Hold, done []uint32) {
	epochs := make(map[uint32]uint64, len(holds))
	for _, h := range holds {
		epochs[h.Segment] = h.Epoch
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range done {
		c.fenced[s] = fencing{epochs[s], now}
	}
}

func (c *recorder) tell(err error, segments int) {
	switch {
	case errors.Is(err, control.ErrFenced):
		// Another claimed the segment since: this process's next look shows it.
		c.r.log.Info("segments belong to a later owner already", "segments", segments, "error", err)
	case errors.Is(err, control.ErrCorrupt):
		c.r.alarmOnce("ledger row", "the ledger of segments cannot be read; their tasks wait", "segments", segments, "error", err)
	default:
		c.r.log.Warn("segments cannot be fenced yet; their tasks wait", "segments", segments, "error", err)
	}
}

// keeps reports whether a segment is this member's, also while it is being handed over.
func (m *member) keeps(segment uint32) bool {
	p := m.presence.Load()
	if p == nil {
		return false
	}
	_, held := p.Hold(segment)
	return held || p.Trusted(segment)
}

// damaged is how many segments are held here that cannot be worked on because their
// rows in the ledger are damaged.
func (r *processing) damaged() int {
	if r.recorder == nil {
		return 0
	}
	return int(r.recorder.damaged.Load())
}
