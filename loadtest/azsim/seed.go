package azsim

import (
	"encoding/binary"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
)

// Every choice of the simulator is a pure function of the seed and of what the
// choice is about (P9, docs/protocols.md): never a generator shared by arrival order,
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

// occasion is what "how many-th time" is counted of (P9).
type occasion struct {
	instance, operation, account, object string
}

func (o occasion) hash() uint64 {
	return mix(hashString(o.instance), hashString(o.operation), hashString(o.account), hashString(o.object))
}

// words is everything that a request says, hashed, by which those of one instant are told apart. A
// pop receipt is not part of it: which one a message has says who came when.
func (r *request) words(c *call) uint64 {
	query := c.rawQuery
	if r.query.Has("popreceipt") {
		query = r.query.Get("visibilitytimeout")
	}
	return mix(hashString(c.instance), hashString(r.account.name), hashString(c.method),
		hashString(r.path), hashString(query), xxhash.Sum64(r.body))
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
