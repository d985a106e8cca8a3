package accounts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// mapNow is the stored map.
func mapNow(w *testworld.World) *shardmap.Map {
	w.T.Helper()
	row, err := workload.Load(w.T.Context(), queues.Open(&w.Cfg).Control, w.Cfg.Workload)
	proof.Must(w.T, err)
	return row.Map
}

// states are the accounts of the stored map with their states and queues.
func states(w *testworld.World) string {
	uses, err := accounts.List(w.T.Context(), w.Operator())
	proof.Must(w.T, err)
	var all []string
	for _, u := range uses {
		all = append(all, fmt.Sprintf("%s %s %d", strings.TrimPrefix(u.Name, "account"), u.State, u.Queues))
	}
	return strings.Join(all, ", ")
}

func TestAnAccountGoesThroughItsStatesAndEachCommandMayBeMadeAgain(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, cfg := t.Context(), w.Operator()
		if got := states(w); got != "a active 2, b active 2, c unused 2" {
			t.Fatal(got)
		}
		add := func(changed bool) {
			t.Helper()
			c, err := accounts.Add(ctx, cfg, "accountc")
			if err != nil || c.Changed != changed || c.State != accounts.Active || changed && c.Moved == 0 {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		add(true)
		add(false)
		proof.Same(t, states(w), "a active 2, b active 2, c active 2")
		loads := mapNow(w).Loads()
		if slices.Max(loads)-slices.Min(loads) > 1 {
			t.Errorf("loads %v", loads)
		}
		for _, q := range []string{"town-00", "town-01", "town-poison"} { // made before the map named them
			w.Count("accountc", q)
		}
		for i := range 2 {
			c, err := accounts.Drain(ctx, cfg, "accountc")
			if err != nil || c.Changed != (i == 0) || c.State != accounts.Draining {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		add(true) // a draining one becomes active again
		proof.Must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountc")))
		testworld.Refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{})), "not been draining for long enough")
		time.Sleep(queues.RemoveAfter)
		for i := range 2 {
			c, err := accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{})
			if err != nil || c.Changed != (i == 0) || c.State != accounts.Unused {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		proof.Same(t, states(w), "a active 2, b active 2, c unused 2")
		testworld.Refused(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountc")), "does not use it")
		add(true)
	})
}

func TestARemovalThatWaitsGoesOnWhenTheAccountIsEmptyAndTellsWhatItWaitsFor(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, cfg := t.Context(), w.Operator()
		proof.Must(t, proof.ErrOf(accounts.Add(ctx, cfg, "accountc")))
		w.PutText("accountc", "town-00", []byte("a"))
		proof.Must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountc")))
		begun := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(90 * time.Second)
			w.Sim.Inject(azsim.Rule{Account: "accounta", Service: "table", Fault: azsim.AnswerLost, Operations: []string{"MergeEntity"}, First: 1})
			proof.Is(t, w.Queue("accountc", "town-00").Clear(ctx), nil)
		})
		var seen []accounts.Progress
		c, err := accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{Wait: true, Progress: func(p accounts.Progress) { seen = append(seen, p) }})
		wg.Wait()
		if took := time.Since(begun); err != nil || !c.Changed || took < 90*time.Second || took > 100*time.Second {
			t.Errorf("%+v, %v after %v", c, err, took)
		}
		first, last := seen[0], seen[len(seen)-1]
		if first.Noticing < 35*time.Second || first.Messages() != 1 || last.Noticing != 0 || last.Messages() != 1 || len(seen) < 30 {
			t.Errorf("%d reports from %+v to %+v", len(seen), first, last)
		}
		// One that is told to stop says so.
		proof.Must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountb")))
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		proof.Is(t, proof.ErrOf(accounts.Remove(short, cfg, "accountb", accounts.RemoveOptions{Wait: true})), context.DeadlineExceeded)
	})
}

func TestTheControlAccountAndTheLastActiveOneAreKept(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, cfg := t.Context(), w.Operator()
		testworld.Refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accounta", accounts.RemoveOptions{Wait: true})), "make a new workload beside this one")
		if _, err := accounts.Drain(ctx, cfg, "accounta"); err != nil { // its queues may rest
			t.Fatal(err)
		}
		testworld.Refused(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountb")), "the only active account")
		proof.Same(t, states(w), "a draining 2, b active 2, c unused 2")
	})
}

