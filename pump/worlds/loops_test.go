package worlds

import (
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// TestADistributorsLoopsGoRoundWhateverHappens: who supervises it ends a distributor whose loops
// stand still, and must not end one whose accounts do.
func TestADistributorsLoopsGoRoundWhateverHappens(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "p", N: 20_000, Pace: 100 * time.Millisecond}
		d := w.distributor("d", source, distributor.Options{Every: time.Second})
		run := w.startDistributor(d)
		type seen struct {
			rounds uint64
			at     time.Time
		}
		last, moved := map[string]seen{}, map[string]bool{}
		watch := func(when string, during time.Duration) {
			var stuck []string
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(time.Second) {
				for _, l := range d.Loops() {
					s := last[l.Name]
					if s.rounds != l.Rounds || l.Most == 0 || s.at.IsZero() {
						moved[l.Name] = moved[l.Name] || s.rounds < l.Rounds
						last[l.Name] = seen{l.Rounds, time.Now()}
					} else if time.Since(s.at) > l.Most && !slices.Contains(stuck, l.Name) {
						stuck = append(stuck, l.Name)
					}
				}
			}
			if len(stuck) > 0 {
				t.Errorf("%s: %q are stuck", when, stuck)
			}
		}
		watch("at work", 3*time.Minute)
		for _, f := range []azsim.Rule{
			{Service: "queue", Fault: azsim.HangBefore},
			{Service: "queue", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"},
			{Service: "table", Fault: azsim.HangBefore},
			{Fault: azsim.FailBefore},
		} {
			f := w.Fault(f)
			watch(w.Sim.Faults(), 15*time.Minute)
			f.Remove()
		}
		for _, name := range []string{"sinks", "map", "member", "puts"} {
			if !moved[name] {
				t.Errorf("%s never went round: %v", name, d.Loops())
			}
		}
		run.cancel()
		<-run.done
	})
}
