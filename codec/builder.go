package codec

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// Bounds of what a Builder packs, for any text limit. They are also the default [Limits] of
// [Open]: what was packed can be opened.
const (
	maxRaw   = 4 << 20 // bytes of records
	maxTasks = 1 << 15
)

// streamEnd is an empty final DEFLATE block, tailLen the size of what follows the chunks:
// that block, the CRC-32 and the size of the records.
const (
	streamEnd = "\x03\x00"
	tailLen   = len(streamEnd) + 8
)

// maxWaiting is how many bytes of records wait at most, but for a single one. With the window
// before them they fill a buffer of 32 KiB.
const maxWaiting = 30 << 10

// A builder of the default limit does not compress a chunk to use the last 1/spareShare of it:
// that would be every third of its chunks, for 1 % of the tasks.
const spareShare = 32

var (
	errNotReset = errors.New("codec: builder not reset since it was sealed")
	errEmpty    = errors.New("codec: sealing an envelope without a task")
)

// Builder fills one envelope at a time. For every task it says whether the task still fits. What it
// took surely fits, although each task is compressed only once: records wait uncompressed while
// even storing them as they are would fit, and are compressed as one chunk when it would not. So
// the decision needs no compression as long as it is clear, and towards the end the chunks get
// smaller. With a limit that the caller sets, that goes on until a single task is compressed and
// its size seen, and a task is refused only if it would have made the text too long behind the
// chunks that are there. With the default limit it ends when less than 1/32 of the text is free.
//
// Between calls a Builder holds no compressor, only the waiting records, 2 KiB of those before them
// and the compressed chunks, in pooled buffers; a sealed or new one holds nothing. The same tasks
// in the same order make the same text. A Builder is not safe for concurrent use.
type Builder struct {
	// buf[:start] are records that are in chunks already and serve as the
	// window of the next one; buf[start:] wait.
	buf    []byte
	tasks  int
	rawLen int
	held   int

	limit int // size of the gzip member in bytes
	spare int // room that is not worth compressing a chunk for
	head  Header
	err   error // what makes the builder unusable until Reset

	fixed int // size of the header's fields less RawLen and n-set
	spans []span
	done  int // encoded size of all spans but the last

	start  int
	raw    *slab // buf is its buffer
	chunks *slab // nil: there are none

	traces traces

	crc uint32
	sum xxhash.Digest

	wanted int // size of the chunk that was tried last

	// How often records went through the compressor, and how many bytes, for tests.
	estimates, compressed int
}

// NewBuilder makes a builder of envelopes whose text has at most textLimit characters, at most 64
// KiB. If 0 is given, that is 64 KiB less [DefaultHeadroom], and an envelope need not be filled to
// the last task. It must be Reset before use.
func NewBuilder(textLimit int) *Builder {
	b := &Builder{err: errNotReset}
	if textLimit <= 0 {
		textLimit = maxText - DefaultHeadroom
		b.spare = textLimit / 4 * 3 / spareShare
	}
	b.limit = min(textLimit, maxText) / 4 * 3
	return b
}

// Reset begins an empty envelope with the identity of h: Version, Workload, Run, Segment, Attempt,
// Generation, MapVersion, Sealed, Body, and NotNow if Version has room for it; the other fields are
// ignored, so that the header of an opened envelope will do. With a Body the envelope is of version
// 5 and of one task. An h that cannot be written is the error of the next Add or Seal.
func (b *Builder) Reset(h Header) {
	b.free()
	h.Version = cmp.Or(h.Version, Version)
	h.Tasks, h.RawLen, h.Checksum, h.Cause = NSet{}, 0, 0, nil
	b.err = nil
	switch {
	case h.Version > Version:
		b.err = fmt.Errorf("codec: cannot write version %d, only up to %d", h.Version, Version)
	case len(h.Workload) > maxWorkload || !utf8.ValidString(h.Workload):
		b.err = fmt.Errorf("codec: workload name must be at most %d bytes of UTF-8", maxWorkload)
	}
	switch {
	case h.Body != (BodyRef{}): // whatever is asked for: no other version can say it
		h.Version = bodySince
		if h.Body.Account == "" || len(h.Body.Account) > maxAccount || !utf8.ValidString(h.Body.Account) {
			b.err = fmt.Errorf("codec: the account of a body has 1 to %d bytes of UTF-8", maxAccount)
		}
	case h.Version < NotNowSince || h.NotNow == (NotNow{}):
		h.Version, h.NotNow = min(h.Version, NotNowSince-1), NotNow{}
	default:
		h.Version = NotNowSince
	}
	h.NotNow.First = exact(h.NotNow.First)
	b.head = h
	b.fixed = h.fieldsSize()
	b.spans, b.done, b.tasks = b.spans[:0], 0, 0
	b.traces = traces{}
	b.rawLen, b.crc, b.estimates, b.compressed = 0, 0, 0, 0
	b.sum.Reset()
	b.measure()
}

