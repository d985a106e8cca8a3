package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// P5.2: others judge by what the row says. So with a shorter lease a member's trust ends in time
// though it never learns that the beat has landed, and a longer lease does not count while the beat
// that says it has not. No two ever trust a segment.
func TestALeaseCountsWithTheBeatThatSaysIt(t *testing.T) {
	const quick, slow = 500 * time.Millisecond, 5 * time.Second
	for name, c := range map[string]struct {
		from, to, others time.Duration
		fault            azsim.FaultKind // of its writes
	}{
		"shorter": {slow, quick, quick, azsim.HangAfter},
		"longer":  {quick, slow, quick, azsim.HangBefore},
	} {
		inCrowd(t, 8, 64, func(t *testing.T, w *crowd) {
			a, b := w.join("a"), w.join("b")
			for _, p := range []*testMember{a, b} {
				p.SetTimes(c.from, 4*c.from)
			}
			w.settle(time.Minute)
			synctest.Wait()
			held := a.listed()
			w.sim.Inject(azsim.Rule{Instance: "a", Service: "table", Operations: []string{"MergeEntity"}, Fault: c.fault})
			w.sim.Inject(azsim.Rule{Instance: "a", Service: "table", Operations: []string{"GetEntity", "QueryEntities"}, Fault: azsim.HangBefore})
			began, taken := time.Now(), 0
			a.SetTimes(c.to, 4*c.to)
			b.SetTimes(c.others, 4*c.others)
			for time.Since(began) < time.Minute {
				time.Sleep(20 * time.Millisecond)
				for s := range held.All() {
					if !b.Trusted(s) {
						continue
					}
					if taken++; a.Trusted(s) {
						t.Fatalf("%s: after %v both trust segment %d", name, time.Since(began), s)
					}
				}
			}
			if taken == 0 {
				t.Errorf("%s: nothing was taken over", name)
			}
		})
	}
}
