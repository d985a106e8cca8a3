package workload

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// slowPages is a table that gives ten rows at a time, each ten after a while.
type slowPages struct {
	*testkit.Client
	takes time.Duration
}

func (s slowPages) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		n := 0
		for e, err := range s.Client.Query(ctx, q) {
			if n%10 == 0 {
				time.Sleep(s.takes)
			}
			if n++; ctx.Err() != nil {
				yield(e, storage.NotSent(ctx, "query", "fake", q.Partition))
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Where hundreds of runs live, the list is read in sixteen parts. Each may take seconds, and the
// process that ends runs reads all of it in each pass: no run would end.
func TestASlowTableKeepsNobodyFromReadingWhatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		runs := NewRuns(server.Client("a"), "city")
		for n := range byte(liveMany) {
			must(t, runs.Create(t.Context(), Run{ID: testkit.RunID(n + 1)}))
		}
		client := server.Client("slow")
		client.SetLatency(func(testkit.Call) time.Duration { return time.Second })
		slow := NewRuns(slowPages{client, 4 * time.Second}, "city")
		for _, parts := range []int{1, 16} { // first it is not known how many live
			proof.Same(t, len(slow.liveParts()), parts, "the list is read in … parts")
			if all, err := slow.Live(t.Context()); err != nil || len(all) != liveMany {
				t.Errorf("in %d parts: %d runs, %v", parts, len(all), err)
			}
		}
		// A table that does not answer is still given up in time.
		client.Dies()
		began := time.Now()
		if _, err := slow.Live(t.Context()); err == nil || time.Since(began) > 2*row.Patience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