// Stamp says when the envelope is sealed, to the millisecond: [Header.Sealed]. Call it between
// Reset and Seal. Version 1 has no room for the time and ignores it.
func (b *Builder) Stamp(sealed time.Time) { b.head.Sealed = sealed }

func (b *Builder) free() {
	if b.raw != nil {
		b.raw.b = b.buf
		b.raw.free()
	}
	b.chunks.free()
	b.raw, b.chunks, b.buf, b.start = nil, nil, nil, 0
	if cap(b.spans) > 64 {
		b.spans = nil
	}
}

// Len is the number of tasks in the envelope.
func (b *Builder) Len() int { return b.tasks }

// Held is how many bytes of memory the builder holds now.
func (b *Builder) Held() int { return b.held }

func (b *Builder) measure() {
	b.held = int(unsafe.Sizeof(*b)) + cap(b.spans)*int(unsafe.Sizeof(span{})) + cap(b.buf) +
		cap(b.traces.section)
	if b.chunks != nil {
		b.held += cap(b.chunks.b)
	}
}

// Add copies t into the envelope if it fits. If it does not, fits is false and the envelope is as
// it was: seal it, Reset and Add t again. ErrTaskTooLarge says that t does not fit even then. t.N
// must be greater than that of the task before. It is an error if it is not, or if the builder was
// not Reset; both leave the envelope as it was. A t.Trace is left out where the version has no room
// for it.
func (b *Builder) Add(t Task) (fits bool, err error) {
	if b.err != nil {
		return false, b.err
	}
	size := recordSize(&t)
	if k := len(b.spans); k > 0 && t.N < b.spans[k-1].to || t.N+1 == 0 {
		return false, fmt.Errorf("codec: task %d out of order or out of range", t.N)
	}
	if size > maxRaw {
		return false, wrap(ErrTaskTooLarge, "it has %d bytes, and %d are the most before compression",
			size, maxRaw)
	}
	traced, before := len(t.Trace) > 0 && b.head.Version >= tracedSince, b.traces
	if traced && len(t.Trace) > maxTrace {
		return false, fmt.Errorf("codec: trace context of %d bytes, at most %d are carried",
			len(t.Trace), maxTrace)
	}
	if most := b.most(); b.rawLen+size+len(b.traces.section)+traceSize(&t, traced) > maxRaw ||
		b.tasks == most {
		if traced && b.tasks == 0 {
			return false, wrap(ErrTaskTooLarge, "%d bytes with its trace context", size)
		}
		return false, nil
	}
	defer b.measure()
	if traced {
		b.traces.add(b.tasks, t.Trace)
		defer func() {
			if !fits {
				b.traces = before
			}
		}()
	}
	room := b.makeRoom(t.N, size)
	if b.tasks > 0 && room < b.spare && storedSize(b.waiting()+size) > room {
		return false, nil
	}
	b.push(&t, size)
	if storedSize(b.waiting()) > room && !b.try(room) {
		b.buf = b.buf[:len(b.buf)-size]
		if b.tasks == 0 {
			return false, wrap(ErrTaskTooLarge, "compressed it takes %d bytes, and %d are left for it "+
				"beside the header", b.wanted, room)
		}
		return false, nil
	}
	b.count(t.N, size)
	return true, nil
}

// most is how many tasks the envelope may have.
func (b *Builder) most() int {
	if b.head.Version >= bodySince {
		return 1
	}
	return maxTasks
}

// makeRoom makes a chunk of what waits if a task n whose record has size bytes cannot wait with it,
// unless a chunk is not worth it any more. It gives the room that is left then.
func (b *Builder) makeRoom(n uint64, size int) int {
	waiting, room := b.waiting(), b.room(n, size)
	due := waiting+size > maxWaiting || storedSize(waiting+size) > room
	if waiting == 0 || !due || room < b.spare {
		return room
	}
	b.flush()
	return b.room(n, size)
}

// room is how many bytes the records that wait may take, together with a task n whose record
// has size bytes, for the envelope to stay within its limit.
func (b *Builder) room(n uint64, size int) int {
	head := headSize(b.fixed + uvarintLen(uint64(b.rawLen+size+len(b.traces.section))) + b.setSize(n))
	return b.limit - head - tailLen - b.packed() - b.traces.room()
}

// packed is the size of the chunks.
func (b *Builder) packed() int {
	if b.chunks == nil {
		return 0
	}
	return len(b.chunks.b)
}

// setSize is the encoded size of the n-set with n added.
func (b *Builder) setSize(n uint64) int {
	k := len(b.spans)
	if k == 0 {
		return uvarintLen(1) + spanSize(span{n, n + 1}, 0, true)
	}
	last := b.spans[k-1]
	if n == last.to {
		return uvarintLen(uint64(k)) + b.done + b.spanSize(k-1, span{last.from, n + 1})
	}
	return uvarintLen(uint64(k+1)) + b.done + b.spanSize(k-1, last) + b.spanSize(k, span{n, n + 1})
}

// spanSize is the encoded size of sp as the i-th span.
func (b *Builder) spanSize(i int, sp span) int {
	if i == 0 {
		return spanSize(sp, 0, true)
	}
	return spanSize(sp, b.spans[i-1].to, false)
}

