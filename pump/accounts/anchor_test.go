package accounts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// madeOfTwo is a workload "town" of the first two of three accounts, made as a distributor does. It
// gives a function that starts another workload of that name in the second and third account, with
// a configuration that does not list the first.
func madeOfTwo(t *testing.T, test func(t *testing.T, w *testworld.World, other func() error)) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Workload = "town"
		start := func(name string, from, to int) error {
			c := w.Config(name, 2)
			c.Workload, c.Accounts = "town", c.Accounts[from:to]
			return testworld.Prepared(t.Context(), distributor.New, c)
		}
		proof.Must(t, start("first", 0, 2))
		test(t, w, func() error { return start("other", 1, 3) })
	})
}

// drained is when accountb may be removed.
func drained(w *testworld.World, name string) {
	w.T.Helper()
	proof.Must(w.T, proof.ErrOf(accounts.Drain(w.T.Context(), w.Operator(), name)))
	time.Sleep(queues.RemoveAfter)
}

// anchorIn is the account that the anchor in an account names; empty without one.
func anchorIn(w *testworld.World, i int) string {
	w.T.Helper()
	e, err := w.Cfg.Accounts[i].Storage.Table(row.TableName).Read(w.T.Context(), "town", "anchor")
	if err != nil {
		return ""
	}
	name, _ := e.Properties["Account"].(string)
	return name
}

// A removed account is as one that never took part: another workload of the name may be made in it.
func TestARemovedAccountTakesPartInNothing(t *testing.T) {
	madeOfTwo(t, func(t *testing.T, w *testworld.World, other func() error) {
		proof.Says(t, other(), "of account accounta", "while it takes part")
		drained(w, "accountb")
		if c, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err != nil || !c.Changed {
			t.Fatalf("%+v, %v", c, err)
		}
		proof.Same(t, anchorIn(w, 1), "", "its anchor still names")
		proof.Same(t, anchorIn(w, 0), "accounta", "the anchor of the control account names")
		proof.Is(t, other(), nil, "when it takes part in nothing")
	})
}

// Added, it is a part of the workload again, whatever became of its anchor.
func TestAnAccountThatIsAddedTakesPartAgain(t *testing.T) {
	madeOfTwo(t, func(t *testing.T, w *testworld.World, other func() error) {
		add := func() {
			t.Helper()
			c, err := accounts.Add(t.Context(), w.Operator(), "accountb")
			if err != nil || !c.Changed || anchorIn(w, 1) != "accounta" {
				t.Errorf("%+v, %v, its anchor names %q", c, err, anchorIn(w, 1))
			}
			proof.Says(t, other(), "of account accounta", "after it was added")
		}
		drained(w, "accountb")
		proof.Must(t, proof.ErrOf(accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{})))
		add()
		drained(w, "accountb")
		dark := w.Sim.Inject(azsim.Rule{Account: "accountb", Service: "table", Fault: azsim.FailBefore})
		if c, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err == nil || !c.Changed {
			t.Fatalf("in the dark: %+v, %v", c, err)
		}
		dark.Remove()
		add()
	})
}

// The anchor is the last of the account. A removal that could not learn whether it went says so,
// and the command made again finishes it.
func TestARemovalWhoseAnchorIsLeftIsFinishedByTheNext(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.FailBefore, azsim.HangBefore} {
		madeOfTwo(t, func(t *testing.T, w *testworld.World, other func() error) {
			drained(w, "accountb")
			dark := w.Sim.Inject(azsim.Rule{Account: "accountb", Service: "table", Fault: fault})
			began := time.Now()
			c, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{})
			if !c.Changed || c.State != accounts.Unused || err == nil || !strings.Contains(err.Error(), "distributor accounts remove accountb") {
				t.Errorf("%s: %+v, %v", fault, c, err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("%s: it took %v", fault, took)
			}
			dark.Remove()
			for range 2 {
				if c, err = accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err != nil || c.Changed || anchorIn(w, 1) != "" {
					t.Errorf("%s: made again: %+v, %v, its anchor names %q", fault, c, err, anchorIn(w, 1))
				}
			}
			proof.Must(t, other())
		})
	}
	// An answer that is lost is asked for again.
	for skip := range 2 {
		madeOfTwo(t, func(t *testing.T, w *testworld.World, _ func() error) {
			drained(w, "accountb")
			lost := w.Sim.Inject(azsim.Rule{Account: "accountb", Service: "table", Fault: azsim.AnswerLost, Skip: skip, First: 1})
			c, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{})
			if err != nil || !c.Changed || anchorIn(w, 1) != "" || lost.Hits() != 1 {
				t.Errorf("answer %d: %+v, %v, its anchor names %q", skip, c, err, anchorIn(w, 1))
			}
		})
	}
}

