package worlds

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// P8.2: who puts tasks back into a queue that may have been idle for long tells their owner; also
// one that is given up is something to look at, in mode once. An owner that cannot be told holds
// nothing up.
func TestP82TheOwnerIsToldOfWhatComesBackFromQuarantine(t *testing.T) {
	for _, c := range []struct {
		name     string
		delivery string
		settle   func(*quarantine.Quarantine, context.Context, quarantine.Filter, quarantine.Options, func(quarantine.Outcome) bool) error
		dark     bool
		told     bool
	}{
		{"redriven", string(pump.AtLeastOnce), (*quarantine.Quarantine).Redrive, false, true},
		{"redriven, once", string(pump.Once), (*quarantine.Quarantine).Redrive, false, true},
		{"dropped", string(pump.AtLeastOnce), (*quarantine.Quarantine).Drop, false, false},
		{"dropped, once", string(pump.Once), (*quarantine.Quarantine).Drop, false, true},
		{"redriven while the cluster cannot be read", string(pump.AtLeastOnce), (*quarantine.Quarantine).Redrive, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorldOf(t, workload.Spec{Delivery: c.delivery}, 1, 2, nil, func(t *testing.T, w *world) {
				p, _ := w.joiner("p", "work", func(cfg *pump.Config, _ *member.Options) { cfg.Delivery = pump.Delivery(c.delivery) })
				defer p.Leave(t.Context())
				w.Within(time.Minute, "p owns the segment", func() bool { _, ok := p.Hold(testworld.SomeSegment); return ok })
				w.poison("accounta", testworld.SomeSegment, codec.ReasonAttempts, time.Now(), "key")
				cfg := w.Config("operator", 2)
				sent := &testkit.List{}
				cfg.Nudge = func(_ context.Context, n pump.Nudge) error {
					sent.Nudged(n)
					return nil
				}
				q, err := quarantine.Open(t.Context(), cfg)
				must(t, err)
				if c.dark { // only the second query is that of the cluster
					w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.FailBefore, Skip: 1}, "QueryEntities")
				}
				settled := 0
				if err := c.settle(q, t.Context(), quarantine.Filter{}, quarantine.Options{}, func(o quarantine.Outcome) bool {
					if o.Outcome != quarantine.Kept {
						settled++
					}
					return true
				}); err != nil || settled != 1 {
					t.Fatalf("%d messages settled: %v", settled, err)
				}
				account, queue := w.Home(testworld.SomeSegment)
				var want []pump.Nudge
				if c.told {
					want = []pump.Nudge{{Address: "p.example:80", Instance: "p", Queue: account + "/" + queue, Here: true}}
				}
				if got := sent.Take(); !slices.Equal(got, want) {
					t.Errorf("told: %+v, want %+v", got, want)
				}
			})
		})
	}
}
