package processor

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/storage"
)

// others says what becomes of a message whose segment this process does not hold:
// it is brought home if that is this process's task (P6.4), else put back for its
// owner (P7). Nothing is unpacked for either, and neither is an attempt.
func (r *processing) others(d *delivery) *wholly {
	d.started.Store(true)
	if r.stopping.Load() { // it will not be here again, so others may have it now
		return &wholly{pass: true}
	}
	if r.mine(d.header.Segment) { // and its ledger will not be so soon
		return r.notNow(d, lobbyStuck)
	}
	s := r.share.Load()
	if home := s.stray(d.shard, d.header.Segment); home != nil {
		return &wholly{forward: home}
	}
	return &wholly{pass: true, delay: s.pass(r.jitter, d.shard, d.header.Segment, d.id, d.dequeued, r.lease())}
}

// forward makes the copy of a message that goes to its segment's home. A text that
// no distributor made is wrapped, so that it keeps its identity (P1.4), if that fits.
func (r *processing) forward(d *delivery, home *queues.Queue) []poisonOrRest {
	text := slices.Clone(d.text)
	if wrapped, ok := wrapped(d, d.header.Attempt); ok {
		text = wrapped
	}
	return []poisonOrRest{{shard: home, text: text, tasks: d.count, forward: true, segment: d.header.Segment}}
}

// wrapped is a text that no distributor made as an envelope that says its name. It is not ok if there is no
// room: the text is close to 64 KiB and does not compress.
func wrapped(d *delivery, attempt uint32) (text []byte, ok bool) {
	if d.foreign == "" {
		return nil, false
	}
	h := d.header
	h.Attempt = attempt
	for _, most := range [...]int{storage.MaxText - codec.DefaultHeadroom, storage.MaxText} {
		b := codec.NewBuilder(most)
		b.Reset(h)
		if fits, err := b.Add(codec.Task{ID: []byte(d.foreign), Body: d.text}); err == nil && fits {
			text, _, err = b.Seal(nil)
			return text, err == nil
		}
	}
	return nil, false
}

// errNotHome: a message is not to be brought where it was meant to go.
var errNotHome = errors.New("pump: the shard map that says where the message belongs is too old, or there is another")

// bringHome puts the copy that forward has made. Trying and the budget may have kept
// it waiting for long, so where it belongs is asked again in the last moment.
func (r *processing) bringHome(d *delivery, c *poisonOrRest) error {
	about := c.shard.Digest(c.text)
	if err := c.shard.Pay(r.wire, quota.ClassPut, 1, queues.OpPut, about); err != nil {
		return err
	}
	s := r.share.Load()
	if s.stray(d.shard, c.segment) != c.shard {
		return errNotHome
	}
	if err := c.shard.PutBy(r.wire, s.view.Read, c.text, 0, about); err != nil {
		return err
	}
	r.counts.forwarded.Add(1)
	r.member.Load().NudgeOwner(c.shard, c.segment)
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
func (h *ownerHints) later(d *delivery, delay time.Duration) {
	if !d.whole.hint {
		return
	}
	owner, live := h.r.share.Load().view.OwnerOf(d.header.Segment)
	if !live || owner.Instance == h.r.cfg.Instance {
		return
	}
	key := ownerHint{d.shard, owner.Instance}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits[key] {
		return
	}
	h.waits[key] = true
	segment := d.header.Segment
	time.AfterFunc(inWholeSeconds(delay), func() {
		h.mu.Lock()
		delete(h.waits, key)
		h.mu.Unlock()
		h.r.member.Load().NudgeOwner(d.shard, segment)
	})
}

// inWholeSeconds rounds a delay up to the service's unit: it hides a message for whole seconds.
func inWholeSeconds(delay time.Duration) time.Duration {
	return (delay + time.Second - 1).Truncate(time.Second)
}
