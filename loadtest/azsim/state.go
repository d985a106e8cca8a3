package azsim

import (
	"maps"
	"math"
	"net/http"
	"slices"
)

// Texts are the texts of all messages of a queue, also of messages that no client sees now; nil
// without such a queue.
func (s *Sim) Texts(account, queue string) (texts [][]byte) {
	a := s.accounts[account]
	if a == nil {
		return nil
	}
	q := a.stores.Load().queues.(*queueStore).find(queue, s.now())
	if q == nil {
		return nil
	}
	defer q.mu.Unlock()
	for _, m := range q.messages.visible(math.MaxInt64, q.messages.len()) {
		texts = append(texts, []byte(m.text))
	}
	return texts
}

// State is the state into which an account's owner or the service has put it.
type State int32

// The states of an account. Sim.Blackout decides whether a well account can be reached. That the
// name of a deleted account leaves the DNS is from memory.
const (
	Well     State = iota
	Disabled       // every request to it is refused: 403 AccountIsDisabled
	Gone           // its name leads to no host
)

// SetState makes an account disabled, gone or well again. It keeps what it holds: an account that
// was deleted can be recovered. To make another account of its name, call Reset first. It does
// nothing for an account that does not exist.
func (s *Sim) SetState(account string, st State) {
	if a := s.accounts[account]; a != nil {
		a.state.Store(int32(st))
	}
}

// meets tells whether the account is in a state for this request.
func (r *request) meets(st State) bool { return !r.spared && State(r.account.state.Load()) == st }

func (r *request) disabled() reply {
	return r.fail(http.StatusForbidden, "AccountIsDisabled", "")
}

// DeleteQueues deletes queues of an account with what is in them, or all its queues if none is
// named, as somebody does who does not use the pump. It returns how many there were. Their names
// stay taken as after any deletion (Config.BeingDeleted).
func (s *Sim) DeleteQueues(account string, names ...string) (n int) {
	a := s.accounts[account]
	if a == nil {
		return 0
	}
	store := a.stores.Load().queues.(*queueStore)
	if len(names) == 0 {
		store.mu.RLock()
		names = slices.Sorted(maps.Keys(store.queues))
		store.mu.RUnlock()
	}
	for _, name := range names {
		if store.remove(name, s.now()) {
			n++
		}
	}
	return n
}
