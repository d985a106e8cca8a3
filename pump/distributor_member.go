package pump

import (
	"context"
	"sync/atomic"
)

// sending is one Run of a Distributor: what lasts over all its distributions.
type sending struct {
	d      *Distributor
	member atomic.Pointer[company] // nil until joined
	tasks  atomic.Uint64           // acknowledged
}

// company is what a distributor has of the other members.
type company interface {
	markSpill(ctx context.Context, segments []uint32, choice int) error
	nudged(n Nudge)
}

func newSending(d *Distributor) *sending { return &sending{d: d} }

func (s *sending) end(context.Context) {}

// landed is told of each envelope of tasks that a queue has acknowledged.
func (s *sending) landed(c *parcel) { s.tasks.Add(uint64(c.tasks)) }

// Nudged takes a hint from another process: the cluster's rows are worth a look.
// It never waits, and may be called at any time.
func (d *Distributor) Nudged(n Nudge) {
	s := d.running.Load()
	if s == nil || n.Queue != "" || n.Gate != "" {
		return
	}
	if m := s.member.Load(); m != nil {
		(*m).nudged(n)
	}
}
