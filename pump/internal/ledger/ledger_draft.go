package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// Contribution is what a done task adds to the state of its segment.
type Contribution struct {
	N     uint64
	Value any
}

// Entry is what one delivery adds to the record of its segment.
type Entry struct {
	Segment uint32
	// Epoch is that of the Begin of these tasks.
	Epoch uint64
	// Run, Generation and the two sets say what is recorded; recorded tasks stay as they are. For a
	// foreign message Foreign is its identity instead.
	Run               codec.RunID
	Generation        uint32
	Done, Quarantined codec.NSet
	Foreign           string
	// Contributions are folded into the state, each exactly once and only if its task is recorded as
	// done by this very entry. At most one for each n of Done; N does not matter for a foreign
	// message.
	Contributions []Contribution
	// Results names where the results of the tasks are, and Before what [Ledger.Results] gave when
	// they were put there. Empty Results: there are none, and the run's stay as they are.
	Before, Results string
	// Err is set by Commit. nil: it is recorded, durably. [ErrFenced]: another owner was there, and it
	// is not known to be recorded; the present owner knows which tasks are recorded, so their messages
	// are left to it. [ErrLedgerFull]: it does not fit; nothing of it was recorded. [row.ErrCorrupt]:
	// the rows are damaged. Any other error, as when ctx ended: the outcome is not known yet; the
	// entry should be committed again, and its tasks stay in hand until then.
	Err error
}

// draft is what becomes of a segment when entries are recorded in it. While it is
// made and sent, the segment's image stays as it is.
type draft struct {
	image   *image
	entries []*Entry
	head    ledgerHead
	runs    map[codec.RunID]*runBook
	gone    []codec.RunID
	rested  bool          // runs became rests
	foreign *foreignDraft // nil: unchanged
	booked  int
	raw     []byte
	state   any
	folded  bool

	added, removed []*ledgerPage
	rows, size     int // of what is to be written; 0 rows: nothing is
}

// The bounds of a transaction: its body as it travels has at most 4 MiB.
const (
	transactionMost = 4<<20 - 64<<10
	// rowOverhead is at least what a row adds to the body beside its binary properties: the part's
	// headers, the address, names of properties, the JSON around them.
	rowOverhead = 1536
)

// travels is not less than what so many bytes take in base64.
func travels(n int) int { return n/3*4 + 8 }

// draft records entries, or takes out finished runs; either also takes out the names of deleted
// foreign messages. It is ErrLedgerFull if the result does not fit, or the State cannot store it;
// other errors are of reading the state that is there.
func (l *Ledger) draft(
	segment uint32, m *image, entries []*Entry, with *doneWith, deleted ...string,
) (*draft, error) {
	d := &draft{
		image: m, entries: entries, runs: map[codec.RunID]*runBook{}, raw: m.raw, state: m.state,
		booked: m.booked,
	}
	changes := block{}
	d.forgetForeign(deleted, l.agedBefore(), changes)
	for _, e := range entries {
		if err := d.record(l, e, changes); err != nil {
			return nil, err
		}
	}
	d.books(changes)
	d.prune(with, changes)
	if err := d.countRuns(segment); err != nil {
		return nil, err
	}
	if err := d.account(segment, changes); err != nil {
		return nil, err
	}
	if d.folded {
		if err := d.store(segment, l.options.State, changes); err != nil {
			return nil, err
		}
	}
	if len(changes) == 0 && !d.rested {
		return d, nil
	}
	next, added, removed, fits := m.layout.with(changes)
	if !fits {
		return nil, fmt.Errorf("segment %d: %w: its records take more than %d pages; "+
			"let runs end, or use more segments", segment, ErrLedgerFull, maxPages)
	}
	d.head = m.head
	d.head.commits++
	d.head.layout, d.added, d.removed = *next, added, removed
	d.measure()
	return d, nil
}

