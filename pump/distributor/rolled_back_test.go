package distributor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// They go, and then the leader does: the next one can neither find nor continue the run.
func TestARunWhoseRowIsGoneWhenItsLeaderDiesIsBrokenAndAnotherBegins(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Settled(1)
		before := w.Sim.Snapshot("accounta", row.TableName, "work.runs")
		s := &testworld.ListSource{Print: "a", N: 3000, Pace: 10 * time.Millisecond}
		o := distributor.Options{SealAge: time.Second, Every: time.Hour}
		d := testworld.Begun(w, distributor.New, "d", s, o)
		time.Sleep(20 * time.Second)
		lost := elected(w)[0].ID
		w.Sim.Inject(azsim.Rule{Instance: "d", Fault: azsim.FailBefore})
		time.Sleep(time.Second)
		before.Restore()
		e := testworld.Begun(w, distributor.New, "e", s, o)
		time.Sleep(3 * time.Minute)
		if run := w.RunRow(lost); run.State != workload.RunBroken || !strings.Contains(run.Note, "its row was gone") {
			t.Errorf("%+v", run)
		}
		if w.Logged("a run cannot be continued") == 0 {
			t.Error("nothing is said of it")
		}
		sealed := 0
		for _, run := range elected(w) {
			if run.State != workload.RunBroken && run.Tasks == 3000 {
				sealed++
			}
		}
		if n := h.Deliveries(); sealed != 1 || n < 3000 || w.Left() != 0 {
			t.Errorf("%d runs are whole, %d tasks were handled, %d messages are left", sealed, n, w.Left())
		}
		d.Stop()
		e.Stop()
		<-d.Done
		<-e.Done
		p.End()
	})
}

// The rows come back as they were before the run was sealed, or closed.
func TestARunThatIsOpenAgainIsSealedAndClosedAgain(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Settled(1)
		s := &testworld.ListSource{Print: "a", N: 3000, Pace: 10 * time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second, Every: time.Hour})
		time.Sleep(20 * time.Second)
		before := w.Sim.Snapshot("accounta", row.TableName, "work.runs")
		id := elected(w)[0].ID
		time.Sleep(75 * time.Second)
		if run := w.RunRow(id); run.State != workload.RunClosed {
			t.Fatalf("%+v", run)
		}
		time.Sleep(90 * time.Second)
		before.Restore()
		if run := w.RunRow(id); run.State != workload.RunOpen {
			t.Fatalf("%+v", run)
		}
		time.Sleep(2 * time.Minute)
		if run := w.RunRow(id); run.State != workload.RunClosed || run.Tasks != 3000 {
			t.Errorf("%+v", run)
		}
		proof.Same(t, w.Logged("the row of the run had come back as it was before the run's end"), 1,
			"it is not said once")
		proof.Same(t, h.Deliveries(), 3000, "tasks were handled")
		d.Stop()
		<-d.Done
		p.End()
	})
}

// A sender stood still until its run was over. What is sent then is not acknowledged into that run:
// the send fails, and the next one is of another run. While the run is only abandoned it goes on.
func TestASenderThatStoodStillAcknowledgesNothingIntoARunThatIsOver(t *testing.T) {
	proof.Only(t)
	for name, c := range map[string]struct {
		still time.Duration
		over  bool
	}{"until it is over": {90 * time.Minute, true}, "until it is abandoned": {20 * time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				h := &testworld.Seen{}
				w.Engine.SenderIdle = 24 * time.Hour // it would seal the run
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				w.Settled(1)
				s := sender(w, distributor.SenderOptions{})
				proof.Must(t, s.Send(t.Context(), newTask("before")))
				first := w.Newest()
				beats := w.Fault(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.HangBefore})
				time.Sleep(c.still)
				if state := w.RunRow(first).State; c.over != (state == workload.RunEnded) || !c.over && state != workload.RunAbandoned {
					t.Errorf("after %v it is %s", c.still, state)
				}
				beats.Remove()
				sent := 1
				err := s.Send(t.Context(), newTask("after"))
				proof.Same(t, (err != nil), c.over, "the first send", err)
				if err == nil {
					sent++
				} else if err = s.Send(t.Context(), newTask("again")); err != nil {
					t.Error(err)
				} else {
					sent++
				}
				time.Sleep(time.Minute)
				if n := h.Tasks(); n != sent || len(w.Poisoned("accounta")) > 0 {
					t.Errorf("%d of %d acknowledged tasks are done, %d are in quarantine", n, sent, len(w.Poisoned("accounta")))
				}
				if c.over == (w.Newest() == first) {
					t.Errorf("the run is %v, and was %v", w.Newest(), first)
				}
				proof.Must(t, proof.ErrOf(s.Close(t.Context())))
				p.End()
			})
		})
	}
}
