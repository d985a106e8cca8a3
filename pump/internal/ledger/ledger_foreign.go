package ledger

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
)

// The names of done tasks without a run: of foreign messages, and of tasks that were redriven after
// their run had ended (P1.4; "Names" in doc.go). They are kept in buckets, as hashes.
const (
	foreignHash = 16
	foreignPer  = 128 // in a bucket
	// maxForeign is how many names a segment keeps at most: further tasks without a run wait. Beyond a
	// quarter of that the oldest go, when they have been kept for long enough ([Ledger.AgeForeign]).
	maxForeign = 16384
	// foreignRoom is not less than what a name takes, with its part of a bucket.
	foreignRoom = foreignHash + blockRecordMost/foreignPer + 1
)

// foreignBook is which names are recorded.
type foreignBook struct {
	first, next uint32 // the buckets there are: first <= bucket < next
	buckets     map[uint32][]byte
	since       map[uint32]time.Time // when this process recorded the newest of a bucket, or read it
	known       map[string]uint32    // the bucket of each
	most        int                  // maxForeign, or fewer in a simulation
}

// roomy is how many names are kept at any age.
func (f *foreignBook) roomy() int { return f.most / 4 }

func newForeignBook() *foreignBook {
	return &foreignBook{
		buckets: map[uint32][]byte{}, since: map[uint32]time.Time{}, known: map[string]uint32{},
		most: maxForeign,
	}
}

// foreignName is the identity as it is kept. If two messages had one hash, a task would never be
// done, so the hash is one without known collisions.
func foreignName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return string(sum[:foreignHash])
}

func (f *foreignBook) has(name string) bool {
	_, is := f.known[name]
	return is
}

// crowded reports whether names that were recorded before a moment may go because there are many.
func (f *foreignBook) crowded(before time.Time) bool {
	if len(f.known) <= f.roomy() {
		return false
	}
	for _, at := range f.since {
		if at.Before(before) {
			return true
		}
	}
	return false
}

// foreignDraft is names to be added to a book, and taken out of it.
type foreignDraft struct {
	book        *foreignBook
	first, next uint32
	count       int
	buckets     map[uint32][]byte // that changed; nil: gone
	since       map[uint32]time.Time
	added       map[string]bool
	gone        map[string]bool
}

func (f *foreignBook) draft() *foreignDraft {
	return &foreignDraft{
		book: f, first: f.first, next: f.next, count: len(f.known),
		buckets: map[uint32][]byte{}, since: map[uint32]time.Time{}, added: map[string]bool{},
		gone: map[string]bool{},
	}
}

func (d *foreignDraft) bucket(number uint32) []byte {
	if names, changed := d.buckets[number]; changed {
		return names
	}
	return d.book.buckets[number]
}

func (d *foreignDraft) sinceOf(number uint32) time.Time {
	if at, changed := d.since[number]; changed {
		return at
	}
	return d.book.since[number]
}

func (d *foreignDraft) set(number uint32, names []byte, since time.Time, changes block) {
	d.buckets[number], d.since[number] = names, since
	changes[foreignKey(number)] = names
}

// forget takes out the names of deleted messages and, if there are too many names, those in the
// oldest buckets that were recorded before a moment.
func (d *foreignDraft) forget(names []string, before time.Time, changes block) {
	var touched []uint32
	for _, name := range names {
		if number, is := d.book.known[name]; is && !d.gone[name] {
			d.gone[name] = true
			d.count--
			touched = append(touched, number)
		}
	}
	slices.Sort(touched)
	for _, number := range slices.Compact(touched) {
		var rest []byte
		for name := range slices.Chunk(d.book.buckets[number], foreignHash) {
			if !d.gone[string(name)] {
				rest = append(rest, name...)
			}
		}
		d.set(number, rest, d.book.since[number], changes)
	}
	for d.first < d.next && d.count > d.book.roomy() {
		oldest := d.oldest()
		if !d.sinceOf(oldest).Before(before) {
			break
		}
		for name := range slices.Chunk(d.bucket(oldest), foreignHash) {
			d.gone[string(name)] = true
			d.count--
		}
		d.vacate(oldest, changes)
	}
	for _, number := range slices.Compact(touched) {
		d.join(number, changes)
	}
}

