package send

import (
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
)

// share is the memory of the messages to one account. An account that takes nothing must not hold
// all of the memory: an account holds at most the larger of a quarter and its even share, and its
// even share if nothing was acknowledged for shareSilent. If the others then have too little to do,
// the account's queues count as at their limit, so that messages without room go to others
// (hinders). Messages in hand stay, and moved messages never wait (Putter.move), so an account may
// hold a little more.
type share struct {
	held   atomic.Int64  // bytes
	silent atomic.Int64  // when the first put since the last acknowledgement was sent; 0: none
	waits  atomic.Int32  // lanes that wait for room
	room   chan struct{} // capacity 1: there may be room
}

// shareSilent is for how long an account may acknowledge nothing before it holds its even share.
const shareSilent = time.Second

func newShare() *share { return &share{room: make(chan struct{}, 1)} }

func (s *share) sent() {
	if s.silent.Load() == 0 {
		s.silent.CompareAndSwap(0, time.Now().UnixNano())
	}
}

func (s *share) acknowledged() {
	if s.silent.Load() != 0 {
		s.silent.Store(0)
	}
}

// take counts a message that comes, or with negative bytes a message that goes.
func (s *share) take(bytes int64) {
	if s.held.Add(bytes) == 0 {
		s.acknowledged() // or went elsewhere; the next message may come hours later
	}
	if bytes < 0 {
		s.wake()
	}
}

func (s *share) wake() {
	if s.waits.Load() > 0 {
		waits.Signal(s.room)
	}
}

// crowded reports whether the account holds as much as it may, of the memory of so many accounts.
func (s *share) crowded(memory int64, accounts int) bool {
	held, even := s.held.Load(), memory/int64(max(accounts, 1))
	return held >= even && (held >= max(memory/4, even) || s.isSilent())
}

// isSilent reports whether the account has acknowledged nothing for shareSilent.
func (s *share) isSilent() bool {
	from := s.silent.Load()
	return from != 0 && time.Now().UnixNano()-from >= int64(shareSilent)
}

// hinders reports whether the account is crowded and keeps others from their work: it acknowledges
// nothing, or the others hold less than half of what it leaves them. (If a few accounts are all
// fully busy, one is always crowded.) Otherwise it reports whether that is over: the account holds
// less than its even share, and acknowledges. All is what all accounts hold.
func (s *share) hinders(memory, all int64, accounts int) (hinders, eased bool) {
	held, even := s.held.Load(), memory/int64(max(accounts, 1))
	silent := s.isSilent()
	hungry := all-held < (memory-max(memory/4, even))/2
	return s.crowded(memory, accounts) && (silent || hungry), held < even && !silent
}

// heldBy is what all accounts of some sinks hold.
func heldBy(sinks []*Sink) (all int64) {
	seen := map[*share]bool{}
	for _, s := range sinks {
		if !seen[s.share] {
			seen[s.share] = true
			all += s.share.held.Load()
		}
	}
	return all
}
