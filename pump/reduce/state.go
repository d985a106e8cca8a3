package reduce

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/locate"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// States reads the states of all segments that have one, in the order of their segments, from the
// workload's rows: no process is asked and nothing is changed, so it may be done at any time by
// anyone with the table. Each state is of one moment, and together they are of several while
// processors work. An error ends them. It is one if the workload's reducer has another name.
func (r *Reducer[S, D]) States(ctx context.Context, cfg pump.Config) iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		var none S
		s := stored[S, D]{r}
		for b, err := range readStates(ctx, cfg, r.sameName) {
			if err == nil {
				var state any
				if state, err = s.Load(b.state); err == nil {
					if !yield(*state.(*S), nil) {
						return
					}
					continue
				}
				err = fmt.Errorf("segment %d: %w", b.segment, err)
			}
			yield(none, err)
			return
		}
	}
}

func (r *Reducer[S, D]) sameName(name string) error {
	if name != r.Name {
		return fmt.Errorf("its states are of reducer %q, not of %q", name, r.Name)
	}
	return nil
}

// segmentState is what is stored for a segment.
type segmentState struct {
	segment uint32
	state   []byte // as stored.Store made it
}

// readStates reads the states of the workload if its reducer is one that can be read.
func readStates(ctx context.Context, cfg pump.Config, can func(reducer string) error) iter.Seq2[segmentState, error] {
	return func(yield func(segmentState, error) bool) {
		fail := func(err error) { yield(segmentState{}, err) }
		cfg, err := settings.Complete(cfg)
		if err != nil {
			fail(err)
			return
		}
		table := queues.Open(&cfg, row.TableName).Control
		w, err := workload.Load(ctx, table, cfg.Workload)
		if err != nil {
			fail(locate.WithAdvice(ctx, &cfg, err))
			return
		}
		if w.Reducer == "" {
			fail(
				fmt.Errorf(
					"workload %q: it has no states: no processor with a reducer has worked on it, such as one with --count-by",
					cfg.Workload,
				),
			)
			return
		}
		if err := can(w.Reducer); err != nil {
			fail(fmt.Errorf("workload %q: %w", cfg.Workload, err))
			return
		}
		for record, err := range ledger.ReadRecord(ctx, table, cfg.Workload, w.Map.Segments) {
			if err != nil {
				fail(locate.WithAdvice(ctx, &cfg, err))
				return
			}
			if b := record.State(); len(b) > 0 && !yield(segmentState{record.Segment, b}, nil) {
				return
			}
		}
	}
}

// ReadCounts reads what a workload's [CountBy] has counted, for each key the sum over all segments,
// sorted by key. As with [Reducer.States] it is of one moment only when nothing is being counted.
// All is read before the first key is given; in memory is twice what all keys and their numbers
// take, some 20 bytes and the key each. An error is the last that it gives.
func ReadCounts(ctx context.Context, cfg pump.Config) iter.Seq2[KeyCount, error] {
	return func(yield func(KeyCount, error) bool) {
		reducer := &Reducer[counts, keySums]{Decode: decodeCounts}
		sums := false
		can := func(name string) (err error) {
			reducer.Name = name
			sums, err = countsAndSums(name)
			return err
		}
		var runs countRuns
		for b, err := range readStates(ctx, cfg, can) {
			var state any
			if err == nil {
				state, err = stored[counts, keySums]{reducer}.Load(b.state)
			}
			if err != nil {
				yield(KeyCount{}, err)
				return
			}
			runs.add(*state.(*counts))
		}
		for k := range runs.all() {
			out := KeyCount{Key: k.key, Count: k.count}
			if sums {
				out.Sum = json.Number(k.sum.String())
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}

// countsAndSums says of a reducer that CountBy made, by its name, whether it sums.
func countsAndSums(name string) (sums bool, err error) {
	rest, counts := strings.CutPrefix(name, countName+" by ")
	if !counts {
		return false, fmt.Errorf(
			"its states are of reducer %q, which does not count: only the program that it belongs to can read them",
			name,
		)
	}
	if field, err := strconv.QuotedPrefix(rest); err == nil {
		return rest != field, nil
	}
	return strings.Contains(rest, " "), nil
}
