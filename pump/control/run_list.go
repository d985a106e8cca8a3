package control

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// Run rows are found by id, and the ids are random, so their order says nothing;
// nor can all be scanned for the newest, since they are never removed (one a
// minute is half a million a year). So each run has a second row whose key
// begins with its start time counted down, and the newest come first in key
// order. That row never changes and says nothing but which run it is.

const (
	byTime = "t."
	// afterByTime is the first key past all that begin with byTime ('.' < '~').
	afterByTime = "t~"
	lastMilli   = 9_999_999_999_999 // in the year 2286
)

func (r *Runs) timeKey(run Run) string {
	milli := min(max(run.Started.UnixMilli(), 0), lastMilli)
	return fmt.Sprintf("%s%013d.%s", byTime, lastMilli-milli, run.ID)
}

// note writes the row by time. Writing it again changes nothing, so an
// ambiguous answer is simply followed by another attempt.
func (r *Runs) note(ctx context.Context, run Run) error {
	w := storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: r.partition(), Row: r.timeKey(run),
		Properties: map[string]any{formatProperty: int64(format), "Run": run.ID.String()},
	}}
	for attempt := 1; ; attempt++ {
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err := r.table.Write(call, w)
		cancel()
		if err == nil || ctx.Err() != nil || !mayRetry(err) {
			return err
		}
		drawOf(r.table).pause(ctx, r.partition(), attempt, requestTimeout/5, err)
	}
}

// List gives up to limit runs, the last started first, by the clocks of the
// instances that started them. It costs one request for the keys of each
// thousand and one for each run.
func (r *Runs) List(ctx context.Context, limit int) ([]Run, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for attempt := 1; ; attempt++ {
		runs, err := r.list(ctx, limit)
		if err == nil || ctx.Err() != nil || !mayRetry(err) {
			return runs, err
		}
		drawOf(r.table).pause(ctx, r.partition(), attempt, requestTimeout/5, err)
	}
}

func (r *Runs) list(ctx context.Context, limit int) ([]Run, error) {
	var runs []Run
	if limit <= 0 {
		return nil, nil
	}
	q := storage.Query{Partition: r.partition(), From: byTime, To: afterByTime, Select: []string{"Run"}}
	for e, err := range r.table.Query(ctx, q) {
		if err != nil {
			return nil, fmt.Errorf("listing runs of %s: %w", r.workload, err)
		}
		id, err := codec.ParseRunID((&fields{props: e.Properties}).text("Run"))
		if err != nil {
			return nil, fmt.Errorf("row %s/%s: %w: %w", e.Partition, e.Row, ErrCorrupt, err)
		}
		run, err := r.Get(ctx, id)
		if errors.Is(err, ErrNoRun) || err == nil && r.timeKey(run) != e.Row {
			// Left by a Create that did not get further, or that was made again
			// at another time: not this row is the run's.
			continue
		}
		if err != nil {
			return nil, err
		}
		if runs = append(runs, run); len(runs) == limit {
			break
		}
	}
	return runs, nil
}

// Counts are stored as how many there are and then each one, all varints.

func appendCounts(b []byte, counts []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(counts)))
	for _, n := range counts {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func readCounts(b []byte) ([]uint64, error) {
	n, size := binary.Uvarint(b)
	// Every count takes a byte at least.
	if size <= 0 || n < 1 || n > maxSegments || n > uint64(len(b)-size) {
		return nil, errors.New("has no number of segments")
	}
	b = b[size:]
	counts := make([]uint64, n)
	for i := range counts {
		if counts[i], size = binary.Uvarint(b); size <= 0 {
			return nil, fmt.Errorf("ends in the count of segment %d", i)
		}
		b = b[size:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("has %d bytes after its last count", len(b))
	}
	return counts, nil
}
