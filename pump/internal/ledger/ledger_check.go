package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// Check compares the heads of segments that are fenced under these holds with what this process
// wrote last: one query for each partition, of three small columns, partitions one after the other.
// Without Check an owner with nothing to record would not learn that its rows came back older (a
// fail-over, a restored table), and would take for recorded what is not. Such segments are logged
// loudly and cease to be [Ledger.Fenced]. [Ledger.Fence] takes them under a later epoch only; tasks
// in hand stay so while the rows are this process's. Segments with another writer by now, or
// with damaged heads, are left as they are. The error is what the table said when ctx ended.
func (l *Ledger) Check(ctx context.Context, holds []cluster.Hold) error {
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b cluster.Hold) int {
		return cmp.Compare(a.Segment, b.Segment)
	})
	var errs []error
	for len(holds) > 0 {
		n := l.ofOnePartition(holds)
		errs = append(errs, l.checkHeads(ctx, holds[:n]))
		holds = holds[n:]
	}
	return errors.Join(errs...)
}

// checkHeads checks segments of one partition. Their heads are noted before they are read, and
// those that this process has written meanwhile need no check.
func (l *Ledger) checkHeads(ctx context.Context, holds []cluster.Hold) error {
	noted := make([]storage.ETag, len(holds))
	for i, h := range holds {
		s, err := l.segment(h.Segment)
		if err != nil {
			return err
		}
		s.mu.Lock()
		noted[i] = s.writtenLast(h.Epoch)
		s.mu.Unlock()
	}
	partition := Partition(l.workload, l.Partition(holds[0].Segment))
	rows := map[string]storage.Entity{}
	err := l.rows(ctx, storage.Query{
		Partition: partition, From: headKey(holds[0].Segment),
		To:     headKey(holds[len(holds)-1].Segment) + "~",
		Select: []string{row.FormatProperty, epochProperty, ownerProperty, commitsProperty},
	}, func(e storage.Entity) { rows[e.Row] = e })
	if err != nil {
		return err
	}
	var old []uint32
	for i, h := range holds {
		head, err := shortHeadOf(l.table, rows[headKey(h.Segment)])
		if err != nil || noted[i] == "" || noted[i] == head.etag {
			continue
		}
		s := &l.segments[h.Segment]
		s.mu.Lock()
		if noted[i] == s.writtenLast(h.Epoch) && l.seesLocked(s, head) {
			old = append(old, h.Segment)
		}
		s.mu.Unlock()
	}
	l.tellOld(old)
	return nil
}

// writtenLast is the ETag of the head as this process wrote it last under a fenced epoch; "" if the
// epoch is not fenced. The caller holds mu.
func (s *ledgerSegment) writtenLast(epoch uint64) storage.ETag {
	switch {
	case !s.written || s.epoch != epoch || epoch <= s.above:
		return ""
	case s.image != nil:
		return s.image.head.etag
	}
	return s.head.etag
}

// shortHeadOf is what a head says of its owner; without a row there is no owner.
func shortHeadOf(table storage.Table, e storage.Entity) (*ledgerHead, error) {
	if e.Row == "" {
		return &ledgerHead{}, nil
	}
	return decodeHead(table, e, readShortHead)
}
