package shardmap

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// The stored form, all integers unsigned varints unless said otherwise:
//
//	format (1 byte, 1 to 4) | version | log2 S (1 byte; in format 4: S)
//	accounts: how many, then length (1 byte) and bytes of each
//	queues:   the same
//	shards:   how many, then account, queue, weight in millionths, state (1 byte, 0 active,
//	          1 draining, 2 foreign) of each
//	homes:    S shard numbers
//	xxhash64 of all before (8 bytes, big endian)
//
// Names stand once each because a workload's queues have the same names in every account: 100
// shards at S = 4,096 take about 5 KiB, 2,500 shards of 250 accounts at S = 16,384 about 60 KiB.
//
// Format 2 is written for a map that is too large for readers of format 1, so that these say that
// they are too old, and not that the map is damaged. Format 3 is written for a map with foreign
// shards: a program that does not know them would put tasks into them. Format 4 is written if S is
// not a power of two, with or without foreign shards.

// MaxBytes is the largest stored form of a map: three binary properties of 60 KiB. The
// longest names of 1,000 accounts and 4,096 queues at S = 16,384 take less.
const MaxBytes = 180 << 10

// Bounds of a reader that knows format 1 only.
const (
	firstSegments = 4096
	firstShards   = 1024
	firstBytes    = 60 << 10
)

const (
	firstFormat  = 1
	secondFormat = 2
	thirdFormat  = 3
	fourthFormat = 4
)

// Errors of MarshalBinary and UnmarshalBinary, wrapped with detail.
var (
	// ErrTooLarge: the map does not fit MaxBytes; use shorter or fewer names.
	ErrTooLarge = errors.New("the shard map is too large")
	// ErrFormat: a newer version of this program wrote the map.
	ErrFormat = errors.New("the shard map has a format that this version does not read")
	// ErrCorrupt: the bytes are not a shard map, or it is damaged.
	ErrCorrupt = errors.New("the shard map is damaged")
)

// MarshalBinary gives the stored form, at most MaxBytes.
func (m *Map) MarshalBinary() ([]byte, error) {
	b := []byte{firstFormat}
	b = binary.AppendUvarint(b, m.Version)
	if powerOfTwo(m.Segments) {
		b = append(b, byte(bits.TrailingZeros(uint(m.Segments))))
	} else {
		b = binary.AppendUvarint(b, uint64(m.Segments))
	}
	accounts, queues := newNames(), newNames()
	for _, s := range m.Shards {
		accounts.add(s.Account)
		queues.add(s.Queue)
	}
	b = queues.append(accounts.append(b))
	b = binary.AppendUvarint(b, uint64(len(m.Shards)))
	for _, s := range m.Shards {
		b = binary.AppendUvarint(b, accounts.index[s.Account])
		b = binary.AppendUvarint(b, queues.index[s.Queue])
		b = binary.AppendUvarint(b, s.steps())
		b = append(b, stateByte(s.State))
	}
	for _, h := range m.homes {
		b = binary.AppendUvarint(b, uint64(h))
	}
	if m.Segments > firstSegments || len(m.Shards) > firstShards || len(b)+8 > firstBytes {
		b[0] = secondFormat
	}
	if slices.ContainsFunc(m.Shards, func(s Shard) bool { return s.State == Foreign }) {
		b[0] = thirdFormat
	}
	if !powerOfTwo(m.Segments) {
		b[0] = fourthFormat
	}
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes for %d shards, at most %d", ErrTooLarge, len(b),
			len(m.Shards), MaxBytes)
	}
	return b, nil
}

// UnmarshalBinary reads the stored form. The bytes are not trusted: they cost at most a few times
// their own size in memory, and the result has passed every check that New makes, with every home
// on an active shard. (Not checked is that loads keep their shares: a later version may place
// otherwise, and its map still counts.) On an error the receiver is unchanged.
func (m *Map) UnmarshalBinary(data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), MaxBytes)
	}
	if len(data) == 0 {
		return fmt.Errorf("%w: it is empty", ErrCorrupt)
	}
	if data[0] < firstFormat || data[0] > fourthFormat {
		return fmt.Errorf("%w: format %d, want %d to %d; use a newer program", ErrFormat, data[0],
			firstFormat, fourthFormat)
	}
	if len(data) < 8 ||
		xxhash.Sum64(data[:len(data)-8]) != binary.BigEndian.Uint64(data[len(data)-8:]) {
		return fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	read, err := decode(data[0], data[1:len(data)-8])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	*m = *read
	return nil
}