func TestANameThatIsNowhereIsAMistakeOfTheConfiguration(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		for name, err := range map[string]error{
			"add":    proof.ErrOf(accounts.Add(t.Context(), w.Operator(), "acount")),
			"drain":  proof.ErrOf(accounts.Drain(t.Context(), w.Operator(), "acount")),
			"remove": proof.ErrOf(accounts.Remove(t.Context(), w.Operator(), "acount", accounts.RemoveOptions{Wait: true})),
		} {
			if e, ok := errors.AsType[*pump.ConfigError](err); !ok || e.Field != "accounts" || !strings.Contains(e.Error(), `"acount"`) {
				t.Errorf("%s: %v", name, err)
			}
		}
		cfg := w.Operator()
		cfg.Workload = "wrong"
		if _, err := accounts.Add(t.Context(), cfg, "accountb"); !errors.Is(err, pump.ErrNoWorkload) || !strings.Contains(err.Error(), "distributor run") {
			t.Error(err)
		}
		// The pinned values are checked before anything is done.
		cfg = w.Config("operator", 3)
		cfg.Workload = w.Cfg.Workload
		if _, err := accounts.Add(t.Context(), cfg, "accountc"); !strings.Contains(fmt.Sprint(err), "set its queues: 2") {
			t.Error(err)
		}
		// A list says so beside what it shows.
		uses, err := accounts.List(t.Context(), cfg)
		if len(uses) != 3 || !strings.Contains(fmt.Sprint(err), "set its queues: 2") {
			t.Errorf("%+v, %v", uses, err)
		}
		proof.Same(t, states(w), "a active 2, b active 2, c unused 2")
	})
}

// TestAnAccountThatALiveMemberDoesNotKnowIsNotAdded is P6.5.
func TestAnAccountThatALiveMemberDoesNotKnowIsNotAdded(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		three := []string{"accounta", "accountb", "accountc"}
		w.Joined("knows", cluster.RoleProcessor, cluster.Report{Accounts: three})
		old := w.Joined("old-1", cluster.RoleProcessor, cluster.Report{Accounts: three[:2]})
		w.Joined("old-2", cluster.RoleDistributor, cluster.Report{Accounts: three[:2]}).Leave(t.Context())
		e := testworld.Refused(t, proof.ErrOf(accounts.Add(t.Context(), w.Operator(), "accountc")), "1 of 2 live processes do not have it in their configuration: old-1;")
		if strings.Contains(e.Problem, "knows") {
			t.Error(e)
		}
		proof.Same(t, states(w), "a active 2, b active 2, c unused 2")
		old.Leave(t.Context())
		if c, err := accounts.Add(t.Context(), w.Operator(), "accountc"); err != nil || !c.Changed {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

func TestMembersAreToldOfANewMap(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		all := []string{"accounta", "accountb", "accountc"}
		w.Joined("p1", cluster.RoleProcessor, cluster.Report{Accounts: all, Admin: "10.0.0.1:80"})
		w.Joined("p2", cluster.RoleProcessor, cluster.Report{Accounts: all, Admin: "10.0.0.2:80"})
		w.Joined("hangs", cluster.RoleProcessor, cluster.Report{Accounts: all, Admin: "10.0.0.3:80"})
		w.Joined("silent", cluster.RoleDistributor, cluster.Report{Accounts: all})
		cfg := w.Operator()
		var mu sync.Mutex
		var told []string
		cfg.Nudge = func(ctx context.Context, n pump.Nudge) error {
			if n.Instance == "hangs" {
				<-ctx.Done()
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			told = append(told, n.Instance+"@"+n.Address)
			if n.Gate != "" || n.Queue != "" || n.Here {
				t.Errorf("nudge %+v", n)
			}
			return nil
		}
		begun := time.Now()
		c, err := accounts.Add(t.Context(), cfg, "accountc")
		slices.Sort(told)
		if err != nil || c.Members != 4 || c.Nudged != 2 || !slices.Equal(told, []string{"p1@10.0.0.1:80", "p2@10.0.0.2:80"}) || time.Since(begun) > 3*time.Second {
			t.Errorf("%+v, %v, told %v after %v", c, err, told, time.Since(begun))
		}
		told = nil
		if c, err := accounts.Add(t.Context(), cfg, "accountc"); err != nil || c.Changed || told != nil {
			t.Errorf("%+v, %v, told %v of nothing", c, err, told)
		}
	})
}

// TestAnAccountIsChangedOnceWhateverAnswersAreLost: every request of the control
// table may be the one whose answer is lost.
func TestAnAccountIsChangedOnceWhateverAnswersAreLost(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.AnswerLost, azsim.FailBefore, azsim.HangAfter} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s %d", fault, n), func(t *testing.T) {
				testworld.InThree(t, func(t *testing.T, w *testworld.World) {
					i := w.Sim.Inject(azsim.Rule{Instance: "operator", Service: "table", Fault: fault, Skip: n - 1, First: 1})
					c, err := accounts.Add(t.Context(), w.Operator(), "accountc")
					if err != nil || !c.Changed || c.MapVersion != 2 || i.Hits() == 0 {
						t.Errorf("%+v, %v, %d faults", c, err, i.Hits())
					}
					if m := mapNow(w); m.Version != 2 || len(m.Shards) != 6 {
						t.Errorf("version %d with %d shards", m.Version, len(m.Shards))
					}
				})
			})
		}
	}
}

