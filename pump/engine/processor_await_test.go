package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/cluster"
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
					old = append(old, w.join(instance, &seen{}, ProcessorOptions{Grace: -1}))
				}
				w.settled(2)
				if w.logged(waiting) != 0 {
					t.Error("they say that they wait for each other")
				}
				for _, instance := range []string{"p1", "p2"} {
					w.fault(azsim.Rule{Instance: instance, Fault: azsim.FailBefore})
				}
				time.Sleep(c.dead)
				p := w.join("p3", &seen{}, ProcessorOptions{})
				time.Sleep(c.says)
				state := p.of.State()
				if state.Ready || !slices.ContainsFunc(state.Reasons, func(r string) bool { return strings.Contains(r, "lease of p1, p2 to run out") }) {
					t.Errorf("reasons %q", state.Reasons)
				}
				if n := w.logged(waiting); n < 1 || n > c.most || w.logged("lease=23s") != n {
					t.Errorf("said %d times", n)
				}
				time.Sleep(6 * time.Second)
				if i := slices.IndexFunc(w.view().Members, func(m cluster.Member) bool { return m.Instance == "p3" }); !strings.Contains(w.view().Members[i].Trouble, "lease of p1, p2") {
					t.Errorf("its row says %q", w.view().Members[i].Trouble)
				}
				w.settled(1)
				time.Sleep(10 * time.Second)
				if state := p.of.State(); !state.Ready || w.logged(waiting) > c.most {
					t.Errorf("afterwards %q, said %d times", state.Reasons, w.logged(waiting))
				}
				p.end()
				for _, s := range old {
					s.stop()
					<-s.done
				}
			})
		})
	}
}