// Credentials for queues alone are enough to remove an account in which no table may be looked
// into.
func TestAnAccountWhoseTableRefusesIsRemovedAndAdded(t *testing.T) {
	madeOfTwo(t, func(t *testing.T, w *testworld.World, _ func() error) {
		drained(w, "accountb")
		w.Sim.Inject(azsim.Rule{Account: "accountb", Service: "table", Fault: azsim.Answer, Status: 403, Code: "AuthorizationFailure"})
		if c, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err != nil || !c.Changed {
			t.Errorf("%+v, %v", c, err)
		}
		if c, err := accounts.Add(t.Context(), w.Operator(), "accountb"); err != nil || !c.Changed {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// The anchor of a process that makes another workload of the name in the account, or in a third
// one, is not ours.
func TestTheAnchorOfAnotherMakerStays(t *testing.T) {
	madeOfTwo(t, func(t *testing.T, w *testworld.World, _ func() error) {
		drained(w, "accountb")
		maker := &workload.Maker{Account: "elsewhere", Known: func(string) error { return nil }}
		proof.Must(t, maker.Announce(t.Context(), w.Cfg.Accounts[1].Storage.Table(row.TableName), "town"))
		if _, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err != nil || anchorIn(w, 1) != "elsewhere" {
			t.Errorf("%v, its anchor names %q", err, anchorIn(w, 1))
		}
		if _, err := accounts.Add(t.Context(), w.Operator(), "accountb"); err != nil || anchorIn(w, 1) != "elsewhere" {
			t.Errorf("%v, its anchor names %q", err, anchorIn(w, 1))
		}
	})
}

// Somebody adds the account between the change of the map and the removal of the anchor.
func TestARemovalLeavesTheAnchorOfAnAccountThatIsAddedMeanwhile(t *testing.T) {
	madeOfTwo(t, func(t *testing.T, w *testworld.World, other func() error) {
		drained(w, "accountb")
		slow := w.Sim.Inject(azsim.Rule{Instance: "operator", Account: "accountb", Service: "table", Fault: azsim.DelayBefore, Delay: 5 * time.Second, Skip: 1, First: 1})
		done := make(chan error)
		go func() {
			_, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{})
			done <- err
		}()
		w.Within(10*time.Second, "it is removed but for its anchor", func() bool { return slow.Hits() == 1 })
		proof.Same(t, len(mapNow(w).Shards), 2, "the anchor goes before the map changes", mapNow(w).Shards)
		cfg := w.Operator()
		cfg.Instance = "second"
		proof.Must(t, proof.ErrOf(accounts.Add(context.WithoutCancel(t.Context()), cfg, "accountb")))
		proof.Must(t, <-done)
		proof.Says(t, other(), "of account accounta", "it is added, and")
	})
}

// lost removes an account as one that is gone for good.
func lost(w *testworld.World, account string) (accounts.Change, error) {
	return accounts.Remove(w.T.Context(), w.Operator(), account, accounts.RemoveOptions{Lost: true})
}

// What was in quarantine in an account that is gone keeps no run from being closed, and is named.
func TestWhatWasInQuarantineInALostAccountIsNamed(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		run := testworld.Distributed(w, distributor.New, 200)
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
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Within(5*time.Minute, "the run is closed", func() bool { return w.RunRow(run.ID).State == workload.RunClosed })
		lay := w.RunRow(run.ID).Rest
		w.Sim.Blackout("accountb", true)
		if _, err := accounts.Drain(t.Context(), w.Operator(), "accountb"); err != nil || lay == 0 {
			t.Fatalf("%d in quarantine, %v", lay, err)
		}
		q, err := quarantine.Open(t.Context(), w.Operator())
		proof.Must(t, err)
		listed := func() error {
			return q.List(t.Context(), quarantine.Filter{}, func(*quarantine.Message) bool { return true })
		}
		if listed() == nil {
			t.Error("an account of the workload is passed over")
		}
		time.Sleep(accounts.LostAfter)
		c, err := lost(w, "accountb")
		if err != nil || len(c.Lost.Runs) == 0 {
			t.Fatalf("%+v, %v", c, err)
		}
		i := slices.IndexFunc(c.Lost.Runs, func(r accounts.LostRun) bool { return r.Run == run.ID })
		if i < 0 || c.Lost.Runs[i].Quarantined != lay || *c.Lost.Runs[i].Unsettled != 0 || c.Lost.Runs[i].Kept != "it is closed" {
			t.Errorf("%d were in quarantine: %+v", lay, c.Lost.Runs)
		}
		q, err = quarantine.Open(t.Context(), w.Operator())
		proof.Must(t, err)
		proof.Must(t, listed())
		p.End()
	})
}

// A removal as gone is refused while a queue of the account can be counted, whatever else fails.
func TestAnAccountThatAnswersForAQueueIsNotGone(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, cfg := t.Context(), w.Operator()
		testworld.Refused(t, proof.ErrOf(lost(w, "accountb")), "it is active; drain it first")
		testworld.Refused(t, proof.ErrOf(lost(w, "accounta")), "it is the control account")
		proof.Must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountb")))
		time.Sleep(accounts.LostAfter)
		testworld.Refused(t, proof.ErrOf(lost(w, "accountb")), "it is not gone: it answers for its queue town-")
		dark := w.Sim.Inject(azsim.Rule{Account: "accountb", Object: "town-00", Fault: azsim.FailBefore})
		testworld.Refused(t, proof.ErrOf(lost(w, "accountb")), "it answers for its queue town-")
		dark.Remove()
		// Two answers that are lost make no account gone, and a command that is given up neither.
		w.Sim.Inject(azsim.Rule{Account: "accountb", Fault: azsim.FailBefore, First: 6})
		testworld.Refused(t, proof.ErrOf(lost(w, "accountb")), "it answers for its queue town-")
		w.Sim.Hang("accountb", true)
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if c, err := accounts.Remove(short, cfg, "accountb", accounts.RemoveOptions{Lost: true}); err == nil || c.Changed {
			t.Errorf("%+v, %v", c, err)
		}
		proof.Same(t, states(w), "a active 2, b draining 2, c unused 2")
		began := time.Now()
		if c, err := lost(w, "accountb"); err != nil || !c.Changed || time.Since(began) > time.Minute {
			t.Errorf("%+v, %v after %v", c, err, time.Since(began))
		}
	})
}

// What waits out the time does so. Without a record of what is done the account's last count is said
// to be lost, which is all that was in it.
func TestARemovalOfALostAccountWaitsForTheTime(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		ctx, cfg := t.Context(), w.Operator()
		testworld.Distributed(w, distributor.New, 400)
		sampler := w.Config("p", 2)
		sampler.Sample = 15 * time.Second
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
		one, err := processor.New(sampler, h, processor.Options{Concurrency: 4})
		proof.Must(t, err)
		p := testworld.Start(w.T, one)
		time.Sleep(2 * time.Minute)
		in := 0
		for queue := range 2 {
			_, all := w.Sim.Depth("accountb", fmt.Sprintf("work-%02d", queue))
			in += all
		}
		w.Sim.Blackout("accountb", true)
		began := time.Now()
		proof.Must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountb")))
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
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
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
		proof.Must(t, err)
		proof.Must(t, q.List(t.Context(), quarantine.Filter{}, func(*quarantine.Message) bool { return true }))
		p.End()
	})
}
