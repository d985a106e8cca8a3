package worlds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/status"
)

// goneFor are the ways in which an account may be gone for good.
var goneFor = map[string]func(w *world, account string) (back func()){
	"its name does not answer": func(w *world, account string) func() {
		w.Sim.Blackout(account, true)
		return func() { w.Sim.Blackout(account, false) }
	},
	"a stranger has its name": func(w *world, account string) func() {
		i := w.Sim.Inject(azsim.Rule{Account: account, Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		return i.Remove
	},
}

// lost removes an account as one that is gone for good.
func (w *world) lost(account string) (accounts.Change, error) {
	return accounts.Remove(w.T.Context(), w.Operator(), account, accounts.RemoveOptions{Lost: true})
}

// An account is deleted under load, with tasks of three runs in it: the way out of the runbook.
// Everything of the run that can be read again is done, the others are over in the documented time,
// and the processors are ready. Then the account comes back with what lay in it.
func TestAnAccountThatIsGoneForGoodLeavesAndWhatLackedIsDone(t *testing.T) {
	proof.Only(t)
	for how, gone := range goneFor {
		t.Run(how, func(t *testing.T) {
			inOnceWorld(t, 3, 2, nil, func(t *testing.T, w *world) { w.losesAnAccount(gone) })
		})
	}
}

func (w *world) losesAnAccount(gone func(*world, string) func()) {
	const tasks = 2000
	t, ctx, cfg := w.T, w.T.Context(), w.Operator()
	h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 300*time.Millisecond) }}
	c := w.Config("p", 2)
	c.Sample = 15 * time.Second
	one, err := processor.New(c, h, processor.Options{Concurrency: 4})
	must(t, err)
	p, q := w.start(one), w.start(w.processorOf("q", h, processor.Options{Concurrency: 4}))
	list := &testworld.ListSource{Print: "a", N: tasks}
	sent := w.startDistributor(w.distributor("d", list, distributor.Options{Pack: 4}))
	sender, err := distributor.NewSender(w.Config("s", 2), distributor.SenderOptions{})
	must(t, err)
	for i := range 100 {
		must(t, sender.Send(ctx, source.Record{Key: []byte{byte(i)}, Body: []byte("sent")}))
	}
	time.Sleep(20 * time.Second) // a sample of the account is in the history
	back := gone(w, "accountc")
	time.Sleep(time.Minute)

	must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountc")))
	must(t, sent.Wait())
	run := sent.Summary.Run
	refused(t, proof.ErrOf(w.lost("accountc")), "not been draining for long enough: it may answer again for another")
	time.Sleep(accounts.LostAfter)
	if _, err := accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{}); err == nil || !strings.Contains(err.Error(), "could not be learned") {
		t.Errorf("without --lost: %v", err)
	}
	change, err := w.lost("accountc")
	if err != nil || !change.Changed || change.State != accounts.Unused {
		t.Fatalf("%+v, %v", change, err)
	}
	w.checkLosses(change.Lost, run, tasks)
	w.isWellWithout(p, q)
	sum, err := w.mend(run, list, distributor.RepairOptions{}, distributor.Options{})
	if err != nil || sum.Put == 0 || sum.Messages == nil {
		t.Fatalf("%+v, %v", sum, err)
	}
	end, err := runs.Wait(ctx, w.Config("waiter", 2), run, pump.WaitOptions{Timeout: 10 * time.Minute})
	if err != nil || !end.Closed || end.Done != tasks {
		t.Fatalf("%+v, %v", end, err)
	}
	client := w.endsItsSender(sender)
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
	windowHit(t, lost)
}

// isWellWithout looks at what is left a minute after the removal of accountc, which made again is
// success.
func (w *world) isWellWithout(processors ...*started) {
	w.T.Helper()
	if again, err := w.lost("accountc"); err != nil || again.Changed || again.Lost != nil {
		w.T.Errorf("made again: %+v, %v", again, err)
	}
	time.Sleep(time.Minute)
	for _, one := range processors {
		if s := one.Of.State(); !s.Ready {
			w.T.Errorf("%s is not ready: %v", s.Instance, s.Reasons)
		}
	}
	if s := w.status(status.Options{}); len(s.Problems) > 0 {
		w.T.Errorf("the status has problems: %v", s.Problems)
	}
}

// checkLosses looks at what is said of a run that can be repaired, and of a Sender's that cannot.
func (w *world) checkLosses(l *accounts.Losses, run pump.RunID, tasks uint64) {
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
func (w *world) endsItsSender(s *distributor.Sender) pump.RunID {
	w.T.Helper()
	w.Crash("s")
	id, err := codec.ParseRunID(s.State().Run)
	must(w.T, err)
	gone, cancel := context.WithTimeout(w.T.Context(), time.Second)
	defer cancel()
	_, _ = s.Close(gone)
	w.Within(3*time.Hour, "the run of the Sender is over", func() bool { return w.RunRow(id).Over })
	return id
}

// refused checks that an error is an accounts.Error with a text, and says nothing of storage.
func refused(t *testing.T, err error, text string) *accounts.Error {
	t.Helper()
	e, ok := errors.AsType[*accounts.Error](err)
	if !ok || !strings.Contains(err.Error(), text) || err.Error() != e.Error() {
		t.Fatalf("%v is no refusal with %q", err, text)
	}
	return e
}

func TestAnAccountIsNotRemovedWhileAnythingMayBeInItsQueues(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		ctx, cfg := t.Context(), w.Operator()
		if _, err := accounts.Add(ctx, cfg, "accountc"); err != nil {
			t.Fatal(err)
		}
		refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{Wait: true})), "it is active")
		w.PutText("accountc", "town-01", []byte("a"))
		w.PutText("accountc", "town-01", []byte("b"))
		if _, err := w.Queue("accountc", "town-01").Get(ctx, 1, time.Hour); err != nil { // invisible, and there
			t.Fatal(err)
		}
		w.PutText("accountc", "town-poison", []byte("c"))
		if _, err := accounts.Drain(ctx, cfg, "accountc"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(queues.RemoveAfter)
		e := refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{})), "2 in town-01, 1 in town-poison (quarantine)")
		if want := []accounts.QueueLeft{{Queue: "town-01", Messages: 2}, {Queue: "town-poison", Messages: 1, Poison: true}}; !slices.Equal(e.Left, want) {
			t.Errorf("left %v", e.Left)
		}
		windowHit(t, len(e.Left)) // queues that are not empty, whatever can be seen in them
		must(t, w.Queue("accountc", "town-01").Clear(ctx))
		// No process empties the quarantine, so it is not waited for.
		refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{Wait: true})), "quarantined messages are left: 1 in town-poison")
		must(t, w.Queue("accountc", "town-poison").Clear(ctx))
		// Any change of the map may be the one that a writer has not noticed.
		if _, err := accounts.Drain(ctx, cfg, "accountb"); err != nil {
			t.Fatal(err)
		}
		refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{})), "not been draining for long enough")
		time.Sleep(queues.RemoveAfter)
		// A queue that cannot be counted proves nothing.
		dark := w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "queue", Fault: azsim.FailBefore})
		if _, err := accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{}); err == nil || !strings.Contains(err.Error(), "could not be learned") {
			t.Error(err)
		}
		dark.Remove()
		// One that is not there is empty.
		must(t, w.Queue("accountc", "town-00").Drop(ctx))
		if c, err := accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{}); err != nil || !c.Changed {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
