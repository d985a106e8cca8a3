package worlds

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// madeOfTwo is a workload "town" of the first two of three accounts, made as a distributor does. It
// gives a function that starts another workload of that name in the second and third account, with
// a configuration that does not list the first.
func madeOfTwo(t *testing.T, test func(t *testing.T, w *world, other func() error)) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Workload = "town"
		of := func(name string, from, to int) *racer {
			r := &racer{w: w, config: w.Config(name, 2)}
			r.config.Workload = "town"
			r.config.Accounts = r.config.Accounts[from:to]
			return r
		}
		first := of("first", 0, 2)
		if first.start(t.Context()); first.err != nil {
			t.Fatal(first.err)
		}
		test(t, w, func() error {
			other := of("other", 1, 3)
			other.start(t.Context())
			return other.err
		})
	})
}

// drained is when accountb may be removed.
func (w *world) drained(name string) {
	w.T.Helper()
	must(w.T, errOf(accounts.Drain(w.T.Context(), w.Operator(), name)))
	time.Sleep(queues.RemoveAfter)
}

// anchorIn is the account that the anchor in an account names; empty without one.
func (w *world) anchorIn(i int) string {
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
	madeOfTwo(t, func(t *testing.T, w *world, other func() error) {
		if err := other(); err == nil || !strings.Contains(err.Error(), "of account accounta") {
			t.Errorf("while it takes part: %v", err)
		}
		w.drained("accountb")
		if c, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err != nil || !c.Changed {
			t.Fatalf("%+v, %v", c, err)
		}
		if name := w.anchorIn(1); name != "" {
			t.Errorf("its anchor still names %s", name)
		}
		if name := w.anchorIn(0); name != "accounta" {
			t.Errorf("the anchor of the control account names %q", name)
		}
		if err := other(); err != nil {
			t.Errorf("when it takes part in nothing: %v", err)
		}
	})
}

// Added, it is a part of the workload again, whatever became of its anchor.
func TestAnAccountThatIsAddedTakesPartAgain(t *testing.T) {
	madeOfTwo(t, func(t *testing.T, w *world, other func() error) {
		add := func() {
			t.Helper()
			c, err := accounts.Add(t.Context(), w.Operator(), "accountb")
			if err != nil || !c.Changed || w.anchorIn(1) != "accounta" {
				t.Errorf("%+v, %v, its anchor names %q", c, err, w.anchorIn(1))
			}
			if err := other(); err == nil || !strings.Contains(err.Error(), "of account accounta") {
				t.Errorf("after it was added: %v", err)
			}
		}
		w.drained("accountb")
		must(t, errOf(accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{})))
		add()
		w.drained("accountb")
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
		madeOfTwo(t, func(t *testing.T, w *world, other func() error) {
			w.drained("accountb")
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
				if c, err = accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err != nil || c.Changed || w.anchorIn(1) != "" {
					t.Errorf("%s: made again: %+v, %v, its anchor names %q", fault, c, err, w.anchorIn(1))
				}
			}
			if err := other(); err != nil {
				t.Error(err)
			}
		})
	}
	// An answer that is lost is asked for again.
	for skip := range 2 {
		madeOfTwo(t, func(t *testing.T, w *world, _ func() error) {
			w.drained("accountb")
			lost := w.Sim.Inject(azsim.Rule{Account: "accountb", Service: "table", Fault: azsim.AnswerLost, Skip: skip, First: 1})
			c, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{})
			if err != nil || !c.Changed || w.anchorIn(1) != "" || lost.Hits() != 1 {
				t.Errorf("answer %d: %+v, %v, its anchor names %q", skip, c, err, w.anchorIn(1))
			}
		})
	}
}

// Credentials for queues alone are enough to remove an account in which no table may be looked
// into.
func TestAnAccountWhoseTableRefusesIsRemovedAndAdded(t *testing.T) {
	madeOfTwo(t, func(t *testing.T, w *world, _ func() error) {
		w.drained("accountb")
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
	madeOfTwo(t, func(t *testing.T, w *world, _ func() error) {
		w.drained("accountb")
		maker := &workload.Maker{Account: "elsewhere", Known: func(string) error { return nil }}
		must(t, maker.Announce(t.Context(), w.Cfg.Accounts[1].Storage.Table(row.TableName), "town"))
		if _, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err != nil || w.anchorIn(1) != "elsewhere" {
			t.Errorf("%v, its anchor names %q", err, w.anchorIn(1))
		}
		if _, err := accounts.Add(t.Context(), w.Operator(), "accountb"); err != nil || w.anchorIn(1) != "elsewhere" {
			t.Errorf("%v, its anchor names %q", err, w.anchorIn(1))
		}
	})
}

// Somebody adds the account between the change of the map and the removal of the anchor.
func TestARemovalLeavesTheAnchorOfAnAccountThatIsAddedMeanwhile(t *testing.T) {
	madeOfTwo(t, func(t *testing.T, w *world, other func() error) {
		w.drained("accountb")
		slow := w.Sim.Inject(azsim.Rule{Instance: "operator", Account: "accountb", Service: "table", Fault: azsim.DelayBefore, Delay: 5 * time.Second, Skip: 1, First: 1})
		done := make(chan error)
		go func() {
			_, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{})
			done <- err
		}()
		w.Within(10*time.Second, "it is removed but for its anchor", func() bool { return slow.Hits() == 1 })
		if len(w.mapNow().Shards) != 2 {
			t.Errorf("the anchor is removed before the map is changed: %v", w.mapNow().Shards)
		}
		cfg := w.Operator()
		cfg.Instance = "second"
		if _, err := accounts.Add(context.WithoutCancel(t.Context()), cfg, "accountb"); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := other(); err == nil || !strings.Contains(err.Error(), "of account accounta") {
			t.Errorf("it is added, and: %v", err)
		}
	})
}
