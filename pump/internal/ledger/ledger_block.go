package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// A record is a key and a value. Keys are bytes, ordered as such:
//
//	'f' bucket (4 bytes)                foreign messages, by the order in which they were done
//	'r' run (16 bytes)                  a run: its floor
//	'r' run (16 bytes) chunk (6 bytes)  2^16 n of a run
//	's' number (2 bytes)                a part of the reducer's state
const (
	foreignKind = 'f'
	runKind     = 'r'
	stateKind   = 's'

	runKeySize   = 1 + 16
	chunkKeySize = runKeySize + 6
)

func foreignKey(bucket uint32) string {
	return string(binary.BigEndian.AppendUint32([]byte{foreignKind}, bucket))
}

func runKey(id codec.RunID) string { return string(append([]byte{runKind}, id[:]...)) }

func chunkKey(id codec.RunID, index uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], index)
	return runKey(id) + string(b[2:])
}

func stateKey(number int) string {
	return string(binary.BigEndian.AppendUint16([]byte{stateKind}, uint16(number)))
}

// block is records by key. A nil value in the head says that a record of a page is gone.
type block map[string][]byte

var errBlock = errors.New("records cannot be read")

// blockRecordMost is more than a record's key takes with the two lengths before it and the one
// behind.
const blockRecordMost = chunkKeySize + 6

// size is not less than len(appendBlock(nil, b)).
func (b block) size() int {
	n := 0
	for _, value := range b {
		n += blockRecordMost + len(value)
	}
	return n
}

// appendBlock writes records in key order. Of each key it writes how many bytes it shares with the
// last key, the number of the others, and these. Then come the value's length + 1 and the value, or
// 0 if the record is gone.
func appendBlock(out []byte, b block) []byte {
	last := ""
	for _, key := range sortedKeys(b) {
		same := 0
		for same < min(len(key), len(last)) && key[same] == last[same] {
			same++
		}
		out = append(out, byte(same), byte(len(key)-same))
		out = append(out, key[same:]...)
		if value := b[key]; value == nil {
			out = append(out, 0)
		} else {
			out = append(binary.AppendUvarint(out, uint64(len(value))+1), value...)
		}
		last = key
	}
	return out
}

// readBlock reads what appendBlock wrote. The values are parts of b.
func readBlock(b []byte) (block, error) {
	records := block{}
	last := ""
	for len(b) > 0 {
		if len(b) < 3 || int(b[0]) > len(last) || 2+int(b[1]) > len(b) {
			return nil, fmt.Errorf("%w: a key ends early", errBlock)
		}
		key := last[:b[0]] + string(b[2:2+int(b[1])])
		b = b[2+int(b[1]):]
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size)+1 {
			return nil, fmt.Errorf("%w: a value ends early", errBlock)
		}
		if b = b[size:]; key <= last || !validKey(key) {
			return nil, fmt.Errorf("%w: a key is unknown or out of order", errBlock)
		}
		if n == 0 {
			records[key] = nil
		} else {
			records[key] = b[: n-1 : n-1]
			b = b[n-1:]
		}
		last = key
	}
	return records, nil
}

func validKey(key string) bool {
	switch len(key) {
	case 3:
		return key[0] == stateKind
	case 5:
		return key[0] == foreignKind
	case runKeySize, chunkKeySize:
		return key[0] == runKind
	}
	return false
}

func sortedKeys(b block) []string {
	return slices.Sorted(maps.Keys(b))
}

// The directory of pages: the next number of a page, how many pages there are, and for each its
// number and the key that its range begins with. A page holds the records from there up to the next
// page's key; the first page's range begins at the very beginning.

func appendDirectory(b []byte, next uint64, pages []*ledgerPage) []byte {
	b = binary.AppendUvarint(b, next)
	b = binary.AppendUvarint(b, uint64(len(pages)))
	for _, p := range pages {
		b = binary.AppendUvarint(b, p.id)
		b = append(append(b, byte(len(p.first))), p.first...)
	}
	return b
}

var errDirectory = errors.New("the pages cannot be read")

