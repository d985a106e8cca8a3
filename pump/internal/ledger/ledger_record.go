package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/queuepump/queuepump/codec"
)

// chunkBits: a chunk is 2^16 consecutive n, which is one container of a roaring bitmap. Changes are
// written by whole chunks, 8 KiB each at most.
const (
	chunkBits = 16
	chunkSize = 1 << chunkBits
)

// runBook is what is recorded of one run in one segment.
type runBook struct {
	// floor: every n below it is settled, that is done, or in the quarantine of
	// its chunk. n = floor is not.
	floor uint64
	// chunks by n >> chunkBits; done leaves out each n below the floor, so an endless run stays small.
	chunks map[uint64]*chunk
	// How many are done, and in quarantine.
	done, quarantined uint64
	// rest is the hour (since 1970) in which the run, closed with all its tasks done or in quarantine,
	// became a rest; 0: the run lives.
	rest uint64
	// results names where the last results of the run are; empty: it has none, or is a rest.
	results string

	// Of a draft only: which chunks are its own copies, and which changed.
	own, dirty map[uint64]bool
}

// chunk is what is recorded of 2^16 consecutive n, each by its lower 16 bits. An
// n is in one of the bitmaps at most.
type chunk struct {
	done   *roaring.Bitmap // nil: none
	poison []poisonSet     // by generation, ascending; none empty
}

// poisonSet are the n that stand in quarantine with one generation.
type poisonSet struct {
	generation uint32
	ns         *roaring.Bitmap
}

func (c *chunk) clone() *chunk {
	d := &chunk{poison: slices.Clone(c.poison)}
	if c.done != nil {
		d.done = c.done.Clone()
	}
	for i := range d.poison {
		d.poison[i].ns = d.poison[i].ns.Clone()
	}
	return d
}

func (c *chunk) empty() bool { return c.done == nil && len(c.poison) == 0 }

// quarantined gives the generation of an n that stands in quarantine.
func (c *chunk) quarantined(low uint32) (generation uint32, is bool) {
	for _, p := range c.poison {
		if p.ns.Contains(low) {
			return p.generation, true
		}
	}
	return 0, false
}

// nextPoison is the first n from low on, below end, that stands in quarantine, or end.
func (c *chunk) nextPoison(low, end uint32) uint32 {
	for _, p := range c.poison {
		if v := p.ns.NextValue(low); v >= 0 {
			end = min(end, uint32(v))
		}
	}
	return end
}

// nextAbsent is a value from low on such that the bitmap has all values from low up to it; it is
// low only if the bitmap lacks low. Usually it is the end of a run; the library stops short at some
// words, and wraps around (v2.30.0) where a run ends with the last value of all.
func nextAbsent(b *roaring.Bitmap, low uint32) uint32 {
	if v := b.NextAbsentValue(low); v >= int64(low) && v < chunkSize {
		return uint32(v)
	}
	return chunkSize
}

// addRange adds low <= n < end. A few are added one by one: the library begins a range as a list of
// runs, and the ten-thousandth run costs as much as all before it together.
func addRange(b *roaring.Bitmap, low, end uint32) {
	if end-low > 8 {
		b.AddRange(uint64(low), uint64(end))
		return
	}
	for n := low; n < end; n++ {
		b.Add(n)
	}
}

// standing is what a book says of some consecutive n.
type standing uint8

const (
	unsettled  standing = iota // nothing
	done                       // done, in any generation
	duplicate                  // in quarantine; a task of this generation is a copy
	reopenable                 // in quarantine; a task of this generation reopens it (P4.4)
)

// run says what is recorded of n = index<<chunkBits + low, and up to which end the same is
// recorded.
func (b *runBook) run(index uint64, low, end, generation uint32) (standing, uint32) {
	floor := uint32(0)
	switch at := b.floor >> chunkBits; {
	case at > index:
		floor = chunkSize
	case at == index:
		floor = uint32(b.floor & (chunkSize - 1))
	}
	c := b.chunks[index]
	if c != nil && len(c.poison) > 0 {
		if g, is := c.quarantined(low); is {
			if generation > g {
				return reopenable, low + 1
			}
			return duplicate, low + 1
		}
		end = c.nextPoison(low, end)
	}
	switch {
	case low < floor:
		return done, min(end, floor)
	case c == nil || c.done == nil:
		return unsettled, end
	case c.done.Contains(low):
		return done, min(end, nextAbsent(c.done, low))
	}
	if v := c.done.NextValue(low); v >= 0 {
		end = min(end, uint32(v))
	}
	return unsettled, end
}

// walk tells what is recorded of from <= n < to, in pieces. visit may settle its piece.
func (b *runBook) walk(
	from, to uint64, generation uint32, visit func(index uint64, low, end uint32, what standing),
) {
	for from < to {
		index := from >> chunkBits
		end := uint32(chunkSize)
		if (to-1)>>chunkBits == index {
			end = uint32((to-1)&(chunkSize-1)) + 1
		}
		for low := uint32(from & (chunkSize - 1)); low < end; {
			what, next := b.run(index, low, end, generation)
			visit(index, low, next, what)
			low = next
		}
		from = index<<chunkBits | uint64(end-1)
		from++
	}
}

