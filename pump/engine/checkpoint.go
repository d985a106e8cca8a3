package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A checkpoint is where a run can be continued: the source's cursor and the
// number of tasks of each segment before it, copied by the reader at one instant
// (P2.1). Anything else would give tasks a second identity.
type checkpoint struct {
	cursor      []byte
	counts      []uint64 // tasks of each segment before the cursor
	skipped     uint64   // bad lines before it
	quarantined uint64
}

func (c *checkpoint) tasks() int64 {
	var n uint64
	for _, k := range c.counts {
		n += k
	}
	return int64(n)
}

// checkpointVersion is the first byte of an encoded checkpoint.
const checkpointVersion = 1

// encode writes version, bad lines, counters and cursor, numbers as varints: a
// JSON array of 16,384 counters would not fit the row. The largest possible is
// 160 KiB of counters and MaxCursor, within [election.MaxCheckpoint].
func (c *checkpoint) encode() []byte {
	b := make([]byte, 0, 32+3*len(c.counts)+len(c.cursor))
	b = append(b, checkpointVersion)
	b = binary.AppendUvarint(b, c.skipped)
	b = binary.AppendUvarint(b, c.quarantined)
	b = binary.AppendUvarint(b, uint64(len(c.counts)))
	for _, n := range c.counts {
		b = binary.AppendUvarint(b, n)
	}
	return append(b, c.cursor...)
}

var errCheckpoint = errors.New("the saved checkpoint is damaged")

// decodeCheckpoint reads what encode wrote, of a workload with that many segments.
func decodeCheckpoint(b []byte, segments int) (*checkpoint, error) {
	if len(b) == 0 {
		return nil, errCheckpoint
	}
	if b[0] != checkpointVersion {
		return nil, fmt.Errorf("the checkpoint is of version %d; this program reads version %d", b[0], checkpointVersion)
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
	c := &checkpoint{skipped: next(), quarantined: next()}
	if n := next(); !ok || n != uint64(segments) {
		return nil, errCheckpoint
	}
	c.counts = make([]uint64, segments)
	for i := range c.counts {
		c.counts[i] = next()
	}
	if !ok {
		return nil, errCheckpoint
	}
	c.cursor = b
	return c, nil
}
