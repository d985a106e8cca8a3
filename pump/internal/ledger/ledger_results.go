package ledger

import (
	"context"
	"errors"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// Results names where the last results of a run in a segment are, as the next ones must know it
// (Entry.Before); empty: it has none. It makes a request only if the segment is not fenced any
// more.
func (l *Ledger) Results(
	ctx context.Context, segment uint32, run codec.RunID,
) (last string, err error) {
	known := false
	l.use(segment, func(s *ledgerSegment) {
		if known = s.image != nil; known {
			if b := s.image.runs[run]; b != nil {
				last = b.results
			}
		}
	})
	if known {
		return last, nil
	}
	read, err := l.readHeads(ctx, l.Partition(segment), []uint32{segment})
	if err == nil {
		err = read[segment].err
	}
	if err != nil {
		return "", err
	}
	_ = readResults(read[segment].head.results, func(id codec.RunID, results string) {
		if id == run {
			last = results
		}
	})
	return last, nil
}

// ReadResults reads where the last results of some runs are, by run and segment. A segment that
// cannot be read is part of the error, beside what the others say.
func ReadResults(
	ctx context.Context, t storage.Table, workload string, segments int, runs ...codec.RunID,
) (last map[codec.RunID]map[uint32]string, err error) {
	last = map[codec.RunID]map[uint32]string{}
	for _, run := range runs {
		last[run] = map[uint32]string{}
	}
	damage, err := readCountsOf(ctx, t, workload, segments, func(segment int, c *headCounts) {
		_ = readResults(c.results, func(id codec.RunID, results string) {
			if of := last[id]; of != nil {
				of[uint32(segment)] = results
			}
		})
	})
	return last, errors.Join(append(damage, err)...)
}
