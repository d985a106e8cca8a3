package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// Prunable names runs that the owners of segments have something to do about: one small row, which
// hundreds of processors can read often.
type Prunable struct {
	// Closed runs: in the ledger only their tasks in quarantine stay.
	Closed []codec.RunID
	// Over runs: nothing stays.
	Over []codec.RunID
	// Ended runs, whose records stay: a processor that takes them for open should read their rows
	// again.
	Ended []codec.RunID
}

// Equal reports whether two lists name the same runs in the same order.
func (p Prunable) Equal(o Prunable) bool {
	return slices.Equal(p.Closed, o.Closed) && slices.Equal(p.Over, o.Over) &&
		slices.Equal(p.Ended, o.Ended)
}

const (
	prunableKey   = "prunable"
	prunablePart  = 3800 // ids in a property
	prunableParts = 4    // properties of a kind
)

func (p *Prunable) kinds() []struct {
	name string
	runs *[]codec.RunID
} {
	return []struct {
		name string
		runs *[]codec.RunID
	}{{"Closed", &p.Closed}, {"Over", &p.Over}, {"Ended", &p.Ended}}
}

// bounded is p sorted, with as many runs as the row holds; the others come when these are finished.
func (p Prunable) bounded() Prunable {
	for _, k := range p.kinds() {
		*k.runs = slices.Clone(*k.runs)
		slices.SortFunc(*k.runs, CompareRuns)
		*k.runs = (*k.runs)[:min(len(*k.runs), prunablePart*prunableParts)]
	}
	return p
}

func (r *Runs) prunableRow() row.Row[Prunable] {
	return row.Row[Prunable]{
		Table: r.table, Partition: r.partition(), Key: prunableKey, Timeout: row.RequestTimeout,
		Encode: func(p Prunable) map[string]any {
			props := map[string]any{}
			for _, k := range p.kinds() {
				for i, rest := 0, *k.runs; len(rest) > 0; i++ {
					part := rest[:min(len(rest), prunablePart)]
					b := make([]byte, 0, len(part)*16)
					for _, id := range part {
						b = append(b, id[:]...)
					}
					props[fmt.Sprintf("%s%d", k.name, i)] = b
					rest = rest[len(part):]
				}
			}
			return props
		},
		Decode: func(f *row.Fields) (p Prunable) {
			for _, k := range p.kinds() {
				for i := range prunableParts {
					b := f.Binary(fmt.Sprintf("%s%d", k.name, i))
					for ; len(b) >= 16; b = b[16:] {
						*k.runs = append(*k.runs, codec.RunID(b[:16]))
					}
					if len(b) > 0 {
						f.Fail(k.name, "ends in the midst of an id")
					}
				}
			}
			return p
		},
	}
}

// Prunable gives what was written last; nothing without a row.
func (r *Runs) Prunable(ctx context.Context) (Prunable, error) {
	v, err := r.prunableRow().MustRead(ctx)
	if err != nil {
		return Prunable{}, fmt.Errorf("what can be pruned of %s: %w", r.workload, err)
	}
	return v.Value, nil
}

// SetPrunable writes which runs owners have something to do about, if that is not what the row
// says. Each run's own row must already say so. If several processes write at once, one of them
// wins.
func (r *Runs) SetPrunable(ctx context.Context, p Prunable) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	p = p.bounded()
	stored := r.prunableRow()
	v, err := stored.MustRead(ctx)
	if errors.Is(err, row.ErrCorrupt) {
		return err
	}
	if err == nil && !v.Value.Equal(p) {
		_, err = stored.TryWrite(ctx, v, p)
	}
	if err != nil && !errors.Is(err, row.ErrLost) {
		return fmt.Errorf("what can be pruned of %s: %w", r.workload, err)
	}
	return nil
}
