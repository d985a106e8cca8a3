package azsim

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// requestWord tells the ids of requests from what else comes of the same words.
const requestWord = 0x7265717565737473

// occasion is what "how many-th time" is counted of (P9).
type occasion struct {
	instance, operation, account, object string
}

func (o occasion) hash() uint64 {
	return drawMix(drawHash(o.instance), drawHash(o.operation), drawHash(o.account),
		drawHash(o.object))
}

// words is everything that a request says, hashed, by which those of one instant are told apart. A
// pop receipt is not part of it: which one a message has says who came when.
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