func absolute(index uint64, low uint32) uint64 { return index<<chunkBits + uint64(low) }

// divide tells which tasks of a generation are recorded. A nil book knows none.
func (b *runBook) divide(ns codec.NSet, generation uint32) (recorded, rest nspans) {
	for from, to := range ns.Spans() {
		if b == nil {
			rest = rest.add(from, to)
			continue
		}
		b.walk(from, to, generation, func(index uint64, low, end uint32, what standing) {
			set := &rest
			if what == done || what == duplicate {
				set = &recorded
			}
			*set = set.add(absolute(index, low), absolute(index, end))
		})
	}
	return recorded, rest
}

// settled reports whether a task of a generation needs nothing any more.
func (b *runBook) settled(n uint64, generation uint32) bool {
	if b == nil {
		return false
	}
	what, _ := b.run(n>>chunkBits, uint32(n&(chunkSize-1)), uint32(n&(chunkSize-1))+1, generation)
	return what == done || what == duplicate
}

// draft is a copy that can be changed while others read b, which may be nil.
func (b *runBook) draft() *runBook {
	d := &runBook{own: map[uint64]bool{}, dirty: map[uint64]bool{}}
	if b == nil {
		d.chunks = map[uint64]*chunk{}
		return d
	}
	d.floor, d.done, d.quarantined, d.rest = b.floor, b.done, b.quarantined, b.rest
	d.results = b.results
	d.chunks = maps.Clone(b.chunks)
	return d
}

// changing gives a chunk of a draft that may be changed.
func (b *runBook) changing(index uint64) *chunk {
	b.dirty[index] = true
	c := b.chunks[index]
	switch {
	case c == nil:
		c = &chunk{}
	case b.own[index]:
		return c
	default:
		c = c.clone()
	}
	b.own[index], b.chunks[index] = true, c
	return c
}

// finish records as done the tasks that are not settled, and those that this generation reopens. A
// recorded task stays as it is. On a draft only.
func (b *runBook) finish(ns codec.NSet, generation uint32) {
	b.settle(ns, generation, func(index uint64, low, end uint32) {
		b.done += uint64(end - low)
		switch n := absolute(index, low); {
		case n < b.floor: // it says so by itself
		case n == b.floor && (b.chunks[index] == nil || b.chunks[index].done == nil):
			b.floor += uint64(end - low)
		default:
			c := b.changing(index)
			if c.done == nil {
				c.done = roaring.New()
			}
			addRange(c.done, low, end)
		}
	})
}

// condemn records tasks as in quarantine with a generation: unsettled tasks, and tasks there with a
// lower generation. On a draft only.
func (b *runBook) condemn(ns codec.NSet, generation uint32) {
	b.settle(ns, generation, func(index uint64, low, end uint32) {
		c := b.changing(index)
		i, found := slices.BinarySearchFunc(c.poison, generation, func(p poisonSet, g uint32) int {
			return int(int64(p.generation) - int64(g))
		})
		if !found {
			c.poison = slices.Insert(c.poison, i, poisonSet{generation, roaring.New()})
		}
		addRange(c.poison[i].ns, low, end)
		b.quarantined += uint64(end - low)
	})
}

// settle calls record for the part of a set that is not settled, or that this generation reopens.
func (b *runBook) settle(
	ns codec.NSet, generation uint32, record func(index uint64, low, end uint32),
) {
	for from, to := range ns.Spans() {
		b.walk(from, to, generation, func(index uint64, low, end uint32, what standing) {
			if what == reopenable {
				b.release(b.changing(index), low)
			}
			if what == reopenable || what == unsettled {
				record(index, low, end)
			}
		})
	}
	b.advance()
}

// release takes an n out of its chunk's quarantine.
func (b *runBook) release(c *chunk, low uint32) {
	for i, p := range c.poison {
		if p.ns.CheckedRemove(low) {
			b.quarantined--
			if p.ns.IsEmpty() {
				c.poison = slices.Delete(c.poison, i, i+1)
			}
			return
		}
	}
}

// advance moves the floor over settled tasks, and drops the sets below it.
func (b *runBook) advance() {
	for {
		index := b.floor >> chunkBits
		c := b.chunks[index]
		if c == nil {
			break
		}
		start := uint32(b.floor & (chunkSize - 1))
		low := start
		for low < chunkSize {
			next := low
			if c.done != nil {
				next = nextAbsent(c.done, low)
			}
			if next < chunkSize {
				if _, is := c.quarantined(next); is {
					next++
				}
			}
			if next == low {
				break
			}
			low = next
		}
		if low == start {
			break
		}
		b.floor = absolute(index, low)
		if c.done != nil {
			b.changing(index)
		}
		if low < chunkSize {
			break
		}
	}
	// Chunks may lie under the floor now. Only chunks of this draft can have changed or been passed
	// since the last advance, which covered all.
	for index := range b.dirty {
		c := b.chunks[index]
		if c == nil || index > b.floor>>chunkBits {
			continue
		}
		below := uint64(chunkSize)
		if index == b.floor>>chunkBits {
			below = b.floor & (chunkSize - 1)
		}
		if c = b.changing(index); c.done != nil && !c.done.IsEmpty() && uint64(c.done.Minimum()) < below {
			c.done.RemoveRange(0, below)
		}
		if c.done != nil && c.done.IsEmpty() {
			c.done = nil
		}
		if c.empty() {
			delete(b.chunks, index)
		}
	}
}