// oldest is the bucket whose newest name is the oldest.
func (d *foreignDraft) oldest() uint32 {
	oldest := d.first
	for number := d.first + 1; number < d.next; number++ {
		if d.sinceOf(number).Before(d.sinceOf(oldest)) {
			oldest = number
		}
	}
	return oldest
}

// join moves the names of a bucket with few left to the bucket before it, so that no bucket is
// empty and any two have more names than one can hold. They count as young as the youngest of both.
func (d *foreignDraft) join(number uint32, changes block) {
	names := d.bucket(number)
	switch {
	case number < d.first:
	case len(names) == 0:
		d.vacate(number, changes)
	case number > d.first && len(d.bucket(number-1))+len(names) <= foreignPer*foreignHash:
		since := d.sinceOf(number)
		if at := d.sinceOf(number - 1); at.After(since) {
			since = at
		}
		d.set(number-1, append(slices.Clip(d.bucket(number-1)), names...), since, changes)
		d.vacate(number, changes)
	}
}

// vacate gives the place of a bucket to the first bucket: readers take a gap for damage.
func (d *foreignDraft) vacate(number uint32, changes block) {
	if number != d.first {
		d.set(number, d.bucket(d.first), d.sinceOf(d.first), changes)
	}
	d.buckets[d.first], changes[foreignKey(d.first)] = nil, nil
	d.first++
}

// add records a name and notes what changed. It is false if it was recorded before.
func (d *foreignDraft) add(name string, now time.Time, changes block) bool {
	if d.added[name] || d.book.has(name) && !d.gone[name] {
		return false
	}
	d.added[name] = true
	d.count++
	if d.next == d.first || len(d.bucket(d.next-1)) >= foreignPer*foreignHash {
		d.next++
	}
	d.set(d.next-1, append(slices.Clip(d.bucket(d.next-1)), name...), now, changes)
	return true
}

// landed makes the draft the book.
func (d *foreignDraft) landed() {
	f := d.book
	for name := range d.gone {
		delete(f.known, name)
	}
	for number, names := range d.buckets {
		if names == nil {
			delete(f.buckets, number)
			delete(f.since, number)
			continue
		}
		f.buckets[number], f.since[number] = names, d.since[number]
		for name := range slices.Chunk(names, foreignHash) {
			f.known[string(name)] = number
		}
	}
	f.first, f.next = d.first, d.next
}

// read takes over a stored bucket; they come in order.
func (f *foreignBook) read(bucket uint32, stored []byte, now time.Time) error {
	if len(stored) == 0 || len(stored)%foreignHash != 0 || len(stored) > foreignPer*foreignHash ||
		f.next > f.first && bucket != f.next || bucket == 1<<32-1 {
		return fmt.Errorf("foreign messages %d cannot be read", bucket)
	}
	if f.next == f.first {
		f.first = bucket
	}
	f.next = bucket + 1
	f.buckets[bucket], f.since[bucket] = stored, now
	for name := range slices.Chunk(stored, foreignHash) {
		f.known[string(name)] = bucket
	}
	return nil
}

