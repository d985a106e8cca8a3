package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Version is the newest format that this package reads, and the newest that a [Builder] writes.
// Unless told otherwise it writes the oldest format that has room for what the envelope carries.
const Version = 5

// tracedSince is the first version that carries trace contexts, its only difference from the
// version before. An envelope without one is never written in it.
const tracedSince = 3

// NotNowSince is the first version that says when its tasks were first told "not now". An envelope
// that does not say it is never written in it.
const NotNowSince = 4

// bodySince is the first version whose one task may have its body in a blob, and the only thing
// that it is written for.
const bodySince = 5

// sealedSince is the first version that says when an envelope was sealed.
const sealedSince = 2

// DefaultHeadroom is how many characters of message text a [Builder] leaves
// free by default, so that a cause can be added to a full envelope when it is
// quarantined.
const DefaultHeadroom = 1024

// Bounds of what a header carries. They are part of the format: a reader
// refuses more.
const (
	maxText     = 64 << 10 // characters of a message (the service's limit)
	maxWorkload = 255      // bytes of a workload's name
	maxReason   = 64       // bytes of a cause's reason
	maxDetail   = 1024     // bytes of a cause's detail
	maxInstance = 128      // bytes of a cause's instance
	maxTrace    = 512      // bytes of a task's trace context
	maxAccount  = 64       // bytes of the name of an account
)

// Header is what an envelope says about itself without being unpacked.
type Header struct {
	// Version of the format, 1 to [Version]. For [Builder.Reset] it is the newest that may be written,
	// and 0 means [Version].
	Version uint8
	// Workload is the name of the workload, at most 255 bytes.
	Workload string
	// Run and Segment with an n of Tasks are the identity of a task.
	Run     RunID
	Segment uint32
	// Tasks says which n the envelope carries; never empty.
	Tasks NSet
	// Attempt counts the attempts at these tasks before this one.
	Attempt uint32
	// Generation counts how often the tasks were put back from quarantine.
	Generation uint32
	// MapVersion is the version of the shard map that placed the envelope.
	MapVersion uint64
	// RawLen is the size in bytes before compression of the records, and of the trace contexts
	// behind them.
	RawLen uint64
	// Checksum is the xxhash64 of the records before compression.
	Checksum uint64
	// Sealed is when the envelope was ready to be put, by its maker's clock ([Builder.Stamp]), to the
	// millisecond. It is zero if that is not known, as in version 1. It serves to measure; nothing
	// may be decided by it.
	Sealed time.Time
	// NotNow says since when and how often these tasks were told "not now". It is zero if they never
	// were, and in versions before 4.
	NotNow NotNow
	// Body says where the body of the one task is. It is zero if bodies are in the envelope, as in
	// versions before 5.
	Body BodyRef
	// Cause is set only in quarantined copies.
	Cause *Cause
}

// NotNow says that tasks were told "not now": such a delivery does not count as an attempt, but
// there is a limit to them.
type NotNow struct {
	// First is when the first of them was told so for the first time, by the clock of the queue
	// service, to the millisecond.
	First time.Time
	// Deliveries counts the deliveries that ended with "not now". Here counts those of this very
	// message: one that is put beside it, split off or put back from quarantine begins at 0.
	Deliveries, Here uint32
}

// BodyRef is a body that lies in a blob. The task's identity is the blob's name.
type BodyRef struct {
	// Account has the blob: 1 to 64 bytes.
	Account string
	// Size is the body's in bytes, and Checksum its xxhash64.
	Size, Checksum uint64
}

// Cause is why an envelope was put into quarantine.
type Cause struct {
	// Reason is a short stable code to count and filter by, at most 64 bytes: [ReasonRejected].
	Reason string
	// Detail is for people: an error's text, cut to what fits.
	Detail string
	// Instance is the process that put it there, at most 128 bytes.
	Instance string
	// Attempts is how many attempts were made at the tasks.
	Attempts uint32
	// First and Last are when the first and the last attempt began. They are
	// kept to the millisecond; the zero time stays zero.
	First, Last time.Time
}

// appendFields appends the fields of h.Version in the order of the format.
func (h *Header) appendFields(b []byte) []byte {
	b = appendString(b, h.Workload)
	b = append(b, h.Run[:]...)
	b = binary.AppendUvarint(b, uint64(h.Segment))
	b = binary.AppendUvarint(b, uint64(h.Attempt))
	b = binary.AppendUvarint(b, uint64(h.Generation))
	b = binary.AppendUvarint(b, h.MapVersion)
	b = binary.AppendUvarint(b, h.RawLen)
	b = binary.LittleEndian.AppendUint64(b, h.Checksum)
	if h.Version >= sealedSince {
		// Not a varint: what has a fixed size can be written last without moving anything.
		b = binary.LittleEndian.AppendUint64(b, uint64(millis(h.Sealed)))
	}
	if h.Version >= NotNowSince {
		b = h.NotNow.append(b)
	}
	if h.Version >= bodySince {
		b = h.Body.append(b)
	}
	b = h.Tasks.append(b)
	if h.Cause == nil {
		return append(b, 0)
	}
	return h.Cause.append(append(b, 1))
}

// fieldsSize is len(h.appendFields(nil)) for a header without a cause, less
// what grows with every task: RawLen and Tasks.
func (h *Header) fieldsSize() int {
	size := uvarintLen(uint64(len(h.Workload))) + len(h.Workload) + len(h.Run) +
		uvarintLen(uint64(h.Segment)) + uvarintLen(uint64(h.Attempt)) +
		uvarintLen(uint64(h.Generation)) + uvarintLen(h.MapVersion) + 8 + 1
	if h.Version >= sealedSince {
		size += 8
	}
	if h.Version >= NotNowSince {
		size += len(h.NotNow.append(nil))
	}
	if h.Version >= bodySince {
		size += len(h.Body.append(nil))
	}
	return size
}