func readDirectory(b []byte) (next uint64, pages []*ledgerPage, err error) {
	if len(b) == 0 {
		return 0, nil, nil
	}
	number := func(most uint64) (n uint64) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > most {
			err = errDirectory
			return 0
		}
		b = b[size:]
		return n
	}
	next = number(math.MaxInt64)
	count := number(maxPages)
	seen := map[uint64]bool{}
	for i := range count {
		p := &ledgerPage{id: number(math.MaxInt64)}
		if err != nil || p.id >= next || seen[p.id] || len(b) < 1 || len(b) < 1+int(b[0]) {
			return 0, nil, errDirectory
		}
		seen[p.id] = true
		p.first = string(b[1 : 1+int(b[0])]) // not 1+b[0], which is a byte too
		b = b[1+len(p.first):]
		if (i == 0) != (p.first == "") || i > 0 && (p.first <= pages[i-1].first || !validKey(p.first)) {
			return 0, nil, errDirectory
		}
		pages = append(pages, p)
	}
	if err != nil || len(b) > 0 {
		return 0, nil, errDirectory
	}
	return next, pages, nil
}

// The counts: of each live run, in order, its id, how many are done, how many in quarantine.

func appendRunCounts(b []byte, runs map[codec.RunID]*runBook) []byte {
	for _, id := range sortedRuns(runs) {
		if runs[id].rest > 0 {
			continue
		}
		b = append(b, id[:]...)
		b = binary.AppendUvarint(b, runs[id].done)
		b = binary.AppendUvarint(b, runs[id].quarantined)
	}
	return b
}

var errCounts = errors.New("the counts cannot be read")

func readRunCounts(b []byte, visit func(id codec.RunID, done, quarantined uint64)) error {
	var last codec.RunID
	for len(b) > 0 {
		var id codec.RunID
		if len(b) < len(id) {
			return errCounts
		}
		b = b[copy(id[:], b):]
		var n [2]uint64
		for i := range n {
			size := 0
			if n[i], size = binary.Uvarint(b); size <= 0 || n[i] > math.MaxInt64 {
				return errCounts
			}
			b = b[size:]
		}
		if workload.CompareRuns(last, id) >= 0 {
			return errCounts
		}
		visit(id, n[0], n[1])
		last = id
	}
	return nil
}

// The rests, in order: for each closed run that has tasks in quarantine here its id, the hour in
// which it became a rest, and how many such tasks it has.

// restCount is what a head says of a rest.
type restCount struct {
	run               codec.RunID
	hour, quarantined uint64
}

func appendRests(b []byte, runs map[codec.RunID]*runBook) []byte {
	for _, id := range sortedRuns(runs) {
		if r := runs[id]; r.rest > 0 {
			b = append(b, id[:]...)
			b = binary.AppendUvarint(binary.AppendUvarint(b, r.rest), r.quarantined)
		}
	}
	return b
}

var errRests = errors.New("the rests cannot be read")

func readRests(b []byte) (rests []restCount, err error) {
	for len(b) > 0 {
		var r restCount
		if len(b) < len(r.run) {
			return nil, errRests
		}
		b = b[copy(r.run[:], b):]
		for _, n := range []*uint64{&r.hour, &r.quarantined} {
			size := 0
			if *n, size = binary.Uvarint(b); size <= 0 || *n == 0 || *n > math.MaxInt64 {
				return nil, errRests
			}
			b = b[size:]
		}
		if len(rests) > 0 && workload.CompareRuns(rests[len(rests)-1].run, r.run) >= 0 {
			return nil, errRests
		}
		rests = append(rests, r)
	}
	return rests, nil
}

// The results, in order: for each live run with results its id, and where the last ones are after
// one byte with the length of that.

// resultsRoom is what the results of a run take at most, [ResultsMost] included.
const resultsRoom = 16 + 1 + ResultsMost

// ResultsMost bounds Entry.Results.
const ResultsMost = 48

func appendResults(b []byte, runs map[codec.RunID]*runBook) []byte {
	for _, id := range sortedRuns(runs) {
		if r := runs[id].results; r != "" {
			b = append(append(append(b, id[:]...), byte(len(r))), r...)
		}
	}
	return b
}

var errResults = errors.New("the results cannot be read")

func readResults(b []byte, visit func(id codec.RunID, results string)) error {
	for len(b) > 0 {
		if len(b) < 17 || len(b) < 17+int(b[16]) || b[16] == 0 || b[16] > ResultsMost {
			return errResults
		}
		visit(codec.RunID(b[:16]), string(b[17:17+int(b[16])]))
		b = b[17+int(b[16]):]
	}
	return nil
}

func sortedRuns[V any](runs map[codec.RunID]V) []codec.RunID {
	ids := slices.AppendSeq(make([]codec.RunID, 0, len(runs)), maps.Keys(runs))
	slices.SortFunc(ids, workload.CompareRuns)
	return ids
}
