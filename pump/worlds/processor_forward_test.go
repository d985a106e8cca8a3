package worlds

import (
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/shardmap"
)

// An account is removed when it has been empty and draining for as long as an old map may be used.
// A process that has not seen the map since must not put anything into it: no processor would read
// it.
func TestP65NothingIsBroughtHomeByAMapThatIsTooOld(t *testing.T) {
	inWorld(t, 4, 1, nil, func(t *testing.T, w *world) {
		var hs testworld.Handlings
		p, q := w.join("p", hs.Handler("p", 0), processor.Options{}), w.join("q", hs.Handler("q", 0), processor.Options{})
		w.Settled(2)
		w.DrainAccount("accountd")
		time.Sleep(20 * time.Second)
		v := w.Settled(2)
		m := v.Workload.Map
		at := slices.IndexFunc(m.Shards, func(s shardmap.Shard) bool { return s.Account == "accountd" })
		cut, other := p, q
		if v.Sweeper(at) == "q" {
			cut, other = q, p
		}
		// A home in an account that will go, of a segment that the other one holds.
		home := slices.IndexFunc(m.Shards, func(s shardmap.Shard) bool {
			if s.State != shardmap.Active || s.Account == w.Cfg.Control {
				return false
			}
			owner, _ := v.OwnerOf(testworld.SegmentOf(m, slices.Index(m.Shards, s)))
			return owner.Instance == other.Of.State().Instance
		})
		if home < 0 {
			t.Fatal("the other processor has only the control account's queue")
		}
		segment, gone := testworld.SegmentOf(m, home), m.Shards[home].Account
		dark := w.Sim.Inject(azsim.Rule{Instance: cut.Of.State().Instance, Service: "table", Fault: azsim.FailBefore})
		deaf := w.Sim.Inject(azsim.Rule{Instance: other.Of.State().Instance, Account: "accountd", Operations: []string{"GetMessages"}, Fault: azsim.FailBefore})
		w.DrainAccount(gone)
		time.Sleep(queues.RemoveAfter)
		w.Without(gone)

		w.PutText("accountd", "work-00", w.Envelope(segment, 3))
		time.Sleep(time.Minute)
		if n := w.Count(gone, "work-00"); n != 0 {
			t.Errorf("%d messages were put into a queue that was removed", n)
		}
		dark.Remove()
		deaf.Remove()
		time.Sleep(2 * time.Minute)
		if hs.Tasks() != 3 {
			t.Errorf("%d of 3 tasks", hs.Tasks())
		}
		p.End()
		q.End()
	})
}
