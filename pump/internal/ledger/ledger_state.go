package ledger

import (
	"bytes"
	"errors"
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
		panic(err) // flate knows the level
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

// stateChanges are the records that change the stored state to raw. It is false if that is too much
// to store.
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

// stateUse is the used part of a state's bounds: of 1 MiB compressed or of 16 MiB uncompressed, the
// larger of the two.
func (m *image) stateUse() float64 {
	stored := 0
	for number := 0; ; number++ {
		part := m.layout.get(stateKey(number))
		if part == nil {
			break
		}
		stored += len(part)
	}
	return max(float64(stored)/maxState, float64(len(m.raw))/maxRawState)
}

// StateUse is the part of its bounds that a segment's last recorded state takes, from 0 to 1; 0 for
// a segment that this process has not fenced. It is quick.
func (l *Ledger) StateUse(segment uint32) (used float64) {
	l.use(segment, func(s *ledgerSegment) {
		if s.image != nil {
			used = s.image.used
		}
	})
	return used
}
