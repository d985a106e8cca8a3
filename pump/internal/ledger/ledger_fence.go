package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// lock takes a partition's lock.
func (l *Ledger) lock(ctx context.Context, partition int) error {
	select {
	case l.partitions[partition] <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.partitions[partition] <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *Ledger) unlock(partition int) { <-l.partitions[partition] }

// Unfenced is a segment that could not be fenced, or whose records could not be loaded.
type Unfenced struct {
	Segment uint32
	// Head is the epoch of the head that stands in the way of an [ErrFenced]: the hold's epoch must be
	// above it. 0 with every other error.
	Head uint64
	Err  error
}

// UnfencedError is the error of [Ledger.Fence] and [Ledger.Load] with the segments that did not
// become this process's, in ascending order. errors.Is looks at the reasons.
type UnfencedError struct{ Segments []Unfenced }

func (e *UnfencedError) Error() string {
	var reasons []string
	for i := 0; i < len(e.Segments); {
		n := 1 // segments in a row with one reason are one line
		for i+n < len(e.Segments) && e.Segments[i+n].Err == e.Segments[i].Err {
			n++
		}
		u := e.Segments[i]
		if n == 1 {
			reasons = append(reasons, fmt.Sprintf("fencing segment %d: %v", u.Segment, u.Err))
		} else {
			reasons = append(reasons,
				fmt.Sprintf("fencing %d segments from %d to %d: %v", n, u.Segment,
					e.Segments[i+n-1].Segment, u.Err))
		}
		i += n
	}
	return strings.Join(reasons, "\n")
}

// Unwrap gives the reasons.
func (e *UnfencedError) Unwrap() []error {
	errs := make([]error, len(e.Segments))
	for i, u := range e.Segments {
		errs[i] = u.Err
	}
	return errs
}

// Fence makes this process the writer of the segments of holds (P3.2): it writes their epochs into
// their heads, those of one partition with one query and one small transaction, partitions one
// after the other. It must succeed before the first get for a segment: from then on an earlier
// owner can no longer record what it has in hand. Fence gives the segments whose heads are this
// process's now. Segments without pages are [Ledger.Fenced]; for the others [Ledger.Load] must
// first read what is recorded. The error is an [*UnfencedError] about the others: [ErrFenced] if
// the head has a foreign epoch that is not below the hold's, or a later one of this process, or had
// one before it came back older, [row.ErrCorrupt] with the head's name, or what the table said when
// ctx ended. Such segments do not keep others from being fenced, and segments fenced when ctx ended
// stay so. Fencing again under the same epoch costs nothing.
func (l *Ledger) Fence(ctx context.Context, holds []cluster.Hold) (fenced []uint32, err error) {
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b cluster.Hold) int {
		return cmp.Compare(a.Segment, b.Segment)
	})
	var failed []Unfenced
	for len(holds) > 0 {
		n := l.ofOnePartition(holds)
		f := fencing{l: l, partition: l.Partition(holds[0].Segment)}
		f.run(ctx, holds[:n])
		holds = holds[n:]
		fenced, failed = append(fenced, f.fenced...), append(failed, f.failed...)
	}
	return fenced, unfenced(failed)
}

// ofOnePartition is how many of the first holds are of segments of one partition.
func (l *Ledger) ofOnePartition(holds []cluster.Hold) (n int) {
	for n < len(holds) && l.Partition(holds[n].Segment) == l.Partition(holds[0].Segment) {
		n++
	}
	return n
}

func unfenced(failed []Unfenced) error {
	if len(failed) == 0 {
		return nil
	}
	slices.SortStableFunc(failed, func(a, b Unfenced) int { return cmp.Compare(a.Segment, b.Segment) })
	return &UnfencedError{failed}
}

// errBehind is why a segment is not fenced under an epoch that its rows had in another history.
var errBehind = fmt.Errorf("%w, or to this one of some time ago: "+
	"its rows are behind, and it takes a later epoch than any that it had", ErrFenced)

// fencing is the fencing of segments of one partition.
type fencing struct {
	l         *Ledger
	partition int
	todo      []*claimant
	fenced    []uint32
	failed    []Unfenced
	old       []uint32 // whose rows came back older
}

// claimant is a segment to be fenced.
type claimant struct {
	s     *ledgerSegment
	epoch uint64
	base  storage.ETag
	head  *ledgerHead // as it will be
	image *image      // of a head without pages
}

func (f *fencing) fail(segment uint32, head uint64, err error) {
	f.failed = append(f.failed, Unfenced{segment, head, err})
}