// BeginForeign is Begin for a task without a run, by its name (P1.4). A task neither recorded nor
// in hand is now in hand. More says that others of its message already are. It fails with
// [ErrTooManyForeign] while the segment keeps the most names.
func (l *Ledger) BeginForeign(
	segment uint32, epoch uint64, id string, more bool,
) (recorded, inHand bool, err error) {
	s, err := l.segment(segment)
	if err != nil {
		return false, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fencedAs(epoch) {
		return false, false, fencedOff(segment, fmt.Sprintf("it is not fenced under epoch %d", epoch))
	}
	name := foreignName(id)
	switch {
	case !l.options.Record:
		return false, false, nil
	case s.image.foreign.has(name):
		return true, false, nil
	case s.inFlight.foreign[name]:
		return false, true, nil
	case !more && s.foreignUse() >= s.image.foreign.most:
		return false, false, fmt.Errorf("segment %d: %w: %d are all that it keeps, "+
			"and further ones wait until deletes of what is done are acknowledged",
			segment, ErrTooManyForeign, s.image.foreign.most)
	case !more && !s.fits(foreignRoom, func() int { return foreignRoom }):
		return false, false, fmt.Errorf("segment %d: %w: what is done of runs leaves no room for "+
			"further ones; let runs end, or use more segments", segment, ErrTooManyForeign)
	}
	if s.inFlight.foreign == nil {
		s.inFlight.foreign = map[string]bool{}
	}
	s.inFlight.foreign[name] = true
	return false, false, nil
}

// foreignUse is how many names the segment will keep when what is in hand is done.
func (s *ledgerSegment) foreignUse() int {
	return len(s.image.foreign.known) - len(s.deleted) + len(s.inFlight.foreign)
}

// Standing says what the segment knows of a task under its number in a run. A task that was
// redriven after its run had ended has a name, but may be done, or in hand, from before.
func (l *Ledger) Standing(
	segment uint32, run codec.RunID, generation uint32, n uint64,
) (recorded, inHand bool) {
	l.use(segment, func(s *ledgerSegment) {
		if l.options.Record && s.image != nil {
			recorded, inHand = s.image.runs[run].settled(n, generation), s.inFlight.runs[run].contains(n)
		}
	})
	return recorded, inHand
}

// StandingForeign says what the segment knows of a task by its name: see Standing. A task that was
// done under its name may come again under its number, when its run's row is back.
func (l *Ledger) StandingForeign(segment uint32, id string) (recorded, inHand bool) {
	l.use(segment, func(s *ledgerSegment) {
		if name := foreignName(id); l.options.Record && s.image != nil {
			recorded, inHand = s.image.foreign.has(name), s.inFlight.foreign[name]
		}
	})
	return recorded, inHand
}

// EndForeign is End for a task without a run.
func (l *Ledger) EndForeign(segment uint32, epoch uint64, id string) {
	l.use(segment, func(s *ledgerSegment) { s.endForeign(epoch, foreignName(id)) })
}

func (s *ledgerSegment) endForeign(epoch uint64, name string) {
	if s.mine(epoch) {
		delete(s.inFlight.foreign, name)
	}
}

// DeletedForeign says that no copy of a task can come any more: its message was delivered once
// only, and its delete is acknowledged. Its name goes with the next commit of the segment.
func (l *Ledger) DeletedForeign(segment uint32, id string) {
	l.use(segment, func(s *ledgerSegment) {
		if name := foreignName(id); l.options.Record && s.image != nil && s.image.foreign.has(name) {
			if s.deleted == nil {
				s.deleted = map[string]bool{}
			}
			s.deleted[name] = true
		}
	})
}

// AgeForeign says that all copies of tasks recorded before that time would have been met by now. If
// a segment has many names, those recorded before go with its next commit, the oldest first. The
// zero time: no name goes.
func (l *Ledger) AgeForeign(before time.Time) {
	l.aged.Store(&before)
}

// agedBefore is what AgeForeign said last.
func (l *Ledger) agedBefore() time.Time {
	if at := l.aged.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// SweepForeign forgets names that may go, in segments with so many names that warnings are due,
// because no commit may come that takes them along.
func (l *Ledger) SweepForeign(ctx context.Context) error {
	before := l.agedBefore()
	return l.commitWith(ctx, &doneWith{}, "forgetting foreign messages", func(s *ledgerSegment) bool {
		f := s.image.foreign
		return len(f.known) >= f.most/2 && (len(s.deleted) > 0 || f.crowded(before))
	})
}

// forgetForeign takes names out that may go.
func (d *draft) forgetForeign(deleted []string, before time.Time, changes block) {
	if len(deleted) == 0 && !d.image.foreign.crowded(before) {
		return
	}
	d.foreign = d.image.foreign.draft()
	d.foreign.forget(deleted, before, changes)
}
