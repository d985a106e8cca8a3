package worlds

import (
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// One partition of the ledger that does not answer, or only throttles, is the matter of its
// segments: runs elsewhere end and are forgotten as if it were well, and what waits in its segments
// is done when it answers again.
func TestADarkLedgerPartitionKeepsNoRunElsewhereFromItsEnd(t *testing.T) {
	for _, fault := range []azsim.Rule{{Fault: azsim.Answer}, {Fault: azsim.HangBefore}} {
		t.Run(string(fault.Fault), func(t *testing.T) {
			inOnceWorld(t, 2, 4, nil, func(t *testing.T, w *world) { // 256 segments
				h := &testworld.Seen{}
				p := w.join("p", h, processor.Options{})
				q := w.join("q", h, processor.Options{})
				w.Settled(2)
				time.Sleep(time.Minute)
				fault.Service, fault.Partition = "table", "work.ledger.01"
				rule := w.Sim.Inject(fault)
				time.Sleep(time.Minute)
				closed := func(ids ...pump.RunID) func() bool {
					return func() bool {
						for _, id := range ids {
							if w.RunRow(id).State != workload.RunClosed {
								return false
							}
						}
						return true
					}
				}
				waits := w.oneTask(64)
				elsewhere := []pump.RunID{w.oneTask(0), w.oneTask(63), w.oneTask(128), w.oneTask(200), w.oneTask(255)}
				w.Within(2*time.Minute, "runs elsewhere are closed", closed(elsewhere...))
				w.Within(2*time.Minute, "and forgotten", func() bool {
					live, err := w.AllRuns().Live(t.Context())
					return err == nil && !slices.ContainsFunc(live, func(l workload.LiveRun) bool {
						return slices.Contains(elsewhere, l.ID)
					})
				})
				time.Sleep(time.Hour)
				if run := w.RunRow(waits); run.State != workload.RunSealed || run.Over {
					t.Errorf("the run that waits for the partition is %s, over: %v", run.State, run.Over)
				}
				if n := w.Logged("could not all be ended"); n < 1 || n > 70 {
					t.Errorf("it is said %d times in an hour", n)
				}
				rule.Remove()
				w.Within(5*time.Minute, "what waited is done", closed(waits))
				if h.Tasks() != len(elsewhere)+1 || w.Left() != 0 {
					t.Errorf("%d tasks are handled, %d messages are left", h.Tasks(), w.Left())
				}
				p.End()
				q.End()
			})
		})
	}
}
