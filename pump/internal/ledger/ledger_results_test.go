package ledger

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// A segment with as many live runs as it may have, and as much recorded of them, has room for where the
// results of all of them are. The chain of each goes on there: under the next owner too, and not from
// where it was before. The service takes the rows.
func TestAFullSegmentsResultsGoOn(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a := openBook(t, testkit.OverTheWire(t, sim, "a"), "a")
		a.mustFence(1, 7)
		at := func(i, k int) string { return fmt.Sprintf("%0*d", ResultsMost, 10_000*k+i) }
		for first := 0; first < maxLiveRuns; first += 1200 {
			var entries []Entry
			for i := first; i < first+1200; i++ {
				e := Entry{Segment: 7, Epoch: 1, Run: numbered(i), Done: alternate(0, 20), Results: at(i, 1)}
				entries = append(entries, e)
			}
			a.mustCommit(entries...)
		}
		for chunks := uint64(0); a.Use().Bytes < bookedSoft-2*maxRecord; chunks++ {
			a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: numbered(0), Done: scattered(1, chunks+1, 1)})
		}
		proof.Is(t, proof.ErrOf(a.Begin(7, 1, numbered(maxLiveRuns), 0, ns(0, 1))), ErrTooManyRuns,
			"one run more begins")
		a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: numbered(4), Done: ns(1, 2), Before: at(4, 1), Results: at(4, 2)})
		late := Entry{Segment: 7, Epoch: 1, Run: numbered(4), Done: ns(3, 4), Before: at(4, 1), Results: at(4, 3)}
		proof.Is(t, a.commit(late), ErrResultsMoved, "results that follow those before the last")
		b := openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		b.mustFence(2, 7)
		b.mustCommit(Entry{Segment: 7, Epoch: 2, Run: numbered(4), Done: ns(3, 4), Before: at(4, 2), Results: at(4, 3)})
		last, err := ReadResults(t.Context(), b.table, "city", 128, numbered(4), numbered(5), numbered(maxLiveRuns-1))
		must(t, err)
		for i, k := range map[int]int{4: 3, 5: 1, maxLiveRuns - 1: 1} {
			proof.Same(t, last[numbered(i)][7], at(i, k), i, "the results of run are at")
		}
		// Who has lost the segment asks the row.
		late.Before, late.Results = at(4, 2), at(4, 4)
		proof.Is(t, a.commit(late), ErrFenced, "results come after another owner")
		if got, err := a.Results(t.Context(), 7, numbered(4)); err != nil || strings.TrimLeft(got, "0") != "30004" {
			t.Errorf("the last results are %q: %v", got, err)
		}
		// A run that is forgotten has none.
		must(t, b.Prune(t.Context(), []codec.RunID{numbered(4)}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := b.Results(ctx, 7, numbered(4)); err != nil || got != "" {
			t.Errorf("a forgotten run's results are %q: %v", got, err)
		}
	})
}
