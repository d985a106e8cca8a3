package control

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// The reducer's state is stored in parts, each compressed by itself, so that a
// commit writes the parts that changed.
const (
	// statePart is how much of the state is in a part: it may be incompressible
	// and must fit a record.
	statePart = maxRecord - 1
	// maxState is the most that the parts may have together as stored (package doc of
	// the limits: layout), maxRawState before they are compressed.
	maxState    = 1 << 20
	maxRawState = 16 << 20
)

const (
	statePlain   = 0
	stateDeflate = 1
)

var stateWriters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.DefaultCompression)
	if err != nil {
		panic(err) // the level is one that flate knows
	}
	return w
}}

func packState(part []byte) []byte {
	var out bytes.Buffer
	out.WriteByte(stateDeflate)
	w := stateWriters.Get().(*flate.Writer)
	defer stateWriters.Put(w)
	w.Reset(&out)
	_, _ = w.Write(part) // into memory; it cannot fail
	_ = w.Close()
	if out.Len() <= len(part) {
		return out.Bytes()
	}
	return append([]byte{statePlain}, part...)
}

var errState = errors.New("a part of the state cannot be read")

func unpackState(stored []byte) ([]byte, error) {
	if len(stored) == 0 {
		return nil, errState
	}
	switch stored[0] {
	case statePlain:
		if len(stored) > statePart+1 {
			return nil, errState
		}
		return stored[1:], nil
	case stateDeflate:
		r := flate.NewReader(bytes.NewReader(stored[1:]))
		part, err := io.ReadAll(io.LimitReader(r, statePart+1))
		if err != nil || len(part) > statePart {
			return nil, errState
		}
		return part, nil
	}
	return nil, errState
}

// stateChanges are the records that make the stored state another one. It is
// false if that is more than may be stored.
func (m *image) stateChanges(raw []byte) (changes block, ok bool) {
	if len(raw) > maxRawState {
		return nil, false
	}
	changes = block{}
	stored := 0
	old := m.raw
	number := 0
	for ; number == 0 || len(raw) > 0; number++ {
		part := raw[:min(statePart, len(raw))]
		before := old[:min(statePart, len(old))]
		raw, old = raw[len(part):], old[len(before):]
		key := stateKey(number)
		packed := m.layout.get(key)
		if packed == nil || !bytes.Equal(part, before) {
			packed = packState(part)
			changes[key] = packed
		}
		if stored += len(packed); stored > maxState {
			return nil, false
		}
	}
	for ; m.layout.get(stateKey(number)) != nil; number++ {
		changes[stateKey(number)] = nil
	}
	return changes, true
}

// The identities of foreign messages that were done last, in buckets, as hashes
// (P1.4). A bucket that is full is written no more, and the oldest go.
const (
	foreignHash    = 16
	foreignPer     = 128 // in a bucket
	foreignBuckets = 64
)

// foreignBook is which foreign messages are done.
type foreignBook struct {
	first, next uint32 // the buckets there are: first <= bucket < next
	buckets     map[uint32][]byte
	known       map[string]bool
}

func newForeignBook() *foreignBook {
	return &foreignBook{buckets: map[uint32][]byte{}, known: map[string]bool{}}
}

// foreignName is the identity as it is kept. Two messages of one hash would mean a
// task that is never done, so it is one for which nobody can find such a pair.
func foreignName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return string(sum[:foreignHash])
}

func (f *foreignBook) draft() *foreignBook {
	d := &foreignBook{first: f.first, next: f.next, buckets: make(map[uint32][]byte, len(f.buckets)), known: make(map[string]bool, len(f.known))}
	for b, names := range f.buckets {
		d.buckets[b] = names
	}
	for name := range f.known {
		d.known[name] = true
	}
	return d
}

// add records a message as done, in a draft, and notes what changed.
func (f *foreignBook) add(name string, changes block) {
	f.known[name] = true
	if f.next == f.first || len(f.buckets[f.next-1]) >= foreignPer*foreignHash {
		f.next++
	}
	at := f.next - 1
	names := append(append(make([]byte, 0, len(f.buckets[at])+foreignHash), f.buckets[at]...), name...)
	f.buckets[at] = names
	changes[foreignKey(at)] = names
	for f.next-f.first > foreignBuckets {
		for old := f.buckets[f.first]; len(old) > 0; old = old[foreignHash:] {
			delete(f.known, string(old[:foreignHash]))
		}
		delete(f.buckets, f.first)
		changes[foreignKey(f.first)] = nil
		f.first++
	}
}

// read takes over a stored bucket; they come in order.
func (f *foreignBook) read(bucket uint32, stored []byte) error {
	if len(stored) == 0 || len(stored)%foreignHash != 0 || len(stored) > foreignPer*foreignHash || f.next > f.first && bucket != f.next || bucket == 1<<32-1 {
		return fmt.Errorf("foreign messages %d cannot be read", bucket)
	}
	if f.next == f.first {
		f.first = bucket
	}
	f.next = bucket + 1
	f.buckets[bucket] = stored
	for ; len(stored) > 0; stored = stored[foreignHash:] {
		f.known[string(stored[:foreignHash])] = true
	}
	return nil
}
