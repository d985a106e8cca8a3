package worlds

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
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

	must(t, errOf(accounts.Drain(ctx, cfg, "accountc")))
	must(t, sent.wait())
	run := sent.summary.Run
	refused(t, second(w.lost("accountc")), "not been draining for long enough: it may answer again for another")
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
	w.crash("s")
	id, err := codec.ParseRunID(s.State().Run)
	must(w.T, err)
	gone, cancel := context.WithTimeout(w.T.Context(), time.Second)
	defer cancel()
	_, _ = s.Close(gone)
	w.Within(3*time.Hour, "the run of the Sender is over", func() bool { return w.RunRow(id).Over })
	return id
}

// A removal as gone is refused while a queue of the account can be counted, whatever else fails.
func TestAnAccountThatAnswersForAQueueIsNotGone(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		ctx, cfg := t.Context(), w.Operator()
		refused(t, second(w.lost("accountb")), "it is active; drain it first")
		refused(t, second(w.lost("accounta")), "it is the control account")
		must(t, errOf(accounts.Drain(ctx, cfg, "accountb")))
		time.Sleep(accounts.LostAfter)
		refused(t, second(w.lost("accountb")), "it is not gone: it answers for its queue town-")
		dark := w.Sim.Inject(azsim.Rule{Account: "accountb", Object: "town-00", Fault: azsim.FailBefore})
		refused(t, second(w.lost("accountb")), "it answers for its queue town-")
		dark.Remove()
		// Two answers that are lost make no account gone, and a command that is given up neither.
		w.Sim.Inject(azsim.Rule{Account: "accountb", Fault: azsim.FailBefore, First: 6})
		refused(t, second(w.lost("accountb")), "it answers for its queue town-")
		w.Sim.Hang("accountb", true)
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if c, err := accounts.Remove(short, cfg, "accountb", accounts.RemoveOptions{Lost: true}); err == nil || c.Changed {
			t.Errorf("%+v, %v", c, err)
		}
		if got := w.states(); got != "a active 2, b draining 2, c unused 2" {
			t.Error(got)
		}
		began := time.Now()
		if c, err := w.lost("accountb"); err != nil || !c.Changed || time.Since(began) > time.Minute {
			t.Errorf("%+v, %v after %v", c, err, time.Since(began))
		}
	})
}

// What waits out the time does so. Without a record of what is done the account's last count is said
// to be lost, which is all that was in it.
func TestARemovalOfALostAccountWaitsForTheTime(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		ctx, cfg := t.Context(), w.Operator()
		w.distributed(400)
		sampler := w.Config("p", 2)
		sampler.Sample = 15 * time.Second
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
		one, err := processor.New(sampler, h, processor.Options{Concurrency: 4})
		must(t, err)
		p := w.start(one)
		time.Sleep(2 * time.Minute)
		in := 0
		for queue := range 2 {
			_, all := w.Sim.Depth("accountb", fmt.Sprintf("work-%02d", queue))
			in += all
		}
		w.Sim.Blackout("accountb", true)
		began := time.Now()
		must(t, errOf(accounts.Drain(ctx, cfg, "accountb")))
		c, err := accounts.Remove(ctx, cfg, "accountb", accounts.RemoveOptions{Lost: true, Wait: true})
		if took := time.Since(began); err != nil || !c.Changed || took < accounts.LostAfter || took > accounts.LostAfter+30*time.Second {
			t.Errorf("%+v, %v after %v", c, err, took)
		}
		l := c.Lost
		if l == nil || l.Delivery != pump.AtLeastOnce || len(l.Runs) != 0 || l.Last == nil || l.Last.Messages != uint64(in) || in == 0 || l.Last.At.After(began.Add(6*time.Minute)) {
			t.Fatalf("%d were in it: %+v", in, l)
		}
		said := fmt.Sprintf("its messages: %d and 0 in quarantine, counted last at %s", in, l.Last.At.UTC().Format("2006-01-02 15:04"))
		if text := strings.Join(l.Text(time.Now()), "\n"); !strings.Contains(text, said) || !strings.Contains(text, "none is put again") {
			t.Error(text)
		}
		p.End()
	})
}

// Nothing asks an account any more that has left the map, so its last answer says nothing: neither
// is a process unready for it, nor does the quarantine wait for it.
func TestAnAccountThatTheWorkloadDoesNotUseNeedNotAnswer(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		p := w.start(w.processor(&testworld.Seen{}, processor.Options{}))
		w.Sim.Blackout("accountb", true)
		time.Sleep(30 * time.Second)
		if s := p.Of.State(); s.Ready {
			t.Error("it is ready while an account that it reads does not answer")
		}
		w.Without("accountb")
		time.Sleep(30 * time.Second)
		if s := p.Of.State(); !s.Ready {
			t.Errorf("it is not ready: %v", s.Reasons)
		}
		q, err := quarantine.Open(t.Context(), w.Operator())
		must(t, err)
		must(t, q.List(t.Context(), quarantine.Filter{}, func(*quarantine.Message) bool { return true }))
		p.End()
	})
}

// What was in quarantine in an account that is gone keeps no run from being closed, and is named.
func TestWhatWasInQuarantineInALostAccountIsNamed(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		run := w.distributed(200)
		rejected := func(task *pump.Task) bool {
			account, _ := w.Home(task.Segment)
			return account == "accountb" && task.N == 0
		}
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if rejected(task) {
				return pump.Reject(errors.New("no"))
			}
			return nil
		}}
		p := w.start(w.processor(h, processor.Options{}))
		w.Within(5*time.Minute, "the run is closed", func() bool { return w.RunRow(run.ID).State == workload.RunClosed })
		lay := w.RunRow(run.ID).Rest
		w.Sim.Blackout("accountb", true)
		if _, err := accounts.Drain(t.Context(), w.Operator(), "accountb"); err != nil || lay == 0 {
			t.Fatalf("%d in quarantine, %v", lay, err)
		}
		q, err := quarantine.Open(t.Context(), w.Operator())
		must(t, err)
		listed := func() error {
			return q.List(t.Context(), quarantine.Filter{}, func(*quarantine.Message) bool { return true })
		}
		if listed() == nil {
			t.Error("an account of the workload is passed over")
		}
		time.Sleep(accounts.LostAfter)
		c, err := w.lost("accountb")
		if err != nil || len(c.Lost.Runs) == 0 {
			t.Fatalf("%+v, %v", c, err)
		}
		i := slices.IndexFunc(c.Lost.Runs, func(r accounts.LostRun) bool { return r.Run == run.ID })
		if i < 0 || c.Lost.Runs[i].Quarantined != lay || *c.Lost.Runs[i].Unsettled != 0 || c.Lost.Runs[i].Kept != "it is closed" {
			t.Errorf("%d were in quarantine: %+v", lay, c.Lost.Runs)
		}
		q, err = quarantine.Open(t.Context(), w.Operator())
		must(t, err)
		must(t, listed())
		p.End()
	})
}
