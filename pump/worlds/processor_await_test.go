package worlds

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// TestAProcessorThatWaitsForTheLeasesOfTheDeadSaysSo once, whether they died long ago or just now.
func TestAProcessorThatWaitsForTheLeasesOfTheDeadSaysSo(t *testing.T) {
	const waiting = "waiting for the lease of members that do not beat to run out"
	for name, c := range map[string]struct {
		dead, says time.Duration
		most       int // lines of the log
	}{
		"long ago": {dead: 5 * time.Minute, says: time.Second, most: 1},
		"just now": {dead: 0, says: 16 * time.Second, most: 2}, // two beats, and one until the next look; theirs are apart
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				var old []*started
				for _, instance := range []string{"p1", "p2"} {
					old = append(old, w.join(instance, &testworld.Seen{}, processor.Options{Grace: -1}))
				}
				w.Settled(2)
				if w.Logged(waiting) != 0 {
					t.Error("they say that they wait for each other")
				}
				for _, instance := range []string{"p1", "p2"} {
					w.Fault(azsim.Rule{Instance: instance, Fault: azsim.FailBefore})
				}
				time.Sleep(c.dead)
				p := w.join("p3", &testworld.Seen{}, processor.Options{})
				time.Sleep(c.says)
				state := p.Of.State()
				if state.Ready || !slices.ContainsFunc(state.Reasons, func(r string) bool { return strings.Contains(r, "lease of p1, p2 to run out") }) {
					t.Errorf("reasons %q", state.Reasons)
				}
				if n := w.Logged(waiting); n < 1 || n > c.most || w.Logged("lease=23s") != n {
					t.Errorf("said %d times", n)
				}
				time.Sleep(6 * time.Second)
				if i := slices.IndexFunc(w.View().Members, func(m cluster.Member) bool { return m.Instance == "p3" }); !strings.Contains(w.View().Members[i].Trouble, "lease of p1, p2") {
					t.Errorf("its row says %q", w.View().Members[i].Trouble)
				}
				w.Settled(1)
				time.Sleep(10 * time.Second)
				if state := p.Of.State(); !state.Ready || w.Logged(waiting) > c.most {
					t.Errorf("afterwards %q, said %d times", state.Reasons, w.Logged(waiting))
				}
				p.End()
				for _, s := range old {
					s.Stop()
					<-s.Done
				}
			})
		})
	}
}
