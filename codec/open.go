package codec

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// Limits bound what one envelope may unpack to. A zero field is its default,
// which every envelope made by a [Builder] keeps.
type Limits struct {
	// MaxRaw is the size of the records in bytes; default 4 MiB.
	MaxRaw int
	// MaxRatio is how many times larger the records may be than their packed
	// form; default 1032, the most that DEFLATE can do, because tasks that are
	// all alike really come close to it. Memory is bounded by MaxRaw.
	MaxRatio int
	// MaxTasks is the number of tasks; default 32,768.
	MaxTasks int
}

func (l Limits) check(fr *frame) error {
	limit := func(v, otherwise int) uint64 {
		if v <= 0 {
			v = otherwise
		}
		return uint64(v)
	}
	switch tasks := uint64(fr.Tasks.Len()); {
	case fr.RawLen > limit(l.MaxRaw, maxRaw):
		return bomb("%d bytes of records, the limit is %d", fr.RawLen, limit(l.MaxRaw, maxRaw))
	case fr.RawLen/limit(l.MaxRatio, maxDeflateRatio) > uint64(fr.packed):
		return bomb("%d bytes of records in %d, the limit is 1:%d", fr.RawLen, fr.packed,
			limit(l.MaxRatio, maxDeflateRatio))
	case tasks > limit(l.MaxTasks, maxTasks):
		return bomb("%d tasks, the limit is %d", tasks, limit(l.MaxTasks, maxTasks))
	}
	return nil
}

// ReadHeader reads the header of an envelope without unpacking it: it looks at the beginning of
// text only, about a hundred characters for an envelope of consecutive tasks. The header's own
// checksum has been verified. The error is ErrForeign if text is not an envelope of ours, else
// ErrTruncated, ErrCorrupt, ErrBomb or ErrVersion; with ErrVersion the Header has the Version.
func ReadHeader(text []byte) (Header, error) {
	fr, err := readFrame(text)
	return fr.Header, err
}

// Envelope is an opened envelope.
type Envelope struct {
	Header Header
	// Tasks in the order of the n-set. Their bytes alias a buffer of the
	// envelope.
	Tasks []Task

	memory *memory
}

// memory is what an envelope borrows.
type memory struct {
	raw   *slab
	tasks []Task
}

// decoder is what opening borrows.
type decoder struct {
	packed []byte
	inf    *inflater
}

var (
	memories = sync.Pool{New: func() any { return new(memory) }}
	decoders = sync.Pool{New: func() any { return &decoder{inf: newInflater()} }}
)

// keptTasks is the longest task list that goes back to the pool; a longer one
// belongs to a rare envelope of tiny tasks.
const keptTasks = 1 << 13

// Open unpacks an envelope. Everything is verified: the header's checksum, the packed length, that
// the text is exactly one gzip member, its CRC-32 and size, the header's checksum of the records,
// that the records are as many as the n-set says and fill the whole. No memory is spent on a
// declared size before it has been checked against l, and little before the bytes are there.
//
// The errors are those of [ReadHeader]; they are lasting properties of the text. Text is not kept.
func Open(text []byte, l Limits) (*Envelope, error) {
	fr, err := readFrame(text)
	if err != nil {
		return nil, err
	}
	if err := l.check(&fr); err != nil {
		return nil, err
	}
	if err := fr.checkLength(); err != nil {
		return nil, err
	}
	m := memories.Get().(*memory)
	if err := m.fill(&fr); err != nil {
		m.release()
		return nil, err
	}
	return &Envelope{Header: fr.Header, Tasks: m.tasks, memory: m}, nil
}

// Release gives the envelope's buffers to the next Open: its tasks and copies of them must not be
// touched any more. The Header stays. An envelope that is never released is left to the garbage
// collector. A second Release does nothing.
func (e *Envelope) Release() {
	if e.memory == nil {
		return
	}
	m := e.memory
	e.memory, e.Tasks = nil, nil
	m.release()
}

func (m *memory) release() {
	m.raw.free()
	m.raw = nil
	clear(m.tasks) // they point into the buffer that is reused now
	m.tasks = m.tasks[:0]
	if cap(m.tasks) <= keptTasks {
		memories.Put(m)
	}
}

// fill unpacks the packed part of fr into m.
func (m *memory) fill(fr *frame) error {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	var err error
	d.packed, err = strict.AppendDecode(d.packed[:0], fr.body)
	if err != nil || len(d.packed) != fr.packed {
		return corrupt("body is not the base64 of %d bytes", fr.packed)
	}
	taken, err := m.inflate(d, int(fr.RawLen))
	if err != nil {
		return err
	}
	tail := d.packed[taken:]
	switch raw := m.raw.b; {
	case len(tail) != 8:
		return corrupt("%d bytes behind the DEFLATE stream, want 8", len(tail))
	case binary.LittleEndian.Uint32(tail[4:]) != uint32(len(raw)):
		return corrupt("wrong size in the gzip trailer")
	case binary.LittleEndian.Uint32(tail) != crc32.ChecksumIEEE(raw):
		return corrupt("wrong CRC-32")
	case xxhash.Sum64(raw) != fr.Checksum:
		return corrupt("wrong checksum")
	}
	if n := fr.Tasks.Len(); cap(m.tasks) < n {
		m.tasks = make([]Task, 0, n)
	}
	m.tasks, err = readRecords(m.tasks[:0], m.raw.b, fr.Tasks, fr.Version)
	return err
}

// firstRaw bounds the memory that is allocated for a declared size before any record has been seen.
const firstRaw = 256 << 10

// inflate unpacks d.packed into m.raw, which must become want bytes and no more, and says how many
// bytes of d.packed that took.
func (m *memory) inflate(d *decoder, want int) (taken int, err error) {
	m.raw, taken, err = d.inf.inflate(d.packed, newSlab(min(want, firstRaw)), want)
	switch {
	case errors.Is(err, errMore):
		return taken, bomb("more than the %d bytes declared", want)
	case err != nil:
		return taken, corrupt("%v", err)
	case len(m.raw.b) < want:
		return taken, corrupt("%d bytes of records of %d", len(m.raw.b), want)
	}
	return taken, nil
}
