package azsim

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// requestWord separates the ids of requests from other draws of the same words.
const requestWord = 0x7265717565737473

// occasion is what "how many-th time" is counted of (P9).
type occasion struct {
	instance, operation, account, object string
}

func (o occasion) hash() uint64 {
	return drawMix(drawHash(o.instance), drawHash(o.operation), drawHash(o.account),
		drawHash(o.object))
}

// words is a hash of everything that a request says; it tells requests of one instant apart. It
// leaves out the pop receipt, because that depends on the order in which requests came.
func (r *request) words(c *call) uint64 {
	query := c.rawQuery
	if r.query.Has("popreceipt") {
		query = r.query.Get("visibilitytimeout")
	}
	return drawMix(drawHash(c.instance), drawHash(r.account.name), drawHash(c.method),
		drawHash(r.path), drawHash(query), xxhash.Sum64(r.body))
}

// maxOccasions bounds the counters: object names come from outside. Beyond it
// all new occasions share one counter, which only costs independence.
const maxOccasions = 1 << 18

// tally counts occasions, kept as their hashes: names may be long, and two
// that collide only share a counter.
type tally struct {
	mu sync.Mutex
	n  map[uint64]uint64 // guarded by mu
}

// next returns how many times o has come up before.
func (t *tally) next(o occasion) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = make(map[uint64]uint64)
	}
	key := o.hash()
	n, known := t.n[key]
	if !known && len(t.n) >= maxOccasions {
		key = 0
		n = t.n[key]
	}
	t.n[key] = n + 1
	return n
}