func (n *NotNow) append(b []byte) []byte {
	b = binary.AppendVarint(b, millis(n.First))
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(n.Deliveries)), uint64(n.Here))
}

func (r *BodyRef) append(b []byte) []byte {
	b = binary.AppendUvarint(appendString(b, r.Account), r.Size)
	return binary.LittleEndian.AppendUint64(b, r.Checksum)
}

func (c *Cause) append(b []byte) []byte {
	b = appendString(b, c.Reason)
	b = appendString(b, c.Detail)
	b = appendString(b, c.Instance)
	b = binary.AppendUvarint(b, uint64(c.Attempts))
	b = binary.AppendVarint(b, millis(c.First))
	return binary.AppendVarint(b, millis(c.Last))
}

// millis is t for the wire; 0 stands for the zero time (0 is also an instant in 1970, before this
// program was written). Years that a reader would refuse become the nearest that it takes.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(minMillis, min(maxMillis, t.UnixMilli()))
}

// The years 1 to 9999, which time.Time can show and JSON can carry.
var (
	minMillis = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC).UnixMilli()
	maxMillis = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli()
)

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// readFields reads what appendFields wrote in that version. packed is the real size of
// what follows the header: it bounds everything that the fields declare.
func readFields(f *fields, version uint8, packed int) Header {
	h := Header{Version: version}
	h.Workload = f.string("workload", maxWorkload)
	copy(h.Run[:], f.bytes("run", uint64(len(h.Run))))
	h.Segment = uint32(f.uvarint("segment", math.MaxUint32))
	h.Attempt = uint32(f.uvarint("attempt", math.MaxUint32))
	h.Generation = uint32(f.uvarint("generation", math.MaxUint32))
	h.MapVersion = f.uvarint("map version", math.MaxUint64)
	h.RawLen = f.uvarint("raw length", math.MaxUint64)
	if sum := f.bytes("checksum", 8); sum != nil {
		h.Checksum = binary.LittleEndian.Uint64(sum)
	}
	if version >= sealedSince {
		if at := f.bytes("sealed", 8); at != nil {
			h.Sealed = f.instant("sealed", int64(binary.LittleEndian.Uint64(at)))
		}
	}
	if version >= NotNowSince {
		h.NotNow.First = f.time("first not now")
		h.NotNow.Deliveries = uint32(f.uvarint("deliveries", math.MaxUint32))
		h.NotNow.Here = uint32(f.uvarint("deliveries here", uint64(h.NotNow.Deliveries)))
	}
	if version >= bodySince {
		h.Body.Account = f.string("account", maxAccount)
		h.Body.Size = f.uvarint("size of the body", math.MaxUint64)
		if sum := f.bytes("checksum of the body", 8); sum != nil {
			h.Body.Checksum = binary.LittleEndian.Uint64(sum)
		}
	}
	if f.err != nil {
		return Header{}
	}
	if h.RawLen > uint64(packed)*maxDeflateRatio {
		f.err = bomb("%d bytes declared in %d packed ones", h.RawLen, packed)
		return Header{}
	}
	h.Tasks = readNSet(f, h.RawLen/minRecord)
	if f.err == nil && len(h.Tasks.spans) == 0 {
		f.fail("n-set is empty")
	}
	if f.err == nil && version == bodySince && (h.Body.Account == "" || h.Tasks.Len() != 1) {
		f.fail("no body in a blob, or not of one task, in a version that is written for it")
	}
	switch f.byte("cause") {
	case 0:
	case 1:
		h.Cause = readCause(f)
	default:
		f.fail("cause is neither there nor absent")
	}
	return h
}

func readCause(f *fields) *Cause {
	c := &Cause{
		Reason:   f.string("reason", maxReason),
		Detail:   f.string("detail", maxDetail),
		Instance: f.string("instance", maxInstance),
		Attempts: uint32(f.uvarint("attempts", math.MaxUint32)),
	}
	c.First = f.time("first attempt")
	c.Last = f.time("last attempt")
	return c
}

// fields reads the header's fields one after another and remembers the first
// thing that was wrong, after which everything reads as zero.
type fields struct {
	rest []byte
	err  error
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = corrupt("header: %s", fmt.Sprintf(format, args...))
		f.rest = nil
	}
}

// uvarint reads a number of at most limit, in its shortest form only: what is
// read and written again is then the same bytes.
func (f *fields) uvarint(name string, limit uint64) uint64 {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 || n != uvarintLen(v) || v > limit {
		f.fail("%s out of range", name)
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

func (f *fields) bytes(name string, n uint64) []byte {
	if n > uint64(len(f.rest)) {
		f.fail("%s ends early", name)
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) byte(name string) byte {
	if b := f.bytes(name, 1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) string(name string, limit uint64) string {
	b := f.bytes(name, f.uvarint(name, limit))
	if !utf8.Valid(b) {
		f.fail("%s is not UTF-8", name)
		return ""
	}
	return string(b)
}

func (f *fields) time(name string) time.Time {
	v, n := binary.Varint(f.rest)
	if n <= 0 || n != uvarintLen(uint64(v<<1)^uint64(v>>63)) {
		f.fail("%s out of range", name)
		return time.Time{}
	}
	f.rest = f.rest[n:]
	return f.instant(name, v)
}

// instant is the time from which millis made v.
func (f *fields) instant(name string, v int64) time.Time {
	switch {
	case v < minMillis || v > maxMillis:
		f.fail("%s out of range", name)
		return time.Time{}
	case v == 0:
		return time.Time{}
	}
	return time.UnixMilli(v).UTC()
}
