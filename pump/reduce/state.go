package reduce

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/locate"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// States reads the states of all segments that have one, in the order of their segments, from the
// workload's rows: no process is asked and nothing is changed, so it may be done at any time by
// anyone with the table. Each state is of one moment, and together they are of several while
// processors work. An error ends them. It is one if the workload's reducer has another name.
func (r *Reducer[S, D]) States(ctx context.Context, cfg pump.Config) iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		var none S
		table, w, err := reduced(ctx, &cfg)
		if err == nil && w.Reducer != r.Name {
			err = fmt.Errorf("workload %q: its states are of reducer %q, not of %q", cfg.Workload,
				w.Reducer, r.Name)
		}
		if err != nil {
			yield(none, err)
			return
		}
		s := stored[S, D]{r}
		for record, err := range ledger.ReadRecord(ctx, table, cfg.Workload, w.Map.Segments) {
			if err != nil {
				yield(none, locate.WithAdvice(ctx, &cfg, err))
				return
			}
			b := record.State() // as stored.Store made it
			if len(b) == 0 {
				continue
			}
			state, err := s.Load(b)
			if err != nil {
				yield(none, fmt.Errorf("segment %d: %w", record.Segment, err))
				return
			}
			if !yield(*state.(*S), nil) {
				return
			}
		}
	}
}

// Name reads the name of the reducer that a workload's states are of. Without one it is an error.
func Name(ctx context.Context, cfg pump.Config) (string, error) {
	_, w, err := reduced(ctx, &cfg)
	if err != nil {
		return "", err
	}
	return w.Reducer, nil
}

// reduced completes the configuration and reads its workload, which has a reducer.
func reduced(ctx context.Context, cfg *pump.Config) (storage.Table, *workload.Workload, error) {
	var err error
	if *cfg, err = settings.Complete(*cfg); err != nil {
		return nil, nil, err
	}
	table := queues.Open(cfg, row.TableName).Control
	w, err := workload.Load(ctx, table, cfg.Workload)
	if err != nil {
		return nil, nil, locate.WithAdvice(ctx, cfg, err)
	}
	if w.Reducer == "" {
		return nil, nil, fmt.Errorf("workload %q: %w", cfg.Workload, errNoStates)
	}
	return table, w, nil
}

var errNoStates = errors.New(
	"it has no states: no processor with a reducer has worked on it, such as one with --count-by",
)
