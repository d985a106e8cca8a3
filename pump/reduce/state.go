package reduce

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/setup"
)

// States reads the states of all segments that have one, in the order of their segments, from the
// workload's rows: no process is asked and nothing is changed, so anyone with the table may do it
// at any time. Each state is of one moment, but while processors work the states are of several
// moments. An error ends the sequence, for example that the workload's reducer has another name.
func (r *Reducer[S, D]) States(ctx context.Context, cfg pump.Config) iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		var none S
		o, err := reduced(ctx, cfg)
		if err == nil && o.Workload.Reducer != r.Name {
			err = fmt.Errorf("workload %q: its states are of reducer %q, not of %q", cfg.Workload,
				o.Workload.Reducer, r.Name)
		}
		if err != nil {
			yield(none, err)
			return
		}
		s := handler[S, D]{r}
		for record, err := range ledger.ReadRecord(ctx, o.Queues.Control, cfg.Workload,
			o.Workload.Map.Segments) {
			if err != nil {
				yield(none, o.Advise(ctx, err))
				return
			}
			b := record.State() // as handler.Store made it
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

// Name reads the name of the reducer that made a workload's states. Without a reducer it is an
// error.
func Name(ctx context.Context, cfg pump.Config) (string, error) {
	o, err := reduced(ctx, cfg)
	if err != nil {
		return "", err
	}
	return o.Workload.Reducer, nil
}

// reduced completes the configuration and reads its workload, which has a reducer.
func reduced(ctx context.Context, cfg pump.Config) (*setup.Session, error) {
	o, err := setup.Find(ctx, cfg)
	if err == nil && o.Workload.Reducer == "" {
		err = fmt.Errorf("workload %q: %w", cfg.Workload, errNoReducer)
	}
	return o, err
}

var errNoReducer = errors.New(
	"nothing is counted: no processor with --count-by, or with a reducer in Go, has worked on it",
)
