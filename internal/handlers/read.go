package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/reduce"
)

// ReadCounts reads what a workload's [By] has counted, for each key the sum over all segments,
// sorted by key. As with [reduce.Reducer.States] it is of one moment only when nothing is being
// counted. It reads all before it gives the first key, and needs twice the memory of all keys and
// their numbers, some 20 bytes and the key each. It gives nothing after an error.
func ReadCounts(ctx context.Context, cfg pump.Config) iter.Seq2[KeyCount, error] {
	return func(yield func(KeyCount, error) bool) {
		name, err := reduce.Name(ctx, cfg)
		if err != nil {
			yield(KeyCount{}, err)
			return
		}
		sums, err := countsAndSums(name)
		if err != nil {
			yield(KeyCount{}, fmt.Errorf("workload %q: %w", cfg.Workload, err))
			return
		}
		reducer := &reduce.Reducer[counts, keySums]{Name: name, Decode: decodeCounts}
		var runs countRuns
		for state, err := range reducer.States(ctx, cfg) {
			if err != nil {
				yield(KeyCount{}, err)
				return
			}
			runs.add(state)
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

// countsAndSums says from the name of a reducer that [By] made whether it sums.
func countsAndSums(name string) (sums bool, err error) {
	rest, counts := strings.CutPrefix(name, countName+" by ")
	if !counts {
		return false, fmt.Errorf(
			"its states are of reducer %q, which does not count: only the program that "+
				"it belongs to can read them",
			name,
		)
	}
	if field, err := strconv.QuotedPrefix(rest); err == nil {
		return rest != field, nil
	}
	return strings.Contains(rest, " "), nil
}
