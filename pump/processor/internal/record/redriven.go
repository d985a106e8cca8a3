package record

import (
	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// A redriven task has its number in its run while that lives, and a name when the run has ended or
// its row is gone (P4.4). A redrive that was killed between its put and its delete leaves the task
// in quarantine, and an operator redrives it again. Meanwhile the run may have ended, or its row
// may have come back. So the recorder looks for a task of either identity under the other one, too.

// standing is what is known under its number of a task that has a name.
func (c *Recorder) standing(d *message.Delivery, i int) (recorded, inHand bool) {
	if !d.Runless {
		return false, false
	}
	h := &d.Header
	return c.Ledger.Standing(h.Segment, h.Run, h.Generation, d.Tasks[i].N)
}

// named finds those of a redriven message's fresh tasks that are done under their names: they are
// not started, and are recorded under their numbers, or their run would never be complete. It says
// what to do with the message if none of its tasks is to be started now.
func (c *Recorder) named(d *message.Delivery, b *ledger.Begun) *message.Disposition {
	h := &d.Header
	if !c.Once || h.Generation == 0 || c.asWhole(d) {
		return nil
	}
	var done []uint64
	busy := false
	for n := range b.Fresh.All() {
		name := coordination.TaskRef{Run: h.Run, Segment: h.Segment, N: n}.String()
		recorded, inHand := c.Ledger.StandingForeign(h.Segment, name)
		busy = busy || inHand
		if recorded {
			done = append(done, n)
		}
	}
	rest := b.Fresh.Len() - len(done)
	switch {
	case busy, len(done) > 0 && rest == 0 && b.InHand.Len() > 0:
		c.End(d, d.Begun)
		return c.wait(d)
	case len(done) == 0:
		return nil
	case rest == 0:
		recognised(c.r, d, d.Count)
		return &message.Disposition{Forget: true, Record: true}
	}
	recognised(c.r, d, len(done))
	d.Named, d.Split = codec.MakeNSet(done...), b
	return nil
}
