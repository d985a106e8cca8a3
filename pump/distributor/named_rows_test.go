package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// given gives the command once more, and says how many messages it put.
func given(w *testworld.World, who string, s *testworld.ListSource) (distributor.Summary, int, error) {
	before := w.Requests("PutMessage")
	summary, err := testworld.Made(w, distributor.New, who, s, nightly).Run(w.T.Context())
	return summary, w.Requests("PutMessage") - before, err
}

// killed sends for so long and dies.
func killed(w *testworld.World, who string, s *testworld.ListSource, after time.Duration) {
	o := nightly
	o.Grace = time.Millisecond
	begun := testworld.Begun(w, distributor.New, who, s, o)
	time.Sleep(after)
	w.Crash(who)
	begun.Stop()
	_ = begun.Wait()
}

// drop has a row vanish.
func drop(w *testworld.World, partition, key string) {
	w.Sim.DropRows("accounta", row.TableName, partition, func(k string) bool { return k == key })
}

// A named run whose row went is broken if something of it was saved: no row tells its source. Else it
// begins again, as the same run.
func TestANamedRunWhoseRowWent(t *testing.T) {
	for _, after := range []time.Duration{2500 * time.Millisecond, 15 * time.Second} {
		testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			w.Engine.BarrierAge = 4 * time.Second
			s := &testworld.ListSource{Print: "a", N: 3000, Pace: 10 * time.Millisecond}
			killed(w, "d1", s, after)
			id := runsOf(w)[0].ID
			drop(w, workload.RunsPartition(w.Cfg.Workload), id.String())
			_, puts, err := given(w, "d2", s)
			if after < 4*time.Second {
				proof.Must(t, err)
				w.Collect().Expect(t, w.Segments(), id, s, s.N, -1)
				return
			}
			if puts > 0 || !errors.Is(err, pump.ErrNoRun) || !strings.Contains(err.Error(), "another name") {
				t.Errorf("%d puts, %v", puts, err)
			}
			if r := w.RunRow(id); r.State != workload.RunBroken || r.Name != nightly.Name {
				t.Errorf("%+v", r)
			}
			_, puts, err = given(w, "d3", s)
			if puts > 0 || !errors.Is(err, pump.ErrRunState) || !strings.Contains(err.Error(), "is broken") {
				t.Errorf("given again after that: %d puts, %v", puts, err)
			}
		})
	}
}

// Its row came back as it was before the run was sent, when the ledger may have forgotten the run.
func TestANamedRunIsNotSentAgainAsItsRowCameBackOpen(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 3000, Pace: 10 * time.Millisecond}
		begun := testworld.Begun(w, distributor.New, "d1", s, nightly)
		time.Sleep(15 * time.Second)
		kept := w.Sim.Snapshot("accounta", row.TableName, workload.RunsPartition(w.Cfg.Workload))
		proof.Must(t, begun.Wait())
		kept.Restore()
		_, puts, err := given(w, "d2", s)
		if puts > 0 || !errors.Is(err, pump.ErrRunState) || !strings.Contains(err.Error(), "runs end") {
			t.Errorf("%d puts, %v", puts, err)
		}
	})
}

// The row of its election went: the run starts over as the same one, and mode once does nothing twice.
// A repair is refused while a process sends the run that another one began.
func TestANamedRunWhoseElectionRowWentDoesNothingTwice(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Engine.BarrierAge = 2 * time.Second
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		s := &testworld.ListSource{Print: "a", N: 3000, Pace: 10 * time.Millisecond}
		for n := range 2 {
			killed(w, fmt.Sprint("k", n), s, 15*time.Second)
			drop(w, workload.ElectionPartition(w.Cfg.Workload), workload.NamedKey(runsOf(w)[0].ID))
			if h.Tasks() < 1000 || n > 0 && h.Tasks() >= s.N {
				t.Errorf("%d tasks were done when the row went", h.Tasks())
			}
			if e := runsOf(w)[0].Epoch; e != uint64(n+1) {
				t.Errorf("term %d of the run has the epoch %d", n+1, e)
			}
		}
		begun := testworld.Begun(w, distributor.New, "d3", s, nightly)
		time.Sleep(40 * time.Second)
		id := runsOf(w)[0].ID
		_, err := mend(w, id, s, distributor.RepairOptions{}, distributor.Options{})
		if !errors.Is(err, pump.ErrRunState) || !strings.Contains(err.Error(), "d3") {
			t.Error(err)
		}
		proof.Must(t, begun.Wait())
		if begun.Summary.Envelopes < 300 {
			t.Errorf("it did not start over: %+v", begun.Summary)
		}
		w.Within(time.Minute, "closed", func() bool { return w.RunRow(id).State == workload.RunClosed })
		p.End()
		h.Expect(t, s.N, s.N)
	})
}

// The name of a run is taken for an hour after its row went, also if the process that sealed the run
// died before it could say so, and a repeat in that time puts nothing. Then the name sends again under
// the same id, and no task is taken for a copy.
func TestTheNameOfARetiredRunSendsAgainAnHourLater(t *testing.T) {
	proof.Only(t)
	for _, dies := range []bool{false, true} {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			w.Cfg.Retention = time.Hour
			var h testworld.Seen
			p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
			s := &testworld.ListSource{Print: "a", N: 200}
			if dies {
				w.Sim.Inject(azsim.Rule{Instance: "d1", Partition: workload.ElectionPartition(w.Cfg.Workload), Skip: 2, Fault: azsim.FailBefore})
			}
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
			first, _ := testworld.Made(w, distributor.New, "d1", s, nightly).Run(ctx)
			stop()
			proof.Same(t, w.Logged("the end of the distribution could not be written") > 0, dies,
				"the end was not said")
			if again, puts, err := given(w, "d2", s); err != nil || puts > 0 || again.Again == "" {
				t.Fatalf("given again after the seal: %d puts, %+v, %v", puts, again, err)
			}
			var gone time.Time
			for n := 0; ; n++ {
				time.Sleep(4 * time.Minute)
				if _, err := w.AllRuns().Get(t.Context(), first.Run); err == nil {
					continue
				} else if gone.IsZero() {
					gone = time.Now()
				}
				again, puts, err := given(w, fmt.Sprint("e", n), s)
				took := time.Since(gone)
				if err == nil && again.Run == first.Run && took >= workload.NameKept-5*time.Minute && took < workload.NameKept+30*time.Minute {
					break
				}
				if puts > 0 || !errors.Is(err, pump.ErrRunState) || took > 2*time.Hour {
					t.Fatalf("%v after its row went: %d puts, %+v, %v", took, puts, again, err)
				}
			}
			w.Within(time.Hour, "closed", func() bool { return w.RunRow(first.Run).State == workload.RunClosed })
			p.End()
			h.Expect(t, s.N, 2*s.N)
		})
	}
}
