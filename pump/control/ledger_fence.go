package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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

// Fence makes this process the writer of the segments of holds and reads what is
// recorded of them (P3.2). It must succeed before the first get for a segment: from then on
// nothing that an earlier owner still has in hand can be recorded. Segments of one
// partition are fenced in one transaction, partitions one after the other, in order. It
// gives those that are fenced; the error is about the others: [ErrFenced] if the head has a
// foreign epoch that is not below the hold's, or a later one of this process,
// [ErrCorrupt] with the row's name, or what the table said when ctx ended. A damaged segment
// does not keep the others from being fenced. Fencing again under the same epoch costs nothing.
func (l *Ledger) Fence(ctx context.Context, holds []Hold) (fenced []uint32, err error) {
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Segment, b.Segment) })
	var errs []error
	for len(holds) > 0 {
		partition := l.Partition(holds[0].Segment)
		n := 1
		for n < len(holds) && l.Partition(holds[n].Segment) == partition {
			n++
		}
		f := fencing{l: l, partition: partition}
		f.run(ctx, holds[:n])
		holds = holds[n:]
		fenced, errs = append(fenced, f.fenced...), append(errs, f.errs...)
	}
	return fenced, errors.Join(errs...)
}

// fencing is the fencing of segments of one partition.
type fencing struct {
	l         *Ledger
	partition int
	todo      []*claimant
	fenced    []uint32
	errs      []error
}

// claimant is a segment to be fenced.
type claimant struct {
	s     *ledgerSegment
	epoch uint64
	image *image // as it was read, with the head as it will be
	base  storage.ETag
}

func (f *fencing) fail(c *claimant, err error) {
	f.errs = append(f.errs, fmt.Errorf("fencing segment %d: %w", c.s.number, err))
}

func (f *fencing) run(ctx context.Context, holds []Hold) {
	for i, h := range holds {
		s, err := f.l.segment(h.Segment)
		switch {
		case err != nil || i > 0 && holds[i-1].Segment == h.Segment:
			f.errs = append(f.errs, fmt.Errorf("fencing segment %d: it is named twice, or there is none", h.Segment))
		case h.Epoch == 0 || h.Epoch > maxEpoch:
			f.errs = append(f.errs, fmt.Errorf("fencing segment %d: epoch %d", h.Segment, h.Epoch))
		case f.l.Fenced(h.Segment, h.Epoch):
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
		for attempt := 1; len(f.todo) > 0 && err == nil; attempt++ {
			if attempt > 1 {
				f.l.draw.pause(ctx, ledgerPartition(f.l.workload, f.partition), attempt, requestTimeout/5, nil)
			}
			err = f.round(ctx)
		}
	}
	if n := len(f.todo); n > 0 { // one reason for all of them
		f.errs = append(f.errs, fmt.Errorf("fencing %d segments from %d to %d: %w", n, f.todo[0].s.number, f.todo[n-1].s.number, err))
	}
	slices.Sort(f.fenced)
}

// round reads the heads of what is to be fenced and writes them. What is not
// done, for others were quicker, stays to be done.
func (f *fencing) round(ctx context.Context) error {
	segments := make([]uint32, len(f.todo))
	for i, c := range f.todo {
		segments[i] = c.s.number
	}
	read, err := f.l.readHeads(ctx, f.partition, segments)
	if err != nil {
		return err
	}
	var todo, write []*claimant
	for i, c := range f.todo {
		ready, again, err := f.judge(ctx, c, read[c.s.number])
		switch {
		case err != nil && ctx.Err() != nil:
			f.todo = append(append(todo, write...), f.todo[i:]...)
			return err
		case err != nil:
			f.fail(c, err)
		case again:
			todo = append(todo, c)
		case ready:
			f.take(c, c.base)
		default:
			write = append(write, c)
		}
	}
	f.todo = append(todo, write...)
	if len(write) == 0 {
		return nil
	}
	t := f.l.begin(f.partition, fenceProperty)
	for _, c := range write {
		c.image.head.fence = t.nonce
		t.addHead(c.s.number, f.write(c, t.nonce))
	}
	o := outcome{landed: true}
	if planted != noFence {
		if o, err = f.l.send(ctx, t); err != nil {
			return err
		}
	}
	if !o.landed {
		return nil
	}
	f.todo = todo
	for _, c := range write {
		etag := o.etag(t, c.s.number)
		if planted == noFence {
			etag = c.base
		} else if etag == "" { // it was written again since
			f.todo = append(f.todo, c)
			continue
		}
		f.take(c, etag)
	}
	return nil
}

// write is the fence: nothing of the head but whose it is.
func (f *fencing) write(c *claimant, nonce string) storage.Write {
	w := storage.Write{Mode: storage.Merge, Entity: storage.Entity{
		Partition: ledgerPartition(f.l.workload, f.partition), Row: headKey(c.s.number), ETag: c.base,
		Properties: map[string]any{
			formatProperty: int64(format), epochProperty: int64(c.epoch), ownerProperty: f.l.token, fenceProperty: nonce,
		},
	}}
	if c.base == "" {
		w.Mode = storage.Insert
	}
	return w
}

// judge reads what belongs to a head and says whether it is fenced already
// (ready), is to be read again, or to be written.
func (f *fencing) judge(ctx context.Context, c *claimant, r headRead) (ready, again bool, err error) {
	if r.err != nil {
		return false, false, r.err
	}
	h := r.head
	mine := h.etag != "" && h.owner == f.l.token
	if !mine {
		c.s.lost() // what this process had in hand of it was under a fence that is broken
	}
	if h.epoch > c.epoch || h.epoch == c.epoch && !mine && h.etag != "" {
		return false, false, fencedOff(c.s.number, fmt.Sprintf("epoch %d is not above epoch %d of %s", c.epoch, h.epoch, h.owner))
	}
	c.base = h.etag
	if c.image, err = f.l.load(ctx, c.s.number, h); err != nil {
		if !errors.Is(err, ErrCorrupt) || mine {
			return false, false, err
		}
		// The owner before may have replaced the pages meanwhile.
		now, readErr := f.l.readHeads(ctx, f.partition, []uint32{c.s.number})
		if readErr != nil {
			return false, false, readErr
		}
		if head := now[c.s.number].head; head != nil && head.etag != h.etag {
			return false, true, nil
		}
		return false, false, err
	}
	if mine && h.epoch == c.epoch {
		return true, false, nil
	}
	c.image.head.epoch, c.image.head.owner = c.epoch, f.l.token
	c.s.mu.Lock()
	if c.s.since == 0 {
		c.s.since = c.epoch // from here on it may land, at any time
	}
	c.s.mu.Unlock()
	return false, false, nil
}

// take makes the segment fenced: its head is at etag.
func (f *fencing) take(c *claimant, etag storage.ETag) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.image.head.etag = etag
	if c.s.since == 0 {
		c.s.since = c.epoch
	}
	c.s.epoch, c.s.fenced, c.s.image = c.epoch, true, c.image
	f.fenced = append(f.fenced, c.s.number)
}
