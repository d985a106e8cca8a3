package workload

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// LogEntry is a change by an operator. It is written before the change, as begun, and again after
// it. If an entry stays begun, the end of its change is not known.
type LogEntry struct {
	Time        time.Time // by the clock of the operator's machine
	By, Version string
	What        string // what was to be changed
	State       string // a State
	Note        string // why it failed
}

// The states of an entry.
const (
	LogBegun  = "begun"
	LogDone   = "done"
	LogFailed = "failed"
)

// KeptLog is how many entries a workload keeps.
const KeptLog = 1000

func logRowOf(t storage.Table, workload, key string) row.Row[LogEntry] {
	return row.Row[LogEntry]{
		Table: t, Partition: LogPartition(workload), Key: key, Timeout: row.RequestTimeout,
		Encode: func(e LogEntry) map[string]any {
			return map[string]any{
				"Time": e.Time, "By": row.Clip(e.By), "Version": row.Clip(e.Version),
				"What": row.Clip(e.What), "State": e.State, "Note": row.Clip(e.Note),
			}
		},
		Decode: decodeLog,
	}
}

func decodeLog(f *row.Fields) LogEntry {
	return LogEntry{
		Time: f.Moment("Time"), By: f.Line("By"), Version: f.Line("Version"),
		What: f.Line("What"), State: f.Line("State"), Note: f.Line("Note"),
	}
}

// Begin writes an entry whose change begins, and removes entries beyond [KeptLog]. With the
// function that it gives, the caller says how the change has ended.
func (e LogEntry) Begin(
	ctx context.Context, t storage.Table, workload string,
) (end func(context.Context, error) error, err error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	e.Time, e.State = e.Time.UTC().Truncate(time.Microsecond), LogBegun
	key := fmt.Sprintf("%019d.%08d", math.MaxInt64-e.Time.UnixNano(),
		row.DrawOf(t)("log", workload)%1e8) // the newest comes first
	r := logRowOf(t, workload, key)
	v, err := r.TryWrite(ctx, row.Version[LogEntry]{}, e)
	if err != nil {
		return nil, err
	}
	old, err := row.MustFind(ctx, t, storage.Query{
		Partition: r.Partition, Select: []string{row.FormatProperty},
	}, KeptLog+storage.MaxBatch)
	for _, o := range old[min(len(old), KeptLog):] {
		_, _ = t.Write(ctx, storage.Write{Mode: storage.Remove, Entity: storage.Entity{
			Partition: r.Partition, Row: o.Row, ETag: o.ETag,
		}}) // the next entry finds what stays
	}
	return func(ctx context.Context, failed error) error {
		if e.State = LogDone; failed != nil {
			e.State, e.Note = LogFailed, failed.Error()
		}
		_, err := r.TryWrite(ctx, v, e)
		return err
	}, nil
}

// Log gives the entries since a moment, the newest last.
func Log(
	ctx context.Context, t storage.Table, workload string, since time.Time,
) (log []LogEntry, err error) {
	rows, err := row.MustFind(ctx, t, storage.Query{Partition: LogPartition(workload)}, KeptLog)
	for i := range rows {
		f := &row.Fields{Props: rows[i].Properties}
		if e := row.ReadFormat(f, decodeLog); f.Err != nil {
			return nil, fmt.Errorf("row %s/%s: %w", rows[i].Partition, rows[i].Row, f.Err)
		} else if !e.Time.Before(since) {
			log = append(log, e)
		}
	}
	slices.Reverse(log)
	return log, err
}
