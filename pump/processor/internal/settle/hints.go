package settle

import (
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// ownerHints tells owners when a message of theirs that this process has put back becomes visible.
// In a queue that many share, other processors would otherwise go on getting it by chance, and the
// last of a thousand messages would wait for minutes (P7). If a queue gives as many messages as it
// is asked for, its owners read it all the time, and are told only of messages that were hidden for
// a while.
type ownerHints struct {
	*base.Env

	mu    sync.Mutex // guards what follows
	waits map[ownerHint]bool
}

// ownerHint is about one queue to one owner. One is enough at a time.
type ownerHint struct {
	queue *queues.Queue
	owner string
}

func newOwnerHints(env *base.Env) *ownerHints {
	return &ownerHints{Env: env, waits: map[ownerHint]bool{}}
}

// sendLater tells the owner of a message that was put back, when its delay is over.
func (h *ownerHints) sendLater(d *message.Delivery, delay time.Duration) {
	if !d.Whole.Hint {
		return
	}
	owner, live := h.Assignment.Load().View.OwnerOf(d.Header.Segment)
	if !live || owner.Instance == h.Cfg.Instance {
		return
	}
	key := ownerHint{d.Queue, owner.Instance}
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
		h.Member.Load().NudgeOwner(d.Queue, segment)
	})
}
