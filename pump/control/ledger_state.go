package control

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
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

// foreignDraft is messages to be added to a book.
type foreignDraft struct {
	book        *foreignBook
	first, next uint32
	buckets     map[uint32][]byte // that changed; nil: gone
	added       map[string]bool
}

func (f *foreignBook) draft() *foreignDraft {
	return &foreignDraft{book: f, first: f.first, next: f.next, buckets: map[uint32][]byte{}, added: map[string]bool{}}
}

func (d *foreignDraft) bucket(number uint32) []byte {
	if names, changed := d.buckets[number]; changed {
		return names
	}
	return d.book.buckets[number]
}

// add records a message as done and notes what changed. It is false if it was recorded before.
func (d *foreignDraft) add(name string, changes block) bool {
	if d.book.known[name] || d.added[name] {
		return false
	}
	d.added[name] = true
	if d.next == d.first || len(d.bucket(d.next-1)) >= foreignPer*foreignHash {
		d.next++
	}
	names := d.bucket(d.next - 1)
	names = append(slices.Clip(names), name...)
	d.buckets[d.next-1] = names
	changes[foreignKey(d.next-1)] = names
	for d.next-d.first > foreignBuckets {
		d.buckets[d.first] = nil
		changes[foreignKey(d.first)] = nil
		d.first++
	}
	return true
}

// landed makes the draft the book.
func (d *foreignDraft) landed() {
	f := d.book
	for name := range d.added {
		f.known[name] = true
	}
	for number, names := range d.buckets {
		if names != nil {
			f.buckets[number] = names
		}
	}
	for ; f.first < d.first; f.first++ {
		for old := f.buckets[f.first]; len(old) > 0; old = old[foreignHash:] {
			delete(f.known, string(old[:foreignHash]))
		}
		delete(f.buckets, f.first)
	}
	f.next = d.next
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
