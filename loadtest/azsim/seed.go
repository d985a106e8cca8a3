package azsim

import (
	"encoding/binary"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
)

// Every choice of the simulator is a pure function of the seed and of what the
// choice is about (P9, pump/DESIGN.md): never a generator shared by arrival order,
// which would make one request's fate depend on another's.

// mix folds words into one well-spread word (splitmix64's finisher between
// them, so that neighbouring counters give unrelated results).
func mix(words ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, w := range words {
		h ^= w
		h += 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// requestWord tells the ids of requests from what else comes of the same words.
const requestWord = 0x7265717565737473

func hashString(s string) uint64 { return xxhash.Sum64String(s) }

// share maps a hash to [0, 1).
func share(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// guid makes a version 4 shaped GUID out of two words.
func guid(words ...uint64) uuid.UUID {
	var u uuid.UUID
	hi := mix(words...)
	binary.BigEndian.PutUint64(u[:8], hi)
	binary.BigEndian.PutUint64(u[8:], mix(hi, 1))
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}

// occasion is what "how many-th time" is counted of (P9). It is about as little
// as can be told apart: two deletes of a queue that are sent in one instant must
// not race for who is the third.
type occasion struct {
	instance, operation, account, object string

	// detail is the rest of what the request says, hashed.
	detail uint64
}

func (o occasion) hash() uint64 {
	return mix(hashString(o.instance), hashString(o.operation), hashString(o.account), hashString(o.object), o.detail)
}

// occasion is what a request is the how many-th of: the same client asking the
// same thing of the same object with the same words. A pop receipt is not part of
// it: which one a message has says who came when.
func (r *request) occasion(c *call, op *operation) occasion {
	o := occasion{instance: c.instance, account: r.account.name, object: r.path}
	if op != nil {
		o.operation = op.name
	}
	words := c.rawQuery
	if r.query.Has("popreceipt") {
		words = r.query.Get("visibilitytimeout")
	}
	o.detail = mix(hashString(words), xxhash.Sum64(r.body))
	return o
}

// maxOccasions bounds the counters: object names come from outside.
const maxOccasions = 1 << 18

// tally counts occasions, kept as their hashes: names may be long, and two
// that collide only share a counter. Those that have not come up among the last
// maxOccasions different ones are forgotten, and begin anew.
type tally struct {
	mu       sync.Mutex
	n, older map[uint64]uint64 // guarded by mu
}

// next returns how many times the occasion of that hash has come up before.
func (t *tally) next(key uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, known := t.n[key]
	if !known {
		n = t.older[key]
		if t.n == nil || len(t.n) >= maxOccasions {
			t.n, t.older = make(map[uint64]uint64), t.n
		}
	}
	t.n[key] = n + 1
	return n
}
