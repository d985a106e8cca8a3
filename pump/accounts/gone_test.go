package accounts_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/status"
)

// goneFor are the ways in which an account may be gone for good.
var goneFor = map[string]func(w *testworld.World, account string) (back func()){
	"its name does not answer": func(w *testworld.World, account string) func() {
		w.Sim.Blackout(account, true)
		return func() { w.Sim.Blackout(account, false) }
	},
	"a stranger has its name": func(w *testworld.World, account string) func() {
		i := w.Sim.Inject(azsim.Rule{Account: account, Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		return i.Remove
	},
}

// An account is deleted under load, with tasks of three runs in it: the way out of the runbook.
// Everything of the run that can be read again is done, the others are over in the documented time,
// and the processors are ready. Then the account comes back with what lay in it.
func TestAnAccountThatIsGoneForGoodLeavesAndWhatLackedIsDone(t *testing.T) {
	proof.Only(t)
	for how, gone := range goneFor {
		t.Run(how, func(t *testing.T) {
			testworld.In(t, testworld.Once, 3, 2, nil, func(t *testing.T, w *testworld.World) { losesAnAccount(w, gone) })
		})
	}
}

func losesAnAccount(w *testworld.World, gone func(*testworld.World, string) func()) {
	const tasks = 2000
	t, ctx, cfg := w.T, w.T.Context(), w.Operator()
	h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 300*time.Millisecond) }}
	w.Engine.SenderIdle = 24 * time.Hour
	c := w.Config("p", 2)
	c.Sample = 15 * time.Second
	one, err := processor.New(c, h, processor.Options{Concurrency: 4})
	proof.Must(t, err)
	p, q := testworld.Start(w.T, one), testworld.Begun(w, processor.New, "q", h, processor.Options{Concurrency: 4})
	list := &testworld.ListSource{Print: "a", N: tasks}
	sent := testworld.Begun(w, distributor.New, "d", list, distributor.Options{Pack: 4})
	sender, err := distributor.NewSender(w.Config("s", 2), distributor.SenderOptions{})
	proof.Must(t, err)
	for i := range 100 {
		proof.Must(t, sender.Send(ctx, source.Record{Key: []byte{byte(i)}, Body: []byte("sent")}))
	}
	time.Sleep(20 * time.Second) // a sample of the account is in the history
	back := gone(w, "accountc")
	time.Sleep(time.Minute)

	proof.Must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountc")))
	proof.Must(t, sent.Wait())
	run := sent.Summary.Run
	testworld.Refused(t, proof.ErrOf(lost(w, "accountc")), "not been draining for long enough: it may answer again for another")
	time.Sleep(accounts.LostAfter)
	proof.Says(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{})), "could not be learned", "without --lost")
	change, err := lost(w, "accountc")
	if err != nil || !change.Changed || change.State != accounts.Unused {
		t.Fatalf("%+v, %v", change, err)
	}
	checkLosses(w, change.Lost, run, tasks)
	isWellWithout(w, p.Of, q.Of)
	sum, err := testworld.Made(w, distributor.New, "mender", list, distributor.Options{}).
		Repair(ctx, run, distributor.RepairOptions{})
	if err != nil || sum.Put == 0 || sum.Messages == nil {
		t.Fatalf("%+v, %v", sum, err)
	}
	end, err := runs.Wait(ctx, w.Config("waiter", 2), run, pump.WaitOptions{Timeout: 10 * time.Minute})
	if err != nil || !end.Closed || end.Done != tasks {
		t.Fatalf("%+v, %v", end, err)
	}
	client := endsItsSender(w, sender)
	time.Sleep(6 * time.Minute) // processors believe a row that they have read for five
	done := h.Tasks()
	back()
	added, err := accounts.Add(ctx, cfg, "accountc")
	if err != nil || added.Copies == nil || added.Copies.Messages == 0 || added.Copies.Delivery != pump.Once {
		t.Fatalf("%+v, %v", added, err)
	}
	time.Sleep(5 * time.Minute)
	p.End()
	q.End()
	if row := w.RunRow(client); row.State != workload.RunEnded || !row.Over {
		t.Errorf("the run of the Sender: %s, over: %v", row.State, row.Over)
	}
	if h.Tasks() != done || h.Deliveries() != done {
		t.Errorf("%d tasks were done before the account came back, then %d in %d deliveries", done, h.Tasks(), h.Deliveries())
	}
	// What was lost of the run that is over is in quarantine: a copy of what is done may be, too.
	condemned, lost := w.Condemned(), 0
	for id := range condemned {
		if h.Times[id] == 0 {
			lost++
		}
	}
	if h.Tasks()+lost != tasks+100 || lost == 0 {
		t.Errorf("%d done, %d more in quarantine, %d were sent", h.Tasks(), lost, tasks+100)
	}
}

// isWellWithout looks at what is left a minute after the removal of accountc, which made again is
// success.
func isWellWithout(w *testworld.World, processors ...*processor.Processor) {
	w.T.Helper()
	if again, err := lost(w, "accountc"); err != nil || again.Changed || again.Lost != nil {
		w.T.Errorf("made again: %+v, %v", again, err)
	}
	time.Sleep(time.Minute)
	for _, one := range processors {
		if s := one.State(); !s.Ready {
			w.T.Errorf("%s is not ready: %v", s.Instance, s.Reasons)
		}
	}
	proof.Alike(w.T, w.Status(status.Options{}).Problems, nil, "problems of the status")
}

// checkLosses looks at what is said of a run that can be repaired, and of a Sender's that cannot.
func checkLosses(w *testworld.World, l *accounts.Losses, run pump.RunID, tasks uint64) {
	w.T.Helper()
	var again, kept int
	for _, r := range l.Runs {
		switch {
		case r.Run == run && r.Kept == "" && r.Unsettled != nil && *r.Unsettled > 0 && *r.Unsettled < tasks:
			again++
		case r.Mode == "client" && r.Unsettled == nil && strings.Contains(r.Kept, "Sender"):
			kept++
		}
	}
	if last := l.Last; again != 1 || kept != 1 || last == nil || last.Messages == 0 || last.At.After(time.Now().Add(-5*time.Minute)) {
		w.T.Errorf("%d and %d of %+v, last counted %+v", again, kept, l.Runs, last)
	}
}

// endsItsSender has the process of a Sender die, and gives its run when that is over.
func endsItsSender(w *testworld.World, s *distributor.Sender) pump.RunID {
	w.T.Helper()
	w.Crash("s")
	id, err := codec.ParseRunID(s.State().Run)
	proof.Must(w.T, err)
	gone, cancel := context.WithTimeout(w.T.Context(), time.Second)
	defer cancel()
	_, _ = s.Close(gone)
	w.Within(3*time.Hour, "the run of the Sender is over", func() bool { return w.RunRow(id).Over })
	return id
}
