package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// PartitionSegments is how many segments share a partition of the ledger, so
// that one transaction can cover them (P3.6).
const PartitionSegments = 64

const (
	headPrefix = "head."
	pagePrefix = "page."

	// The properties of a head. fenceProperty is the nonce of the write that made the owner the owner.
	// NonceProperty, which that write leaves alone, is the nonce of the last commit: so an owner that
	// was fenced off after its commit still sees that the commit landed.
	fenceProperty   = "Fence"
	epochProperty   = "Epoch"
	ownerProperty   = "Owner"
	countsProperty  = "Counts"
	restsProperty   = "Rests"
	resultsProperty = "Results"
	pagesProperty   = "Pages"
	recordsProperty = "Records"
	// commitsProperty counts the commits, so that their owner recognises rows that came back older.
	// Rows of the version before lack it, and that version leaves it out.
	commitsProperty = "Commits"
	// bookedProperty is how many bytes the records of runs and foreign messages have, for readers of
	// heads alone. Rows of the version before lack it.
	bookedProperty = "Booked"
)

// Partition is the partition with the ledger of [PartitionSegments] segments of a workload.
func Partition(workload string, partition int) string {
	return fmt.Sprintf("%s.ledger.%02d", workload, partition)
}

func headKey(segment uint32) string { return headPrefix + cluster.SegmentKey(segment) }

func pageKey(segment uint32, id uint64) string {
	return fmt.Sprintf("%s%06d", pagesOf(segment), id)
}

// ledgerHead is what the head row of a segment says.
type ledgerHead struct {
	etag         storage.ETag // empty without a row
	epoch        uint64
	owner        string
	fence, nonce string
	commits      uint64
	layout       layout // the pages without their records
	rests        []restCount
	results      []byte
}

// readShortHead reads whose a head is, and nothing else.
func readShortHead(f *row.Fields) *ledgerHead {
	return &ledgerHead{
		epoch: f.UpTo(epochProperty, row.MaxEpoch), owner: f.Line(ownerProperty),
		commits: f.Count(commitsProperty),
	}
}

func readHead(f *row.Fields) *ledgerHead {
	h := readShortHead(f)
	h.fence, h.nonce = f.Line(fenceProperty), f.Line(row.NonceProperty)
	var err error
	if h.layout.next, h.layout.pages, err = readDirectory(f.Binary(pagesProperty)); err != nil {
		f.Fail(pagesProperty, err.Error())
	}
	if h.layout.hot, err = readBlock(f.Binary(recordsProperty)); err != nil {
		f.Fail(recordsProperty, err.Error())
	}
	if h.rests, err = readRests(f.Binary(restsProperty)); err != nil {
		f.Fail(restsProperty, err.Error())
	}
	h.results = f.Parts(resultsProperty, resultsParts)
	if err = readResults(h.results, func(codec.RunID, string) {}); err != nil {
		f.Fail(resultsProperty, err.Error())
	}
	return h
}

func headOf(table storage.Table, e storage.Entity) (*ledgerHead, error) {
	return decodeHead(table, e, readHead)
}

func decodeHead(
	table storage.Table, e storage.Entity, read func(*row.Fields) *ledgerHead,
) (*ledgerHead, error) {
	f := &row.Fields{Props: e.Properties}
	h := row.ReadFormat(f, read)
	if f.Err != nil {
		return nil, row.Damaged(table, e.Partition, e.Row, f.Err)
	}
	h.etag = e.ETag
	return h, nil
}

// pageOf gives the records of a page's row.
func pageOf(table storage.Table, e storage.Entity) (block, error) {
	f := &row.Fields{Props: e.Properties}
	records := row.ReadFormat(f, func(f *row.Fields) block {
		records, err := readBlock(f.Binary(recordsProperty))
		if err != nil {
			f.Fail(recordsProperty, err.Error())
		}
		for _, value := range records {
			if value == nil {
				f.Fail(recordsProperty, "say that one is gone, as only a head's may")
			}
		}
		return records
	})
	if f.Err != nil {
		return nil, row.Damaged(table, e.Partition, e.Row, f.Err)
	}
	return records, nil
}

// image is what is stored of a segment, read and understood.
type image struct {
	head    ledgerHead // with the pages' records
	layout  *layout    // head.layout
	runs    map[codec.RunID]*runBook
	rests   int // of runs, how many are rests
	foreign *foreignBook
	booked  int     // bytes that are neither state nor overhead
	raw     []byte  // the reducer's state as stored, before it is parted; nil: none
	used    float64 // the part of its bounds that the state takes

	// The reducer's state, for holders of the partition's lock only. Not loaded: raw counts, because
	// contributions were folded into a state that was then not stored.
	state  any
	loaded bool
}

