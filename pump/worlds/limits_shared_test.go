package worlds

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

// limitsSharedUsed of the limits are used by four processors that share them, each with queues of
// its own: the floors of the three that are strangers in a queue are 3/64 of it.
const limitsSharedUsed = 0.94

// Processes that share the limits use nearly all of them without a refusal: the processors of a
// backlog among themselves, and then beside a distributor that puts. In the tests beside this one a
// process is alone, so that they say nothing of shares. The limits are a quarter of the published
// ones: at a tenth of them 4 % of requests are refused beside a distributor, and a third is used.
func TestLimitsAreReachedByProcessesThatShareThem(t *testing.T) {
	proof.Only(t)
	all := []limitsOf{{1, 4, 0, 0.25, 0}}
	if *limitsTable {
		all = append(all, limitsOf{4, 1, 0, 0.25, 0})
	}
	for _, of := range all {
		t.Run(fmt.Sprintf("%d accounts of %d queues", of.accounts, of.queues), func(t *testing.T) {
			inLimits(t, of, func(w *limitsWorld) {
				w.distribute(func(func() int64) { time.Sleep(20 * time.Second) })
				w.processors(4, func(gets func() int64) {
					time.Sleep(10 * time.Second)
					got := w.over(10*time.Second, gets)
					var both limitsRate
					w.distribute(func(func() int64) {
						time.Sleep(10 * time.Second)
						both = w.over(20*time.Second, gets)
					})
					for side, r := range map[string]limitsRate{"got and deleted": got, "and put": both} {
						t.Logf("4 processors, %s: %v", side, r)
						if r.part < limitsSharedUsed || r.throttled >= limitsThrottled {
							t.Errorf("%s: %v", side, r)
						}
					}
				})
			})
		})
	}
}

// processors runs so many for as long as during takes.
func (w *limitsWorld) processors(n int, during func(got func() int64)) {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var all []*processor.Processor
	nothing := pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil })
	for i := range n {
		p, err := processor.New(w.config(fmt.Sprintf("p%02d", i)), nothing, processor.Options{})
		must(w.t, err)
		all = append(all, p)
		wg.Go(func() {
			if _, err := p.Run(ctx); err != nil {
				w.t.Error(err)
			}
		})
	}
	during(func() (n int64) {
		for _, p := range all {
			n += p.State().Done.Envelopes
		}
		return n
	})
	stop()
	wg.Wait()
}