// count fills in how many are done and in quarantine, of a book that was read.
// It is false if the chunks say more than there can be.
func (b *runBook) count() bool {
	below := b.floor
	for index, c := range b.chunks {
		for _, p := range c.poison {
			n := p.ns.GetCardinality()
			b.quarantined += n
			switch at := b.floor >> chunkBits; {
			case index < at:
				below -= n
			case index == at && b.floor&(chunkSize-1) > 0:
				below -= p.ns.Rank(uint32(b.floor&(chunkSize-1)) - 1)
			}
		}
		if c.done != nil {
			b.done += c.done.GetCardinality()
		}
	}
	b.done += below
	return b.done <= math.MaxInt64 && b.quarantined <= math.MaxInt64
}

// The stored forms. A run's value is its floor; a chunk's is the length of its done-set, that set,
// and for each generation in quarantine the generation, a length and a set.

// pack is append for a chunk of a draft. If the chunk would be too large, the tasks of the two
// lowest generations stand in quarantine with the lower one: at worst a late copy of the other is
// tried again, and a task that is done stays done. The done-set and one other always fit. *When
// such a chunk was refused, its tasks were tried and put into quarantine again each minute, for
// ever.*
func (c *chunk) pack() []byte {
	for {
		b := c.append(nil)
		if len(b) <= maxRecord || len(c.poison) < 2 {
			return b
		}
		c.poison[0].ns.Or(c.poison[1].ns)
		c.poison = slices.Delete(c.poison, 1, 2)
	}
}

func (c *chunk) append(b []byte) []byte {
	b = appendBitmap(b, c.done)
	for _, p := range c.poison {
		b = binary.AppendUvarint(b, uint64(p.generation))
		b = appendBitmap(b, p.ns)
	}
	return b
}

func appendBitmap(b []byte, m *roaring.Bitmap) []byte {
	if m == nil {
		return append(b, 0)
	}
	m.RunOptimize()
	stored, _ := m.ToBytes() // into memory; it cannot fail
	return append(binary.AppendUvarint(b, uint64(len(stored))), stored...)
}

var errChunk = errors.New("a set of tasks cannot be read")

func readChunk(b []byte) (*chunk, error) {
	c := &chunk{}
	var err error
	if c.done, b, err = readBitmap(b); err != nil {
		return nil, err
	}
	seen := roaring.New()
	if c.done != nil {
		seen.Or(c.done)
	}
	for len(b) > 0 {
		g, size := binary.Uvarint(b)
		if size <= 0 || g > math.MaxUint32 || len(c.poison) > 0 &&
			uint32(g) <= c.poison[len(c.poison)-1].generation {
			return nil, fmt.Errorf("%w: generation", errChunk)
		}
		p := poisonSet{generation: uint32(g)}
		if p.ns, b, err = readBitmap(b[size:]); err != nil {
			return nil, err
		}
		if p.ns == nil || seen.Intersects(p.ns) {
			return nil, fmt.Errorf("%w: a task in two sets, or an empty set", errChunk)
		}
		seen.Or(p.ns)
		c.poison = append(c.poison, p)
	}
	if c.empty() {
		return nil, fmt.Errorf("%w: it is empty", errChunk)
	}
	return c, nil
}

// oneContainer are the first bytes of the stored forms of a bitmap of one container, up to and with
// its key, which is 0: as runs, and not as runs (github.com/RoaringBitmap/RoaringFormatSpec). Other
// forms are not given to the library, which would make room for as many containers as the bytes
// claim.
var oneContainer = [][]byte{
	{0x3b, 0x30, 0, 0, 1, 0, 0},
	{0x3a, 0x30, 0, 0, 1, 0, 0, 0, 0, 0},
}

func readBitmap(b []byte) (m *roaring.Bitmap, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, fmt.Errorf("%w: it ends early", errChunk)
	}
	stored, rest := b[size:size+int(n)], b[size+int(n):]
	if n == 0 {
		return nil, rest, nil
	}
	if !slices.ContainsFunc(oneContainer, func(start []byte) bool {
		return bytes.HasPrefix(stored, start)
	}) {
		return nil, nil, fmt.Errorf("%w: not a set of one chunk", errChunk)
	}
	m = roaring.New()
	read, err := m.ReadFrom(bytes.NewReader(stored))
	if err == nil && read != int64(n) {
		err = errors.New("bytes after the set")
	}
	if err == nil {
		err = m.Validate()
	}
	if err == nil && (m.IsEmpty() || m.Maximum() >= chunkSize) {
		err = errors.New("not in one chunk")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errChunk, err)
	}
	return m, rest, nil
}
