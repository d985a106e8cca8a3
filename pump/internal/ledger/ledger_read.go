package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// RunProgress is how many tasks of a run are recorded, for each segment.
type RunProgress struct {
	Done, Quarantined []uint64
}

// Sums is how many tasks are done and in quarantine in all segments, 0 of nil.
func (p *RunProgress) Sums() (done, quarantined uint64) {
	if p == nil {
		return 0, 0
	}
	for s := range p.Done {
		done += p.Done[s]
		quarantined += p.Quarantined[s]
	}
	return done, quarantined
}

// ReadProgress reads how far some runs of a workload are: a query for each 64 segments, of a small
// column. A run without records, or a pruned run, is not in it; a run that was closed with tasks in
// quarantine has only those in it. Segments whose heads are damaged, or whose partition does not
// answer, are counted as 0 and named in the error, which comes with the others' progress; without
// progress nothing could be read. The progress is a snapshot of each segment, not of all together,
// and the number of done tasks does not fall while a run is live. Each run takes 16 bytes a
// segment; for all live runs see [ReadSums].
func ReadProgress(
	ctx context.Context, t storage.Table, workload string, segments int, wanted ...codec.RunID,
) (map[codec.RunID]*RunProgress, error) {
	runs := map[codec.RunID]*RunProgress{}
	of := func(id codec.RunID) *RunProgress {
		p := runs[id]
		if p == nil && slices.Contains(wanted, id) {
			p = &RunProgress{Done: make([]uint64, segments), Quarantined: make([]uint64, segments)}
			runs[id] = p
		}
		return p
	}
	damage, err := readCountsOf(ctx, t, workload, segments, func(segment int, c *headCounts) {
		_ = readRunCounts(c.counts, func(id codec.RunID, done, quarantined uint64) {
			if p := of(id); p != nil {
				p.Done[segment], p.Quarantined[segment] = done, quarantined
			}
		})
		for _, r := range c.rests {
			if p := of(r.run); p != nil {
				p.Quarantined[segment] = r.quarantined
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return runs, errors.Join(damage...)
}

// Sums is what the ledger has of all live runs.
type Sums struct {
	Runs map[codec.RunID]workload.RunSum
	// Rests are how many tasks of closed runs are in quarantine.
	Rests map[codec.RunID]uint64
	// Results are the runs with results.
	Results map[codec.RunID]bool
	// Use is that of the segment nearest to a bound.
	Use Use
}

// ReadSums is ReadProgress for every live run. It adds up while it reads, so a run takes some fifty
// bytes, with any number of segments.
func ReadSums(
	ctx context.Context, t storage.Table, workloadName string, segments int,
) (*Sums, error) {
	sums := &Sums{Runs: map[codec.RunID]workload.RunSum{}, Rests: map[codec.RunID]uint64{}}
	sums.Results = map[codec.RunID]bool{}
	damage, err := readCountsOf(ctx, t, workloadName, segments, func(segment int, c *headCounts) {
		use := Use{Segment: uint32(segment), Pages: c.pages, Bytes: int(c.booked)}
		_ = readRunCounts(c.counts, func(id codec.RunID, done, quarantined uint64) {
			use.Runs++
			s := sums.Runs[id]
			s.Done, s.Quarantined = s.Done+done, s.Quarantined+quarantined
			s.Print += workload.PrintOfSegment(segment, done+quarantined)
			sums.Runs[id] = s
		})
		_ = readResults(c.results, func(id codec.RunID, _ string) { sums.Results[id] = true })
		for _, r := range c.rests {
			sums.Rests[r.run] += r.quarantined
		}
		if full := sums.Use.Fullest(); use.Fullest() > full ||
			use.Fullest() == full && full > 0 && use.Segment < sums.Use.Segment {
			sums.Use = use
		}
	})
	if err != nil {
		return nil, err
	}
	return sums, errors.Join(damage...)
}

// headCounts is what the small columns of a head say.
type headCounts struct {
	counts  []byte // they can be read
	rests   []restCount
	results []byte // they can be read
	pages   int
	booked  uint64
}

// Partitions are read side by side, at most readTogether at a time: the heads of 64 segments with
// all the runs that they may have are 9 MB. Each has partitionPatience to answer, and all together
// have readPatience: a partition that is dark, slow or throttled does not delay the others for
// longer.
const (
	readTogether      = 8
	partitionPatience = 2 * row.RequestTimeout
	readPatience      = 2 * row.Patience
)

// readCountsOf visits the small columns of all heads, in any order, one at a time; damage names
// those that cannot be read, and the partitions that did not answer. An error says that no
// partition answered.
func readCountsOf(
	ctx context.Context, t storage.Table, workload string, segments int,
	visit func(segment int, c *headCounts),
) (damage []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	parts := (segments + PartitionSegments - 1) / PartitionSegments
	unread, damaged := make([]error, parts), make([][]error, parts)
	visits := make(chan func()) // the caller adds up, so that a profile shows the caller
	var g errgroup.Group
	g.SetLimit(readTogether)
	go func() {
		defer close(visits)
		for i := range parts {
			g.Go(func() error {
				first, end := i*PartitionSegments, min((i+1)*PartitionSegments, segments)
				rows, err := countsRows(ctx, t, Partition(workload, i))
				if err != nil {
					unread[i] = fmt.Errorf("the ledger of segments %d to %d cannot be read: %w", first, end-1, err)
					return nil
				}
				visits <- func() { damaged[i] = visitCounts(t, rows, first, end, visit) }
				return nil
			})
		}
		_ = g.Wait()
	}()
	for v := range visits {
		v()
	}
	if parts > 0 && !slices.Contains(unread, nil) {
		return nil, fmt.Errorf("reading the progress of %s: %w", workload, unread[0])
	}
	return slices.Concat(append(damaged, slices.DeleteFunc(unread, func(err error) bool {
		return err == nil
	}))...), nil
}

// countsRows reads the small columns of all heads of a partition.
func countsRows(
	ctx context.Context, t storage.Table, partition string,
) (map[string]storage.Entity, error) {
	ctx, cancel := context.WithTimeout(ctx, partitionPatience)
	defer cancel()
	return headRows(ctx, t, partition, slices.Concat(row.PartNames(countsProperty, countsParts),
		row.PartNames(resultsProperty, resultsParts),
		[]string{row.FormatProperty, restsProperty, pagesProperty, bookedProperty})...)
}

func visitCounts(
	t storage.Table, rows map[string]storage.Entity, first, end int,
	visit func(segment int, c *headCounts),
) (damage []error) {
	for segment := first; segment < end; segment++ {
		e, is := rows[headKey(uint32(segment))]
		if !is {
			continue
		}
		f := &row.Fields{Props: e.Properties}
		c := row.ReadFormat(f, readHeadCounts)
		if f.Err != nil {
			damage = append(damage, row.Damaged(t, e.Partition, e.Row, f.Err))
			continue
		}
		visit(segment, &c)
	}
	return damage
}

func readHeadCounts(f *row.Fields) headCounts {
	c := headCounts{counts: f.Parts(countsProperty, countsParts), booked: f.Count(bookedProperty)}
	if err := readRunCounts(c.counts, func(codec.RunID, uint64, uint64) {}); err != nil {
		f.Fail(countsProperty, err.Error())
	}
	var err error
	if c.rests, err = readRests(f.Binary(restsProperty)); err != nil {
		f.Fail(restsProperty, err.Error())
	}
	c.results = f.Parts(resultsProperty, resultsParts)
	if err := readResults(c.results, func(codec.RunID, string) {}); err != nil {
		f.Fail(resultsProperty, err.Error())
	}
	_, pages, err := readDirectory(f.Binary(pagesProperty))
	if err != nil {
		f.Fail(pagesProperty, err.Error())
	}
	c.pages = len(pages)
	return c
}

// headRows reads all heads of a partition; only the named properties, or all.
func headRows(
	ctx context.Context, t storage.Table, partition string, properties ...string,
) (map[string]storage.Entity, error) {
	found, err := row.MustFind(ctx, t,
		storage.Query{Partition: partition, From: headPrefix, To: headPrefix + "~", Select: properties},
		-1)
	rows := make(map[string]storage.Entity, len(found))
	for _, e := range found {
		rows[e.Row] = e
	}
	return rows, err
}

// SegmentRecord is everything that is recorded of one segment, as it was at one moment.
type SegmentRecord struct {
	Segment uint32
	// Epoch is the epoch of the last fence, 0 without one. Owner is its process: an instance, # and a
	// random number.
	Epoch uint64
	Owner string

	image *image
}

// Done reports whether a task is recorded as done.
func (r *SegmentRecord) Done(run codec.RunID, n uint64) bool { return r.standing(run, n) == done }

// Settled reports whether a task is recorded, as done or as being in quarantine.
func (r *SegmentRecord) Settled(run codec.RunID, n uint64) bool {
	return r.standing(run, n) != unsettled
}

func (r *SegmentRecord) standing(run codec.RunID, n uint64) standing {
	b := r.image.runs[run]
	if b == nil {
		return unsettled
	}
	low := uint32(n & (chunkSize - 1))
	what, _ := b.run(n>>chunkBits, low, low+1, 0)
	return what
}

// Counts says how many tasks of a run are done, and how many in quarantine.
func (r *SegmentRecord) Counts(run codec.RunID) (done, quarantined uint64) {
	if b := r.image.runs[run]; b != nil {
		return b.done, b.quarantined
	}
	return 0, 0
}

// Rests gives, sorted, the closed runs: only their tasks in quarantine are kept.
func (r *SegmentRecord) Rests() (runs []codec.RunID) {
	for _, rest := range r.image.head.rests {
		runs = append(runs, rest.run)
	}
	return runs
}

// Runs gives the runs with records, sorted.
func (r *SegmentRecord) Runs() []codec.RunID { return sortedRuns(r.image.runs) }

// Unsettled yields, in ascending order, the spans from <= n < to of the tasks below
// sealed of a run that are neither done nor in quarantine.
func (r *SegmentRecord) Unsettled(run codec.RunID, sealed uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(from, to uint64) bool) {
		var open nspans
		b := r.image.runs[run]
		if b == nil {
			if sealed > 0 {
				yield(0, sealed)
			}
			return
		}
		b.walk(min(b.floor, sealed), sealed, 0, func(index uint64, low, end uint32, what standing) {
			if what == unsettled {
				open = open.add(absolute(index, low), absolute(index, end))
			}
		})
		for _, sp := range open {
			if !yield(sp.from, sp.to) {
				return
			}
		}
	}
}

// Quarantined yields the tasks of a run that stand in quarantine, in ascending order,
// each with the generation with which it was put there.
func (r *SegmentRecord) Quarantined(run codec.RunID) iter.Seq2[uint64, uint32] {
	return func(yield func(n uint64, generation uint32) bool) {
		b := r.image.runs[run]
		if b == nil {
			return
		}
		for _, index := range slices.Sorted(maps.Keys(b.chunks)) {
			c := b.chunks[index]
			for low := c.nextPoison(0, chunkSize); low < chunkSize; low = c.nextPoison(low+1, chunkSize) {
				generation, _ := c.quarantined(low)
				if !yield(absolute(index, low), generation) {
					return
				}
			}
		}
	}
}

// State is the reducer's state as its Store gave it, or nil.
func (r *SegmentRecord) State() []byte { return r.image.raw }

// readRecordTries is how often a segment is read again because its owner was
// replacing pages meanwhile.
const readRecordTries = 8

// ReadRecord reads what is recorded of each segment of a workload, in order; the record of a
// segment that was never fenced is empty. It needs no ownership and does not disturb any process. A
// damaged segment is an error that names the row ([row.ErrCorrupt]), and the next segment follows;
// any other error is the last.
func ReadRecord(
	ctx context.Context, t storage.Table, workload string, segments int,
) iter.Seq2[*SegmentRecord, error] {
	return func(yield func(*SegmentRecord, error) bool) {
		// As the owner reads it, without ever fencing.
		l := &Ledger{table: t, workload: workload, draw: row.DrawOf(t)}
		for first := 0; first < segments; first += PartitionSegments {
			numbers := make([]uint32, min(PartitionSegments, segments-first))
			for i := range numbers {
				numbers[i] = uint32(first + i)
			}
			read, err := l.readHeadsFor(ctx, numbers)
			for _, segment := range numbers {
				var r *SegmentRecord
				if err == nil {
					r, err = l.readRecord(ctx, segment, read[segment])
				}
				if !yield(r, err) || err != nil && !errors.Is(err, row.ErrCorrupt) {
					return
				}
				err = nil
			}
		}
	}
}

func (l *Ledger) readHeadsFor(ctx context.Context, segments []uint32) (map[uint32]headRead, error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	read, err := l.readHeads(ctx, l.Partition(segments[0]), segments)
	if row.NoTable(err) { // then nothing is recorded either
		read, err = map[uint32]headRead{}, nil
		for _, segment := range segments {
			read[segment] = headRead{head: &ledgerHead{}}
		}
	}
	return read, err
}

func (l *Ledger) readRecord(
	ctx context.Context, segment uint32, r headRead,
) (*SegmentRecord, error) {
	for try := 1; ; try++ {
		if r.err != nil {
			return nil, r.err
		}
		m, err := l.loadFor(ctx, segment, r.head)
		if err == nil {
			return &SegmentRecord{Segment: segment, Epoch: m.head.epoch, Owner: m.head.owner, image: m}, nil
		}
		if !errors.Is(err, row.ErrCorrupt) {
			return nil, err
		}
		// A page may be gone because there is another head by now.
		read, readErr := l.readHeadsFor(ctx, []uint32{segment})
		if readErr != nil {
			return nil, readErr
		}
		now := read[segment]
		if now.head != nil && now.head.etag == r.head.etag || try == readRecordTries {
			return nil, err
		}
		r = now
	}
}

func (l *Ledger) loadFor(ctx context.Context, segment uint32, h *ledgerHead) (*image, error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	return l.load(ctx, segment, h)
}
