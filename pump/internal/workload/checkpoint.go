package workload

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Checkpoint is where a run can be continued: the source's cursor and the
// number of tasks of each segment before it, copied by the reader at one instant
// (P2.1). Anything else would give tasks a second identity.
type Checkpoint struct {
	Cursor      []byte
	Counts      []uint64 // tasks of each segment before the cursor
	Skipped     uint64   // bad lines before it
	Quarantined uint64
}

// Tasks is how many tasks have a number by then.
func (c *Checkpoint) Tasks() int64 {
	var n uint64
	for _, k := range c.Counts {
		n += k
	}
	return int64(n)
}

// checkpointVersion is the first byte of an encoded checkpoint.
const checkpointVersion = 1

// Encode writes version, bad lines, counters and cursor, numbers as varints: a
// JSON array of 16,384 counters would not fit the row. The largest possible is
// 160 KiB of counters and MaxCursor, within [election.MaxCheckpoint].
func (c *Checkpoint) Encode() []byte {
	b := make([]byte, 0, 32+3*len(c.Counts)+len(c.Cursor))
	b = append(b, checkpointVersion)
	b = binary.AppendUvarint(b, c.Skipped)
	b = binary.AppendUvarint(b, c.Quarantined)
	b = binary.AppendUvarint(b, uint64(len(c.Counts)))
	for _, n := range c.Counts {
		b = binary.AppendUvarint(b, n)
	}
	return append(b, c.Cursor...)
}

var errCheckpoint = errors.New("the saved checkpoint is damaged")

// DecodeCheckpoint reads what Encode wrote, of a workload with that many segments.
func DecodeCheckpoint(b []byte, segments int) (*Checkpoint, error) {
	if len(b) == 0 {
		return nil, errCheckpoint
	}
	if b[0] != checkpointVersion {
		return nil, fmt.Errorf("the checkpoint is of version %d; this program reads version %d", b[0],
			checkpointVersion)
	}
	b = b[1:]
	ok := true
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<62 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	c := &Checkpoint{Skipped: next(), Quarantined: next()}
	if n := next(); !ok || n != uint64(segments) {
		return nil, errCheckpoint
	}
	c.Counts = make([]uint64, segments)
	for i := range c.Counts {
		c.Counts[i] = next()
	}
	if !ok {
		return nil, errCheckpoint
	}
	c.Cursor = b
	return c, nil
}
