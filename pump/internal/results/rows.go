package results

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// The rows of the partition NAME.results: RUN.index names the last object of each segment of a run
// whose entries in the ledger may be gone, RUN.WRITER the last object of a noted chain.
const (
	indexKey      = ".index"
	indexProperty = "Index"
	lastProperty  = "Last"
	indexPart     = 60 << 10
	indexParts    = 15
	indexMost     = 4 << 20 // bytes of its JSON
)

// Partition is the partition with the rows about a workload's results.
func Partition(name string) string { return workload.ResultsPartition(name) }

// Note makes objects the last ones of the chains of a writer, by run. It tries until it is answered
// or ctx ends.
func Note(
	ctx context.Context, t storage.Table, name string, writer uint64, last map[codec.RunID]Ref,
) error {
	partition := Partition(name)
	var writes []storage.Write
	for _, run := range slices.SortedFunc(maps.Keys(last), workload.CompareRuns) {
		text, _ := last[run].MarshalText()
		writes = append(writes, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
			Partition: partition, Row: fmt.Sprintf("%s.%016x", run, writer),
			Properties: map[string]any{
				row.FormatProperty: int64(row.Format), lastProperty: string(text),
			},
		}})
	}
	for some := range slices.Chunk(writes, storage.MaxBatch) {
		if err := row.InsistOn(ctx, t, some...); err != nil {
			return fmt.Errorf("noting results: %w", err)
		}
	}
	return nil
}

func indexRow(t storage.Table, name string, run codec.RunID) row.Row[map[uint32]Ref] {
	return row.Row[map[uint32]Ref]{
		Table: t, Partition: Partition(name), Key: run.String() + indexKey, Timeout: row.RequestTimeout,
		Encode: func(last map[uint32]Ref) map[string]any {
			props := map[string]any{}
			row.PutParts(props, indexProperty, indexPart, row.Pack(last))
			return props
		},
		Decode: func(f *row.Fields) (last map[uint32]Ref) {
			err := row.Unpack(f.Parts(indexProperty, indexParts), indexMost, &last)
			if err != nil && f.Err == nil {
				f.Fail(indexProperty, err.Error())
			}
			return last
		},
	}
}

// WriteIndex keeps which object is the last one of each segment of a run, unless there is an index
// already: the ledger has less by then.
func WriteIndex(
	ctx context.Context, t storage.Table, name string, run codec.RunID, last map[uint32]Ref,
) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	_, err := indexRow(t, name, run).TryWrite(ctx, row.Version[map[uint32]Ref]{}, last)
	if err != nil && !errors.Is(err, row.ErrLost) {
		return fmt.Errorf("the index of the results of run %s: %w", run, err)
	}
	return nil
}

// Roots reads where the chains of a run begin: the index, nil without one, and the last objects of
// the noted chains.
func Roots(
	ctx context.Context, t storage.Table, name string, run codec.RunID,
) (index map[uint32]Ref, noted []Ref, err error) {
	v, err := indexRow(t, name, run).MustRead(ctx)
	if err != nil {
		return nil, nil, err
	}
	noted, err = notedOf(ctx, t, name, run)
	return v.Value, noted, err
}

func notedOf(
	ctx context.Context, t storage.Table, name string, run codec.RunID,
) (last []Ref, err error) {
	found, err := row.MustFind(ctx, t, storage.Query{
		Partition: Partition(name), From: run.String() + ".", To: run.String() + "~",
	}, -1)
	for _, e := range found {
		f := &row.Fields{Props: e.Properties}
		text := row.ReadFormat(f, func(f *row.Fields) string { return f.Text(lastProperty) })
		var ref Ref
		switch {
		case strings.HasSuffix(e.Row, indexKey):
			continue
		case f.Err == nil:
			if err := ref.UnmarshalText([]byte(text)); err != nil {
				f.Fail(lastProperty, err.Error())
			}
		}
		if f.Err != nil {
			err = errors.Join(err, row.Damaged(t, e.Partition, e.Row, f.Err))
			continue
		}
		last = append(last, ref)
	}
	return last, err
}
