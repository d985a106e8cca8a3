package worlds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// A processor whose SAS of one account ran out owns no segment that has messages there: others
// read the account. No task stands for longer than two leases of a segment, and when the account
// can be read again its segments are shared as before.
func TestAProcessorThatAloneCannotReadAnAccountOwnsNothingThere(t *testing.T) {
	const leases = 2 * 20 * time.Second
	for _, c := range []struct {
		delivery pump.Delivery
		code     string
		names    string
		alone    string
	}{
		{pump.AtLeastOnce, "AuthenticationFailed", "pqr", "q"},
		{pump.Once, "AuthenticationFailed", "pqr", "q"},
		{pump.Once, "AuthorizationFailure", "pqr", "q"},    // the account's firewall
		{pump.Once, "AuthenticationFailed", "pqrstu", "s"}, // it is none of the first, which vouch
	} {
		t.Run(fmt.Sprint(c.delivery, " ", c.code, " ", c.names), func(t *testing.T) {
			inWorld(t, 3, 2, func(o *azsim.Config) { o.Seed = 7 }, func(t *testing.T, w *world) {
				w.Cfg.Delivery = c.delivery
				var hs testworld.Handlings
				var all []*started
				for _, name := range strings.Split(c.names, "") {
					o := processor.Options{Concurrency: 16}
					all = append(all, w.join(name, hs.Handler(name, 100*time.Millisecond), o))
				}
				w.Settled(len(all))
				owns := func() (all, there int) {
					m := w.ShardMap()
					segments := testworld.Owns(w.View(), c.alone)
					for _, s := range segments {
						if m.Shards[m.Home(s)].Account == "accountb" {
							there++
						}
					}
					return len(segments), there
				}
				if _, there := owns(); there == 0 {
					t.Fatalf("%s owned nothing in accountb before", c.alone)
				}
				tasks := 0
				round := func() {
					t.Helper()
					tasks += w.PutHome(w.EverySegment(), 1)
					time.Sleep(leases)
					if n := hs.Tasks(); n != tasks {
						t.Errorf("%d of %d tasks were handled within %v", n, tasks, leases)
					}
				}
				round()
				rule := w.Fault(azsim.Rule{
					Instance: c.alone, Account: "accountb", Service: "queue",
					Fault: azsim.Answer, Status: 403, Code: c.code,
				})
				for range 10 {
					round()
					for _, m := range w.View().Members { // though it polls none of its queues any more
						if says := fmt.Sprint(m.Cannot); m.Instance == c.alone && says != "[accountb]" {
							t.Errorf("%s says that it cannot read %s", c.alone, says)
						}
					}
					if n, there := owns(); there > 0 || n < w.ShardMap().Segments/(2*len(all)) {
						t.Errorf("%s owns %d segments, %d of them in accountb", c.alone, n, there)
					}
				}
				rule.Remove()
				for range 4 {
					round()
				}
				for _, member := range w.View().Members {
					if len(member.Cannot) > 0 {
						t.Errorf("%s says that it cannot read %v", member.Instance, member.Cannot)
					}
				}
				endEach(all)
			})
		})
	}
}

// An account that refuses all processors moves no segment: none of them would do better.
func TestAnAccountThatNoProcessorCanReadMovesNoSegment(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		var all []*started
		for _, name := range []string{"p", "q", "r"} {
			all = append(all, w.join(name, &testworld.Seen{}, processor.Options{}))
		}
		before := w.Settled(3)
		w.Sim.Inject(azsim.Rule{
			Account: "accountb", Service: "queue", Operations: []string{"GetMessages"},
			Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed",
		})
		time.Sleep(5 * time.Minute)
		after, moved := w.Settled(3), 0
		for s, owner := range before.Owners {
			if after.Owners[s].Instance != owner.Instance {
				moved++
			}
		}
		if moved > 0 {
			t.Errorf("%d segments moved", moved)
		}
		epochs := w.View().Owners
		time.Sleep(10 * time.Minute)
		for s, owner := range w.View().Owners {
			if owner != epochs[s] {
				t.Errorf("segment %d moved from %v to %v", s, epochs[s], owner)
			}
		}
		endEach(all)
	})
}
