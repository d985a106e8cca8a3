package worlds

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// A5: an epoch of the ledger at or above the owner row's locked its segment for ever, and nothing
// was said.
func TestP32LostOwnerRowsAndALedgerPartitionOfAMinuteAgoHealThemselvesLoudly(t *testing.T) {
	spec := workload.Spec{Delivery: string(pump.Once), Segments: 256}
	slower := func(c *azsim.Config) { c.Latency = 20 * time.Millisecond }
	testworld.In(t, spec, 2, 4, slower, func(t *testing.T, w *testworld.World) {
		w.Pinned = spec.Segments
		fill := func() int { return w.PutHome(w.EverySegment(), 1) }
		inUse := func(p *started, within time.Duration) {
			t.Helper()
			w.Within(within, "every segment is in use", func() bool {
				s := p.Of.State()
				return s.Cluster.Held == w.Segments() && s.Unfenced == 0
			})
		}
		h := &testworld.Seen{}
		for range 2 { // each claims with another epoch
			p := testworld.Begun(w, processor.New, "before", h, processor.Options{})
			inUse(p, time.Minute)
			p.End()
		}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		inUse(p, time.Minute)
		lease := 20 * time.Second // the cluster's
		done := fill()
		w.Within(lease, "all is done", func() bool { return h.Tasks() == done && w.Left() == 0 })

		old := w.Sim.Snapshot("accounta", row.TableName, "work.ledger.01")
		time.Sleep(time.Minute)
		done += fill()
		w.Within(lease, "all is done", func() bool { return h.Tasks() == done && w.Left() == 0 })

		old.Restore()
		w.Sim.DropRows("accounta", row.TableName, "work", func(row string) bool { return strings.HasPrefix(row, "owner.") })
		done += fill()
		w.Within(2*lease, "all segments are at work again", func() bool { return h.Tasks() == done && w.Left() == 0 })
		inUse(p, time.Second)
		if w.Logged("segments are claimed again above epochs that their ledgers had") == 0 {
			t.Error("nothing was said of the owner rows")
		}
		if w.Logged("rows of the ledger are those of some time ago") == 0 {
			t.Error("nothing was said of the ledger's rows")
		}
		windowHit(t, min(1, w.Logged("rows of the ledger are those of some time ago")))
		p.End()
	})
}
