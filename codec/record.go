package codec

import (
	"encoding/binary"
)

// Task is one unit of work inside an envelope.
type Task struct {
	// N is the task's place in its segment; the header's n-set carries it.
	N uint64
	// Key is what the task is segmented by, ID the user's own name for the task
	// (optional), Body the work. Any bytes; empty ones are read back as nil.
	Key, ID, Body []byte
	// Trace is the trace context in which the task was sent: at most 512 bytes, nil if it is not
	// traced. See version 3 of the format.
	Trace []byte
}

// A record is the three byte strings of a task, each after its length as a
// uvarint. So no record is shorter than three bytes, which is what a declared
// number of tasks is checked against.
const minRecord = 3

func recordSize(t *Task) int {
	return uvarintLen(uint64(len(t.Key))) + len(t.Key) +
		uvarintLen(uint64(len(t.ID))) + len(t.ID) +
		uvarintLen(uint64(len(t.Body))) + len(t.Body)
}

func appendRecord(b []byte, t *Task) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(t.Key))), t.Key...)
	b = append(binary.AppendUvarint(b, uint64(len(t.ID))), t.ID...)
	return append(binary.AppendUvarint(b, uint64(len(t.Body))), t.Body...)
}

// readRecords appends the tasks of the n-set to tasks; they alias raw. The set says exactly how
// many records there must be. With the trace contexts of a version that has them, they must fill
// raw to its end.
func readRecords(tasks []Task, raw []byte, set NSet, version uint8) ([]Task, error) {
	for _, sp := range set.spans {
		for n := sp.from; n < sp.to; n++ {
			tasks = append(tasks, Task{N: n})
			t := &tasks[len(tasks)-1]
			var ok [3]bool
			t.Key, raw, ok[0] = cut(raw)
			t.ID, raw, ok[1] = cut(raw)
			t.Body, raw, ok[2] = cut(raw)
			if !ok[0] || !ok[1] || !ok[2] {
				return tasks, corrupt("record %d of %d ends early", len(tasks), set.Len())
			}
		}
	}
	if version >= tracedSince {
		return tasks, readTraces(tasks, raw, version)
	}
	if len(raw) > 0 {
		return tasks, corrupt("%d bytes after the last record", len(raw))
	}
	return tasks, nil
}

// cut takes one length-prefixed string off raw. Its capacity ends with it, so
// that a handler that appends to a task does not write into the next one.
func cut(raw []byte) (s, rest []byte, ok bool) {
	var size uint64
	var n int
	switch {
	case len(raw) > 0 && raw[0] < 0x80:
		size, n = uint64(raw[0]), 1
	case len(raw) > 1 && raw[1]-1 < 0x7f:
		size, n = uint64(raw[0]&0x7f)|uint64(raw[1])<<7, 2
	default:
		if size, n = binary.Uvarint(raw); n <= 0 || n != uvarintLen(size) {
			return nil, raw, false
		}
	}
	if size > uint64(len(raw)-n) {
		return nil, raw, false
	}
	if size == 0 {
		return nil, raw[n:], true
	}
	end := n + int(size)
	return raw[n:end:end], raw[end:], true
}
