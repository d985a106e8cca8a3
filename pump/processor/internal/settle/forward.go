package settle

import (
	"errors"
	"slices"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// forward makes the copy of a message that goes to its segment's home. A text that no distributor
// made is wrapped, so that it keeps its identity (P1.4), if that fits.
func (r *Settlers) forward(d *message.Delivery, to *queues.Queue) []message.Copy {
	text := slices.Clone(d.Text)
	if wrapped, ok := d.Wrap(d.Header.Attempt); ok {
		text = wrapped
	}
	return []message.Copy{{
		Queue: to, Text: text, Tasks: d.Count, Forward: true, Segment: d.Header.Segment,
	}}
}

// errNotHome: a message is not to be brought where it was meant to go.
var errNotHome = errors.New(
	"the shard map that says where the message belongs is too old, or there is another",
)

// bringHome puts the copy that forward has made. Retries and the budget may have kept the copy
// waiting for long, so its place is asked again at the last moment.
func (r *Settlers) bringHome(d *message.Delivery, c *message.Copy) error {
	about := c.Queue.Digest(c.Text)
	if err := c.Queue.Pay(r.Wire, queues.ClassPut, 1, queues.OpPut, about); err != nil {
		return err
	}
	s := r.Assignment.Load()
	if s.Stray(d.Queue, c.Segment) != c.Queue {
		return errNotHome
	}
	if err := c.Queue.PutBy(r.Wire, s.View.Read, c.Text, 0, about); err != nil {
		return err
	}
	r.refuse.Delete(c.Queue)
	r.Counts.Forwarded.Add(1)
	if d.Foreign != "" {
		r.Counts.Foreign.Add(1)
	}
	r.Member.Load().NudgeOwner(c.Queue, c.Segment)
	return nil
}