// record applies one entry.
func (d *draft) record(l *Ledger, e *Entry, changes block) error {
	if e.Foreign != "" {
		return d.recordForeign(l, e, changes)
	}
	if !l.options.Record {
		for _, c := range e.Contributions {
			if e.Done.Contains(c.N) {
				if err := d.fold(l, e.Segment, c.Value); err != nil {
					return err
				}
			}
		}
		return nil
	}
	b := d.runs[e.Run]
	if b == nil {
		b = d.image.runs[e.Run].draft()
		d.runs[e.Run] = b
	}
	if e.Results != "" {
		if b.results != e.Before && b.results != e.Results {
			return fmt.Errorf("segment %d, run %s: %w", e.Segment, e.Run, ErrResultsMoved)
		}
		b.results = e.Results
	}
	for _, c := range e.Contributions {
		// Recorded, or in this commit: then it is in the state already (P3.4).
		if e.Done.Contains(c.N) && !b.settled(c.N, e.Generation) {
			if err := d.fold(l, e.Segment, c.Value); err != nil {
				return err
			}
		}
	}
	b.finish(e.Done, e.Generation)
	b.condemn(e.Quarantined, e.Generation)
	return nil
}

func (d *draft) recordForeign(l *Ledger, e *Entry, changes block) error {
	if l.options.Record {
		if d.foreign == nil {
			d.foreign = d.image.foreign.draft()
		}
		if !d.foreign.add(foreignName(e.Foreign), time.Now(), changes) {
			return nil
		}
	}
	for _, c := range e.Contributions {
		if err := d.fold(l, e.Segment, c.Value); err != nil {
			return err
		}
	}
	return nil
}

var errNoState = errors.New("a contribution, and no State to fold it into")

// fold adds a contribution to the state. From here on the image has no state: if the draft fails,
// the state is loaded again from what is stored.
func (d *draft) fold(l *Ledger, segment uint32, value any) error {
	if l.options.State == nil {
		return errNoState
	}
	if !d.folded {
		if !d.image.loaded {
			if err := d.image.loadState(l.options.State); err != nil {
				return fmt.Errorf("segment %d: %w", segment, err)
			}
			d.state = d.image.state
		}
		d.image.state, d.image.loaded, d.folded = nil, false, true
	}
	l.options.State.Fold(d.state, value)
	return nil
}

// books adds the records of the runs that changed.
func (d *draft) books(changes block) {
	for _, id := range sortedRuns(d.runs) {
		b, before := d.runs[id], d.image.runs[id]
		if len(b.dirty) == 0 && before != nil && before.floor == b.floor ||
			len(b.chunks) == 0 && b.floor == 0 {
			delete(d.runs, id)
			continue
		}
		if before == nil || before.floor != b.floor {
			changes[runKey(id)] = binary.AppendUvarint(nil, b.floor)
		}
		for index := range b.dirty {
			c, key := b.chunks[index], chunkKey(id, index)
			if c == nil {
				if d.image.layout.get(key) != nil {
					changes[key] = nil
				}
				continue
			}
			changes[key] = c.pack()
		}
		b.own, b.dirty = nil, nil
	}
}

// prune takes out closed runs except for their tasks in quarantine, which become a rest; all of the
// runs that are over; and rests that these entries have emptied.
func (d *draft) prune(with *doneWith, changes block) {
	for _, id := range sortedRuns(d.runs) {
		if b := d.runs[id]; b.rest > 0 && b.quarantined == 0 {
			d.remove(id, changes)
		}
	}
	if with == nil {
		return
	}
	for _, id := range with.over {
		d.remove(id, changes)
	}
	rests := d.image.rests
	for _, id := range with.closed {
		b := d.image.runs[id]
		switch {
		case b == nil || b.rest > 0:
		case b.quarantined == 0:
			d.remove(id, changes)
		case rests < restsMost:
			rests++
			b = b.draft()
			b.rest, b.own, b.dirty, b.results = with.hour, nil, nil, ""
			d.runs[id], d.rested = b, true
		}
	}
}

func (d *draft) remove(id codec.RunID, changes block) {
	b := d.image.runs[id]
	delete(d.runs, id)
	if b == nil || slices.Contains(d.gone, id) {
		return
	}
	d.gone = append(d.gone, id)
	maps.DeleteFunc(changes, func(key string, _ []byte) bool {
		return len(key) >= runKeySize && key[0] == runKind && key[1:runKeySize] == string(id[:])
	})
	changes[runKey(id)] = nil
	for index := range b.chunks {
		changes[chunkKey(id, index)] = nil
	}
}

