package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// Spill marks say that messages of a segment may be in a queue that is not its home (P6.3,
// docs/protocols.md). The marks are in one row, two bits for each segment, that every member reads
// in each look at the cluster.

// spillChoices are the choices of shardmap.Map.Choices that can be marked; 0 is the home.
const spillChoices = 2

func spillRowOf(
	t storage.Table, workload string, segments int, timeout time.Duration,
) row.Row[[]uint8] {
	return row.Row[[]uint8]{
		Table: t, Partition: workload, Key: spillKey, Timeout: timeout,
		Encode: func(marks []uint8) map[string]any {
			packed := make([]byte, (segments+3)/4)
			for s, m := range marks {
				packed[s/4] |= m >> 1 & 3 << (s % 4 * 2)
			}
			return map[string]any{"Marks": packed}
		},
		Decode: func(f *row.Fields) []uint8 {
			packed := f.Binary("Marks")
			if f.Err == nil && len(packed) != (segments+3)/4 {
				f.Fail("Marks", fmt.Sprintf("has %d bytes, not %d", len(packed), (segments+3)/4))
			}
			if f.Err != nil {
				return nil
			}
			marks := make([]uint8, segments)
			for s := range marks {
				marks[s] = packed[s/4] >> (s % 4 * 2) & 3 << 1
			}
			return marks
		},
	}
}

// MarkSpill marks one choice, 1 or 2, of each of the segments. When it returns nil the marks are
// stored, by this or another process, and the owners have been nudged; only then may the segments'
// messages be put there. It tries again for up to a minute, and may be called from many goroutines
// at once.
//
// A mark need not stay until those messages are put: the owner clears it when it finds the queue
// empty. The queue's sweeper finds a message that is put just then (P6.4).
func (p *Presence) MarkSpill(ctx context.Context, segments []uint32, choice int) error {
	changed, err := p.changeSpill(ctx, segments, choice, true)
	if err != nil {
		return fmt.Errorf("marking a spill: %w", err)
	}
	if changed {
		p.nudgeOwners(segments)
	}
	return nil
}

// ClearSpill takes marks away, when the owner has found that choice of the
// segments empty. Otherwise it is as MarkSpill.
func (p *Presence) ClearSpill(ctx context.Context, segments []uint32, choice int) error {
	if _, err := p.changeSpill(ctx, segments, choice, false); err != nil {
		return fmt.Errorf("clearing a spill: %w", err)
	}
	return nil
}

func (p *Presence) changeSpill(
	ctx context.Context, segments []uint32, choice int, marked bool,
) (changed bool, err error) {
	if choice < 1 || choice > spillChoices {
		return false, fmt.Errorf("choice %d is not from 1 to %d", choice, spillChoices)
	}
	count := p.View().Workload.Map.Segments
	for _, s := range segments {
		if int(s) >= count {
			return false, fmt.Errorf("segment %d is not below %d", s, count)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	r := spillRowOf(p.table, p.workload, count, p.reader.timeout)
	for attempt := 1; ; attempt++ {
		v, err := r.MustRead(ctx)
		if err != nil {
			return false, err
		}
		next := make([]uint8, count)
		copy(next, v.Value)
		changed = false
		for _, s := range segments {
			before := next[s]
			if marked {
				next[s] |= 1 << choice
			} else {
				next[s] &^= 1 << choice
			}
			changed = changed || next[s] != before
		}
		if !changed {
			return false, nil
		}
		_, err = r.TryWrite(ctx, v, next)
		if !errors.Is(err, row.ErrLost) {
			return err == nil, err
		}
		row.DrawOf(p.table).Pause(ctx, r.Object(), attempt, r.LongestPause(), nil)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}