// waiting is the size of the records that are in no chunk yet.
func (b *Builder) waiting() int { return len(b.buf) - b.start }

// push puts a record behind those that wait.
func (b *Builder) push(t *Task, size int) {
	if drop := b.start - window; drop > 0 && cap(b.buf)-len(b.buf) < size {
		// Only what later chunks may refer to is kept.
		b.buf = b.buf[:copy(b.buf, b.buf[drop:])]
		b.start -= drop
	}
	if b.raw == nil {
		b.raw = newSlab(size)
	} else {
		b.raw.b = b.buf
	}
	b.raw = b.raw.grow(size)
	b.buf = appendRecord(b.raw.b, t)
}

// count makes the pushed record of task n part of the envelope.
func (b *Builder) count(n uint64, size int) {
	if k := len(b.spans); k > 0 && n > b.spans[k-1].to {
		b.done += b.spanSize(k-1, b.spans[k-1])
	}
	b.spans = appendN(b.spans, n)
	b.rawLen += size
	b.tasks++
}

// flush makes a chunk of the waiting records.
func (b *Builder) flush() { b.try(math.MaxInt) }

// try makes a chunk of the waiting records if it takes no more than room.
func (b *Builder) try(room int) bool {
	d := deflaters.get()
	defer deflaters.put(d)
	records := b.buf[b.start:]
	b.estimates++
	b.compressed += len(records)
	chunk := d.chunk(b.buf[max(0, b.start-window):b.start], records)
	if b.wanted = len(chunk); b.wanted > room {
		return false
	}
	if b.chunks == nil {
		b.chunks = newSlab(len(chunk))
	}
	b.chunks = b.chunks.grow(len(chunk))
	b.chunks.b = append(b.chunks.b, chunk...)
	b.sums(records)
	b.start = len(b.buf)
	return true
}

func (b *Builder) sums(records []byte) {
	b.crc = crc32.Update(b.crc, crc32.IEEETable, records)
	b.sum.Write(records)
}

// storeBelow is the size in bytes below which records are not worth compressing. Compressing a
// single small task saves a few dozen bytes of the kilobyte that its request has anyway, and is a
// third of all work on the message (--pack 1).
const storeBelow = 512

// store makes the one chunk of an envelope from its records as they are. They fit, or
// they would have been compressed.
func (b *Builder) store() {
	records := b.buf[b.start:]
	b.chunks = newSlab(storedSize(len(records)))
	b.chunks.b = appendStored(b.chunks.b, records)
	b.sums(records)
}

// Seal appends the envelope's message text to dst and returns it with the
// header that stands in it. The text is never longer than the builder's limit.
// The builder must be Reset before it is used again. An envelope without a task
// is an error.
func (b *Builder) Seal(dst []byte) ([]byte, Header, error) {
	if b.err != nil {
		return dst, Header{}, b.err
	}
	if b.tasks == 0 {
		return dst, Header{}, errEmpty
	}
	switch {
	case b.waiting() == 0:
	case b.chunks == nil && b.waiting() <= storeBelow:
		b.store()
	default:
		b.flush()
	}
	h := b.head
	h.Version = min(h.Version, tracedSince-1)
	if section := b.traces.section; len(section) > 0 {
		h.Version = tracedSince
		b.chunks = b.chunks.grow(storedSize(len(section)))
		b.chunks.b = appendStored(b.chunks.b, section)
		b.sums(section)
		b.rawLen += len(section)
	}
	if b.head.Version >= NotNowSince {
		h.Version = b.head.Version
	}
	h.Tasks = NSet{slices.Clone(b.spans)}
	h.RawLen = uint64(b.rawLen)
	h.Checksum = b.sum.Sum64()
	h.Sealed = b.stamp()

	b.chunks = b.chunks.grow(tailLen)
	body := append(b.chunks.b, streamEnd...)
	body = binary.LittleEndian.AppendUint32(body, b.crc)
	body = binary.LittleEndian.AppendUint32(body, uint32(b.rawLen))
	b.chunks.b = body

	dst = slices.Grow(dst,
		base64.StdEncoding.EncodedLen(headSize(b.fixed+uvarintLen(h.RawLen)+h.Tasks.size())+len(body)))
	dst = appendText(dst, &h, body)
	b.free()
	b.measure()
	b.err = errNotReset
	return dst, h, nil
}

// stamp is when the envelope was sealed, as a reader will see it.
func (b *Builder) stamp() time.Time {
	if b.head.Version < sealedSince {
		return time.Time{}
	}
	return exact(b.head.Sealed)
}

// exact is a time as the wire has it.
func exact(t time.Time) time.Time {
	ms := millis(t)
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// appendText appends the text of a header and of the packed bytes behind it.
func appendText(dst []byte, h *Header, body []byte) []byte {
	head := newSlab(0)
	head.b = appendHead(head.b, h, len(body))
	dst = base64.StdEncoding.AppendEncode(dst, head.b)
	head.free()
	return base64.StdEncoding.AppendEncode(dst, body)
}