// TestARemovalOfAnAccountThatIsInUseAgainIsRefused although all was well when it was judged.
func TestARemovalOfAnAccountThatIsInUseAgainIsRefused(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, cfg := t.Context(), w.Operator()
		proof.Must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountb")))
		time.Sleep(queues.RemoveAfter)
		w.Sim.Inject(azsim.Rule{Instance: "operator", Account: "accountb", Operations: []string{"GetQueueMetadata"}, Fault: azsim.DelayAfter, Delay: 2 * time.Second, First: 1})
		var removed error
		var done sync.WaitGroup
		done.Go(func() { removed = proof.ErrOf(accounts.Remove(ctx, cfg, "accountb", accounts.RemoveOptions{})) })
		time.Sleep(time.Second) // the map was read, and what is left is being counted
		proof.Must(t, proof.ErrOf(accounts.Add(ctx, w.Operator(), "accountb")))
		done.Wait()
		testworld.Refused(t, removed, "changed by somebody else")
		synctest.Wait()
		proof.Same(t, states(w), "a active 2, b active 2, c unused 2")
	})
}

// betweenCounts is an account whose poison queue is counted before all others, if anyone counts
// it without waiting for them, and that has something happen right after that.
type betweenCounts struct {
	storage.Account
	poison string
	then   func()
}

type countedQueue struct {
	storage.Queue
	of betweenCounts
}

func (a betweenCounts) Queue(name string) storage.Queue {
	return countedQueue{a.Account.Queue(name), a}
}

func (q countedQueue) Count(ctx context.Context) (int64, error) {
	if q.Name() != q.of.poison {
		time.Sleep(time.Second)
	}
	n, err := q.Queue.Count(ctx)
	if q.Name() == q.of.poison {
		q.of.then()
	}
	return n, err
}

// A7: a message is quarantined while what is left is counted.
func TestAnAccountIsNotRemovedWhenATaskIsQuarantinedWhileItIsCounted(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx := t.Context()
		proof.Must(t, w.Queue("accountb", "town-poison").Create(ctx))
		w.PutText("accountb", "town-01", []byte("a task"))
		proof.Must(t, proof.ErrOf(accounts.Drain(ctx, w.Operator(), "accountb")))
		time.Sleep(queues.RemoveAfter)
		quarantine := sync.OnceFunc(func() {
			w.PutText("accountb", "town-poison", []byte("a task"))
			proof.Is(t, w.Queue("accountb", "town-01").Clear(ctx), nil)
		})
		cfg := w.Operator()
		cfg.Accounts[1].Storage = betweenCounts{cfg.Accounts[1].Storage, "town-poison", quarantine}
		for range 2 {
			if e := testworld.Refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountb", accounts.RemoveOptions{})), "left"); len(e.Left) != 1 {
				t.Errorf("left %v", e.Left)
			}
		}
	})
}