// countRuns makes sure that the counts fit their property.
func (d *draft) countRuns(segment uint32) error {
	n := d.image.live()
	for _, id := range d.gone {
		if d.image.runs[id].rest == 0 {
			n--
		}
	}
	for _, id := range sortedRuns(d.runs) {
		if d.image.runs[id] == nil {
			if n++; n > maxLiveRuns {
				return tooManyRuns(segment, id)
			}
		}
	}
	return nil
}

// account counts the bytes of runs and foreign messages.
func (d *draft) account(segment uint32, changes block) error {
	grows := false
	for key, value := range changes {
		old := d.image.layout.get(key)
		more := len(value) - len(old)
		if value != nil && old == nil {
			more += blockRecordMost
		} else if value == nil && old != nil {
			more -= blockRecordMost
		}
		d.booked += more
		grows = grows || more > 0
	}
	if grows && d.booked > bookedMost {
		for _, id := range sortedRuns(d.runs) {
			return tooScattered(segment, id)
		}
	}
	return nil
}

// store adds what changed of the state.
func (d *draft) store(segment uint32, s State, changes block) error {
	raw, err := s.Store(d.state)
	if err != nil {
		return fmt.Errorf("segment %d: %w, which cannot be stored: %w", segment, ErrStateFull, err)
	}
	if raw == nil {
		raw = []byte{}
	}
	parts, ok := d.image.stateChanges(raw)
	if !ok {
		return fmt.Errorf("segment %d: %w: the reducer's state has %d bytes, "+
			"more than %d even when compressed, or than %d; keep less of each key, or use more segments",
			segment, ErrStateFull, len(raw), maxState, maxRawState)
	}
	maps.Copy(changes, parts)
	d.raw = raw
	return nil
}

// measure says what the draft adds to a transaction.
func (d *draft) measure() {
	d.rows = 1 + len(d.added) + len(d.removed)
	directory := (1 + len(d.head.layout.pages)) * (chunkKeySize + 11)
	counts := (len(d.image.runs) + len(d.runs)) * (16 + 20) // or of rests
	for _, runs := range []map[codec.RunID]*runBook{d.image.runs, d.runs} {
		for _, b := range runs {
			if b.results != "" {
				counts += resultsRoom
			}
		}
	}
	d.size = d.rows*rowOverhead + travels(d.head.layout.hot.size()) + travels(directory) +
		travels(counts)
	for _, p := range d.added {
		d.size += travels(p.block.size())
	}
}

// write adds the draft to a transaction.
func (d *draft) write(t *transaction, partition string, segment uint32) {
	d.head.nonce = t.nonce
	runs := d.image.runs
	if len(d.runs)+len(d.gone) > 0 {
		runs = make(map[codec.RunID]*runBook, len(d.image.runs)+len(d.runs))
		maps.Copy(runs, d.image.runs)
		d.apply(runs)
	}
	head := storage.Write{Mode: storage.Replace, Entity: storage.Entity{
		Partition: partition, Row: headKey(segment), ETag: d.image.head.etag,
		Properties: headProperties(&d.head, runs, d.booked),
	}}
	if head.Entity.ETag == "" {
		head.Mode = storage.Insert
	}
	t.addHead(segment, head)
	for _, p := range d.added {
		// No commit has used the number, but if a row was there it would mean nothing.
		t.add(segment, storage.Write{Mode: storage.Upsert, Entity: pageEntity(partition, segment, p)})
	}
	for _, p := range d.removed {
		t.add(segment, storage.Write{
			Mode: storage.Remove, Entity: storage.Entity{Partition: partition, Row: pageKey(segment, p.id)},
		})
	}
}

func (d *draft) apply(runs map[codec.RunID]*runBook) {
	maps.Copy(runs, d.runs)
	for _, id := range d.gone {
		delete(runs, id)
	}
}

// landed makes the draft what is stored. The caller holds the segment's mu.
func (d *draft) landed(etag storage.ETag) {
	m := d.image
	d.head.etag = etag
	m.head = d.head
	m.layout = &m.head.layout
	d.apply(m.runs)
	if d.foreign != nil {
		d.foreign.landed()
	}
	if len(d.gone) > 0 || d.rested {
		m.rests = 0
		for _, b := range m.runs {
			if b.rest > 0 {
				m.rests++
			}
		}
	}
	m.booked = d.booked
	if d.folded {
		m.raw, m.state, m.loaded = d.raw, d.state, true
		m.used = m.stateUse()
	}
}