func decode(format byte, data []byte) (*Map, error) {
	d := &decoder{rest: data, states: storedStates[:2]}
	if format >= thirdFormat {
		d.states = storedStates
	}
	version := d.uvarint()
	segments := 0
	if format == fourthFormat {
		segments = int(min(d.uvarint(), MaxSegments+1))
	} else {
		segments = 1 << d.byte() // a byte of 64 or more shifts the bit out and leaves 0, which is refused
	}
	if err := checkSegments(segments); err != nil {
		return nil, err
	}
	accounts, queues := d.names(), d.names()
	shards := make([]Shard, 0, d.count(MaxShards))
	for range cap(shards) {
		shards = append(shards, d.shard(accounts, queues))
	}
	if d.err != nil {
		return nil, d.err
	}
	m, err := blank(segments, shards)
	if err != nil {
		return nil, err
	}
	m.Version = version
	m.homes = make([]uint16, segments)
	for i := range m.homes {
		h := d.uvarint()
		if d.err == nil && (h >= uint64(len(shards)) || m.Shards[h].State != Active) {
			return nil, fmt.Errorf("segment %d has shard %d as its home, which is none or drains", i, h)
		}
		m.homes[i] = uint16(h)
	}
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%d bytes follow its end", len(d.rest))
	}
	return m, d.err
}

// names is a set of names in order of their first use.
type names struct {
	list  []string
	index map[string]uint64
}

func newNames() *names { return &names{index: map[string]uint64{}} }

func (n *names) add(name string) {
	if _, ok := n.index[name]; !ok {
		n.index[name] = uint64(len(n.list))
		n.list = append(n.list, name)
	}
}

func (n *names) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(n.list)))
	for _, name := range n.list {
		b = append(b, byte(len(name)))
		b = append(b, name...)
	}
	return b
}

// storedStates are the states as they are numbered.
var storedStates = []State{Active, Draining, Foreign}

func stateByte(s State) byte { return byte(slices.Index(storedStates, s)) }

// decoder reads from a slice; after its first error it gives zeros.
type decoder struct {
	rest   []byte
	states []State // that the format has
	err    error
}

func (d *decoder) fail(format string, args ...any) {
	d.err = cmp.Or(d.err, fmt.Errorf(format, args...))
	d.rest = nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail("it ends in the middle of a number")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail("it ends early")
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

// count reads a number of entries; each entry takes at least one byte.
func (d *decoder) count(most int) int {
	n := d.uvarint()
	if n > uint64(min(most, len(d.rest))) {
		d.fail("it claims %d entries", n)
		return 0
	}
	return int(n)
}

func (d *decoder) names() []string {
	list := make([]string, 0, d.count(MaxShards))
	for range cap(list) {
		n := int(d.byte())
		if n > len(d.rest) {
			d.fail("it ends in the middle of a name")
			break
		}
		list = append(list, string(d.rest[:n]))
		d.rest = d.rest[n:]
	}
	return list
}

func (d *decoder) shard(accounts, queues []string) Shard {
	a, q, steps, state := d.uvarint(), d.uvarint(), d.uvarint(), d.byte()
	switch {
	case d.err != nil:
	case a >= uint64(len(accounts)) || q >= uint64(len(queues)):
		d.fail("a shard has no name")
	case steps == 0 || steps > MaxWeight*stepsPerUnit:
		d.fail("a shard has a weight of %d millionths", steps)
	case int(state) >= len(d.states):
		d.fail("a shard has the state %d", state)
	default:
		return Shard{accounts[a], queues[q], stepsWeight(steps), d.states[state]}
	}
	return Shard{}
}
