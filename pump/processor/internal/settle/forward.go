package settle

import (
	"errors"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// forward makes the copy of a message that goes to its segment's home, or into a parking queue. A
// text that no distributor made is wrapped, so that it keeps its identity (P1.4), if that fits.
func (r *Settlers) forward(d *message.Delivery, w *message.Disposition) []message.Copy {
	text := slices.Clone(d.Text)
	if wrapped, ok := d.Wrap(d.Header.Attempt); ok {
		text = wrapped
	}
	return []message.Copy{{
		Queue: w.Forward, Text: text, Tasks: d.Count,
		Forward: true, Segment: d.Header.Segment, Parks: w.Parks,
	}}
}

// errNotHome: a message is not to be brought, or parked, where it was meant to go.
var errNotHome = errors.New(
	"pump: the shard map that says where the message belongs is too old, or there is another",
)

// parkLater has what cannot be parked put anew into the message's own queue, for a while: put back
// as it is, it would be suspicious after a few times (P4.2). It is false where nothing is to be
// parked, and for a foreign queue, into which nothing is put.
func (r *Settlers) parkLater(d *message.Delivery, delay time.Duration) bool {
	s := d.Plan
	parks := slices.ContainsFunc(s.Copies, func(c message.Copy) bool { return c.Parks > 0 })
	if !parks || r.Assignment.Load().Foreign(d.Queue) {
		return false
	}
	for i := range s.Copies {
		if c := &s.Copies[i]; c.Parks > 0 {
			c.Queue, c.Delay, c.Forward, c.Parks = d.Queue, delay, false, 0
			s.Released += c.Tasks
		}
	}
	return true
}

// errMade: a parking queue was missing and is there now, so that the put may be tried again.
var errMade = errors.New("pump: the parking queue was missing and has been made")

// bringHome puts the copy that forward has made. Trying and the budget may have kept
// it waiting for long, so where it belongs is asked again in the last moment.
func (r *Settlers) bringHome(d *message.Delivery, c *message.Copy) error {
	about := c.Queue.Digest(c.Text)
	if err := c.Queue.Pay(r.Wire, quota.ClassPut, 1, queues.OpPut, about); err != nil {
		return err
	}
	s := r.Assignment.Load()
	right := s.Stray(d.Queue, c.Segment)
	if c.Parks > 0 {
		right = s.Parking(d.Queue, c.Parks)
	}
	if right != c.Queue {
		return errNotHome
	}
	err := c.Queue.PutBy(r.Wire, s.View.Read, c.Text, 0, about)
	if c.Parks > 0 && queues.NotThere(err) { // the command makes them all but in accounts in trouble
		if err = c.Queue.Create(r.Wire, r.Log); err == nil {
			return errMade
		}
	}
	if err != nil {
		return err
	}
	if c.Parks > 0 {
		r.Counts.Parked.Add(int64(c.Tasks))
		return nil
	}
	r.Counts.Forwarded.Add(1)
	if d.Foreign != "" {
		r.Counts.Foreign.Add(1)
	}
	r.Member.Load().NudgeOwner(c.Queue, c.Segment)
	return nil
}
