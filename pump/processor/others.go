package processor

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// others says what becomes of a message whose segment this process does not hold:
// it is brought home if that is this process's task (P6.4), else put back for its
// owner (P7). Nothing is unpacked for either, and neither is an attempt.
func (r *processing) others(d *message.Delivery) *message.Disposition {
	d.Started.Store(true)
	if r.Stopping.Load() { // it will not be here again, so others may have it now
		return &message.Disposition{Pass: true}
	}
	if r.mine(d.Header.Segment) { // and its ledger will not be so soon
		return r.notNow(d, lobbyStuck)
	}
	s := r.Assignment.Load()
	if home := s.Stray(d.Shard, d.Header.Segment); home != nil {
		return &message.Disposition{Forward: home}
	}
	return &message.Disposition{Pass: true, Delay: s.Pass(r.Jitter, d.Shard, d.Header.Segment, d.ID, d.Dequeued, r.lease())}
}

// forward makes the copy of a message that goes to its segment's home. A text that
// no distributor made is wrapped, so that it keeps its identity (P1.4), if that fits.
func (r *processing) forward(d *message.Delivery, home *queues.Queue) []message.Copy {
	text := slices.Clone(d.Text)
	if wrapped, ok := d.Wrap(d.Header.Attempt); ok {
		text = wrapped
	}
	return []message.Copy{{Shard: home, Text: text, Tasks: d.Count, Forward: true, Segment: d.Header.Segment}}
}

// errNotHome: a message is not to be brought where it was meant to go.
var errNotHome = errors.New("pump: the shard map that says where the message belongs is too old, or there is another")

// bringHome puts the copy that forward has made. Trying and the budget may have kept
// it waiting for long, so where it belongs is asked again in the last moment.
func (r *processing) bringHome(d *message.Delivery, c *message.Copy) error {
	about := c.Shard.Digest(c.Text)
	if err := c.Shard.Pay(r.Wire, quota.ClassPut, 1, queues.OpPut, about); err != nil {
		return err
	}
	s := r.Assignment.Load()
	if s.Stray(d.Shard, c.Segment) != c.Shard {
		return errNotHome
	}
	if err := c.Shard.PutBy(r.Wire, s.View.Read, c.Text, 0, about); err != nil {
		return err
	}
	r.Counts.Forwarded.Add(1)
	r.Member.Load().NudgeOwner(c.Shard, c.Segment)
	return nil
}

// ownerHints tells owners when a message of theirs becomes visible that this process has
// put back: in a queue that many share the others would otherwise go on getting it
// by chance, and the last of a thousand messages waits for minutes (P7). Where a
// queue gives as many messages as it is asked for, its owners read it all the time,
// and are told only of what was hidden for a while.
type ownerHints struct {
	r *processing

	mu    sync.Mutex // guards what follows
	waits map[ownerHint]bool
}

// ownerHint is about one queue to one owner. One is enough at a time.
type ownerHint struct {
	queue *queues.Queue
	owner string
}

func newOwnerHints(r *processing) *ownerHints {
	return &ownerHints{r: r, waits: map[ownerHint]bool{}}
}

// later tells the owner of a message that was put back, when its delay is over.
func (h *ownerHints) later(d *message.Delivery, delay time.Duration) {
	if !d.Whole.Hint {
		return
	}
	owner, live := h.r.Assignment.Load().View.OwnerOf(d.Header.Segment)
	if !live || owner.Instance == h.r.Cfg.Instance {
		return
	}
	key := ownerHint{d.Shard, owner.Instance}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits[key] {
		return
	}
	h.waits[key] = true
	segment := d.Header.Segment
	time.AfterFunc(leases.InWholeSeconds(delay), func() {
		h.mu.Lock()
		delete(h.waits, key)
		h.mu.Unlock()
		h.r.Member.Load().NudgeOwner(d.Shard, segment)
	})
}