func (f *fencing) run(ctx context.Context, holds []cluster.Hold) {
	for i, h := range holds {
		s, err := f.l.segment(h.Segment)
		switch {
		case err != nil || i > 0 && holds[i-1].Segment == h.Segment:
			f.fail(h.Segment, 0, errors.New("it is named twice, or there is none"))
		case h.Epoch == 0 || h.Epoch > row.MaxEpoch:
			f.fail(h.Segment, 0, fmt.Errorf("epoch %d", h.Epoch))
		case f.l.Fenced(h.Segment, h.Epoch) || f.l.Unloaded(h.Segment, h.Epoch):
			f.fenced = append(f.fenced, h.Segment)
		default:
			f.todo = append(f.todo, &claimant{s: s, epoch: h.Epoch})
		}
	}
	if len(f.todo) == 0 {
		return
	}
	err := f.l.lock(ctx, f.partition)
	if err == nil {
		defer f.l.unlock(f.partition)
		defer func() { f.l.tellOld(f.old) }()
		for attempt := 1; len(f.todo) > 0 && err == nil; attempt++ {
			if attempt > 1 {
				f.l.draw.Pause(ctx, Partition(f.l.workload, f.partition), attempt, row.RequestTimeout/5, nil)
			}
			err = f.round(ctx)
		}
	}
	for _, c := range f.todo { // one reason for all of them
		f.fail(c.s.number, 0, err)
	}
	slices.Sort(f.fenced)
}

// round reads the heads of the segments to be fenced and writes them. A head stays to be fenced if
// others wrote it first.
func (f *fencing) round(ctx context.Context) error {
	segments := make([]uint32, len(f.todo))
	for i, c := range f.todo {
		segments[i] = c.s.number
	}
	read, err := f.l.readHeads(ctx, f.partition, segments)
	if err != nil {
		return err
	}
	var write []*claimant
	for _, c := range f.todo {
		ready, head, err := f.judge(c, read[c.s.number])
		switch {
		case err != nil:
			f.fail(c.s.number, head, err)
		case ready:
			f.take(c, c.base)
		default:
			write = append(write, c)
		}
	}
	f.todo = write
	if len(write) == 0 {
		return nil
	}
	t := f.l.begin(f.partition, fenceProperty)
	for _, c := range write {
		c.head.fence = t.nonce
		t.addHead(c.s.number, f.write(c, t.nonce))
	}
	o, err := f.l.send(ctx, t)
	if err != nil {
		return err
	}
	if !o.landed {
		return nil
	}
	f.todo = nil
	for _, c := range write {
		etag := o.etag(t, c.s.number)
		if etag == "" { // it was written again since
			f.todo = append(f.todo, c)
			continue
		}
		f.take(c, etag)
	}
	return nil
}

// write is the fence: it writes only the owner into the head.
func (f *fencing) write(c *claimant, nonce string) storage.Write {
	w := storage.Write{Mode: storage.Merge, Entity: storage.Entity{
		Partition: Partition(f.l.workload, f.partition), Row: headKey(c.s.number), ETag: c.base,
		Properties: map[string]any{
			row.FormatProperty: int64(row.Format), epochProperty: int64(c.epoch), ownerProperty: f.l.token,
			fenceProperty: nonce,
		},
	}}
	if c.base == "" {
		w.Mode = storage.Insert
	}
	return w
}

// judge says of a head whether it is fenced already (ready) or is to be written. With an error it
// gives the epoch that is in the way, if any. Pages are not looked at: with any pages, earlier
// owners must not write any more.
func (f *fencing) judge(c *claimant, r headRead) (ready bool, above uint64, err error) {
	if r.err != nil {
		return false, 0, r.err
	}
	h := r.head
	mine := h.etag != "" && h.owner == f.l.token
	if f.l.sees(c.s, h) {
		f.old = append(f.old, c.s.number)
	}
	if !mine {
		c.s.lost() // what this process had in hand was under a broken fence
	}
	c.s.mu.Lock()
	above = c.s.above
	c.s.mu.Unlock()
	if c.epoch <= above {
		return false, above, errBehind
	}
	if h.epoch > c.epoch || h.epoch == c.epoch && !mine && h.etag != "" {
		return false, h.epoch, fencedOff(c.s.number,
			fmt.Sprintf("epoch %d is not above epoch %d of %s", c.epoch, h.epoch, h.owner))
	}
	c.base, c.head, c.image = h.etag, h, nil
	if len(h.layout.pages) == 0 {
		if c.image, err = f.l.imageOf(f.partition, c.s.number, h); err != nil {
			return false, 0, err
		}
		c.head = &c.image.head
	}
	if mine && h.epoch == c.epoch {
		return true, 0, nil
	}
	c.head.epoch, c.head.owner = c.epoch, f.l.token
	c.s.mu.Lock()
	c.s.since = cmp.Or(c.s.since, c.epoch) // from here on it may land, at any time
	c.s.mu.Unlock()
	return false, 0, nil
}

// take makes the segment this process's: its head is at etag. Without pages it is fenced.
func (f *fencing) take(c *claimant, etag storage.ETag) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.head.etag, c.s.top, c.s.commits = etag, c.epoch, c.head.commits
	c.s.since = cmp.Or(c.s.since, c.epoch)
	c.s.epoch, c.s.written, c.s.image, c.s.head = c.epoch, true, c.image, nil
	if c.image == nil {
		c.s.head = c.head
	}
	f.fenced = append(f.fenced, c.s.number)
}