// newImage makes sense of the records. Records without sense are an ErrCorrupt.
func newImage(h *ledgerHead) (*image, error) {
	m := &image{head: *h, runs: map[codec.RunID]*runBook{}, foreign: newForeignBook()}
	m.layout = &m.head.layout
	records := m.layout.all()
	now := time.Now()
	parts := 0
	for _, key := range sortedKeys(records) {
		value := records[key]
		var err error
		switch {
		case key[0] == stateKind:
			var part []byte
			part, err = unpackState(value)
			// Every part but the last is full.
			if err == nil && (key != stateKey(parts) || len(m.raw) != parts*statePart ||
				len(m.raw)+len(part) > maxRawState) {
				err = errState
			}
			if m.raw = append(m.raw, part...); m.raw == nil {
				m.raw = []byte{} // a state of zero bytes is a state
			}
			parts++
		case key[0] == foreignKind:
			m.booked += blockRecordMost + len(value)
			err = m.foreign.read(binary.BigEndian.Uint32([]byte(key[1:])), value, now)
		default:
			m.booked += blockRecordMost + len(value)
			err = m.readRun(key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", row.ErrCorrupt, err)
		}
	}
	for id, b := range m.runs {
		if !b.count() {
			return nil, fmt.Errorf("%w: run %s counts more tasks than there can be", row.ErrCorrupt, id)
		}
	}
	m.used = m.stateUse()
	for _, r := range m.head.rests {
		b := m.runs[r.run]
		if b == nil {
			return nil, fmt.Errorf("%w: of run %s there is a rest without a record", row.ErrCorrupt, r.run)
		}
		b.rest = r.hour
		m.rests++
	}
	_ = readResults(m.head.results, func(id codec.RunID, results string) {
		if b := m.runs[id]; b != nil {
			b.results = results
		}
	})
	m.head.results = nil // the books have them
	return m, nil
}

var errRunRecord = errors.New("a run's record cannot be read")

func (m *image) readRun(key string, value []byte) error {
	id := codec.RunID([]byte(key[1:runKeySize]))
	if len(key) == runKeySize {
		floor, size := binary.Uvarint(value)
		if size != len(value) || size <= 0 || floor > math.MaxInt64 || id.IsZero() {
			return errRunRecord
		}
		m.runs[id] = &runBook{floor: floor, chunks: map[uint64]*chunk{}}
		return nil
	}
	b := m.runs[id] // in key order it comes before its chunks
	if b == nil {
		return errRunRecord
	}
	index := binary.BigEndian.Uint64([]byte("\x00\x00" + key[runKeySize:]))
	c, err := readChunk(value)
	if err != nil {
		return err
	}
	if c.done != nil &&
		(index < b.floor>>chunkBits || index == b.floor>>chunkBits &&
			uint64(c.done.Minimum()) <= b.floor&(chunkSize-1)) {
		return errRunRecord
	}
	b.chunks[index] = c
	return nil
}

// headProperties are what the head's row says when all else is.
func headProperties(h *ledgerHead, runs map[codec.RunID]*runBook, booked int) map[string]any {
	props := make(map[string]any, 12) // a literal of so few would grow
	props[row.FormatProperty], props[epochProperty] = int64(row.Format), int64(h.epoch)
	props[ownerProperty], props[fenceProperty], props[row.NonceProperty] = h.owner, h.fence, h.nonce
	props[commitsProperty], props[bookedProperty] = int64(h.commits), int64(booked)
	if counts := appendRunCounts(nil, runs); len(counts) > 0 {
		row.PutParts(props, countsProperty, countsBytes, counts)
	}
	if rests := appendRests(nil, runs); len(rests) > 0 {
		props[restsProperty] = rests
	}
	if results := appendResults(nil, runs); len(results) > 0 {
		row.PutParts(props, resultsProperty, resultsPart, results)
	}
	if h.layout.next > 0 {
		props[pagesProperty] = appendDirectory(nil, h.layout.next, h.layout.pages)
	}
	if len(h.layout.hot) > 0 {
		props[recordsProperty] = appendBlock(nil, h.layout.hot)
	}
	return props
}

func pageEntity(partition string, segment uint32, p *ledgerPage) storage.Entity {
	return storage.Entity{
		Partition: partition, Row: pageKey(segment, p.id),
		Properties: map[string]any{
			row.FormatProperty: int64(row.Format), recordsProperty: appendBlock(nil, p.block),
		},
	}
}
