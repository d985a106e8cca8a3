package worlds

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// The election's row goes, or comes back as it was, in the middle of a run. The run goes on, by who
// knows how far it came or, if that process dies, from its start: with the same identities.
func TestTheRunOfAnElectionRowThatIsNoMoreGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		before  time.Duration // the row comes back as it was then; 0: it is gone
		dies    bool          // the leader does, at the same time
		handled int           // at most, in mode at-least-once
	}{
		"gone":                                 {0, false, 3000 + 50},
		"gone, and its leader dies":            {0, true, 2*3000 + 200},
		"of before the first run":              {time.Second, false, 3000 + 50},
		"of a minute before":                   {70 * time.Second, false, 3000 + 50},
		"of a minute before, the leader dies":  {70 * time.Second, true, 2*3000 + 200},
		"of an earlier beat, the leader lives": {100 * time.Second, false, 3000 + 50},
	} {
		for _, delivery := range []string{string(pump.Once), ""} {
			t.Run(name+" "+delivery, func(t *testing.T) {
				inWorldOf(t, workload.Spec{Delivery: delivery}, 2, 2, nil, func(t *testing.T, w *world) {
					h := &testworld.Seen{}
					p := w.join("p", h, processor.Options{})
					w.Settled(1)
					began := time.Now()
					var kept *azsim.Snapshot
					after := time.AfterFunc(c.before, func() { kept = w.rowsOf(election.Partition("work")) })
					defer after.Stop()
					o := distributor.Options{SealAge: time.Second, Every: time.Minute}
					first := w.startDistributor(w.distributor("c", &testworld.ListSource{Print: "a", N: 100}, o)) // one run before, of a term of its own
					time.Sleep(30 * time.Second)
					first.cancel()
					<-first.done
					before := h.Deliveries()
					s := &testworld.ListSource{Print: "a", N: 3000, Pace: 20 * time.Millisecond}
					o.Every = time.Hour
					d := w.startDistributor(w.distributor("d", s, o))
					e := w.startDistributor(w.distributor("e", s, o))
					time.Sleep(time.Until(began.Add(115 * time.Second)))
					epoch := w.lookRow().Epoch
					leader, other := d, e
					if w.lookRow().Leader == "e" {
						leader, other = e, d
					}
					if c.before > 0 {
						kept.Restore()
					} else {
						w.Sim.DropRows("accounta", row.TableName, election.Partition("work"), func(string) bool { return true })
					}
					if c.dies {
						w.Sim.Inject(azsim.Rule{Instance: w.elected()[0].Instance, Fault: azsim.FailBefore})
					}
					time.Sleep(110 * time.Second)
					runs := w.elected()
					if len(runs) != 2 || runs[0].Tasks != 3000 || runs[0].Epoch <= epoch {
						t.Errorf("the last term was %d; %d runs, the newest of %d tasks and of term %d", epoch, len(runs), runs[0].Tasks, runs[0].Epoch)
					}
					if n := w.Logged("the election row was gone, or had come back"); n != 1 && c.before < time.Minute {
						t.Errorf("it is said %d times", n)
					}
					most := c.handled
					if delivery == string(pump.Once) {
						most = 3000
					}
					if n := h.Deliveries() - before; n < 3000 || n > most {
						t.Errorf("%d handlings of 3000 tasks, want %d at most", n, most)
					}
					if n := h.Tasks(); n != 3100 {
						t.Errorf("%d identities", n)
					}
					for _, w := range []*working{leader, other} {
						w.cancel()
						<-w.done
					}
					p.End()
				})
			})
		}
	}
}
