package queues_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/through"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/storage"
)

// drained is a budget whose burst has been spent.
func drained(target float64) *queues.Budget {
	b := queues.NewBudget(target)
	for b.TrySpend(queues.ClassPut, 1) {
		continue
	}
	return b
}

func TestABudgetLetsItsTargetThroughAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, target := range []float64{1, 20, 2_000, 20_000} {
			b := drained(target)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			n := 0
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range 4 {
				wg.Go(func() {
					for b.Spend(ctx, queues.ClassPut, 1) == nil {
						mu.Lock()
						n++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			cancel()
			if want := 10 * target; math.Abs(float64(n)-want) > max(want/100, 2) {
				t.Errorf("%d in 10 s at %v a second", n, target)
			}
		}
	})
}

func TestP81SettlingGoesBeforeRenewingBeforePuttingBeforeGetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := drained(100)
		var mu sync.Mutex
		var order []queues.Class
		var wg sync.WaitGroup
		for range 5 {
			for _, c := range []queues.Class{queues.ClassGet, queues.ClassPut, queues.ClassRenew, queues.ClassSettle} {
				wg.Go(func() {
					proof.Is(t, b.Spend(t.Context(), c, 1), nil)
					mu.Lock()
					order = append(order, c)
					mu.Unlock()
				})
				synctest.Wait() // all wait, the least important first
			}
		}
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 20 {
			t.Errorf("granted in the order %v", order)
		}
	})
}

func TestANewcomerDoesNotOvertakeWhoWaitsInItsClassOrAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := drained(10)
		waiting := make(chan time.Time, 1)
		go func() {
			_ = b.Spend(t.Context(), queues.ClassPut, 32)
			waiting <- time.Now()
		}()
		time.Sleep(time.Second) // 10 of the 32 have come together
		began := time.Now()
		proof.Must(t, b.Spend(t.Context(), queues.ClassPut, 1))
		if first := <-waiting; time.Since(began) < 2*time.Second || first.After(time.Now()) {
			t.Errorf("a request for 1 came through after %v, before the one for 32 that waited", time.Since(began))
		}
		// The more important one does overtake.
		b.Charge(10)
		go func() { _ = b.Spend(t.Context(), queues.ClassGet, 32) }()
		time.Sleep(time.Second)
		began = time.Now()
		if err := b.Spend(t.Context(), queues.ClassSettle, 1); err != nil || time.Since(began) > 200*time.Millisecond {
			t.Errorf("settling waited %v behind a get (%v)", time.Since(began), err)
		}
		time.Sleep(time.Minute)
	})
}

func TestAThrottleCutsTheRateAndItComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := queues.NewBudget(1000)
		b.Throttled()
		if r := b.Rate(); math.Abs(r-900) > 1 {
			t.Errorf("after one throttle %v, want 900", r)
		}
		for range 100 { // answers to requests that were sent together
			b.Throttled()
		}
		if r := b.Rate(); math.Abs(r-900) > 1 {
			t.Errorf("a burst of throttles is one piece of news: %v, want 900", r)
		}
		time.Sleep(2 * time.Second)
		if r := b.Rate(); math.Abs(r-948) > 1 {
			t.Errorf("after two seconds %v, want 948", r)
		}
		b.Throttled()
		if r := b.Rate(); math.Abs(r-853.2) > 1 {
			t.Errorf("the next cut is from what the rate was then: %v, want 853", r)
		}
		time.Sleep(4 * time.Second)
		if r := b.Rate(); math.Abs(r-965.2) > 1 {
			t.Errorf("after 4 s %v, want 965", r)
		}
		time.Sleep(2 * time.Second)
		proof.Same(t, b.Rate(), 1000, "after 6 s")
		for range 1000 {
			b.Throttled()
			time.Sleep(queues.CutEvery)
		}
		if r := b.Rate(); r < 10 || r > 70 {
			t.Errorf("after a storm %v, want little, and never nothing", r)
		}
	})
}

// A limit that is far below the rate is found within a second, from what the service lets
// through, and not undershot by cut after cut.
func TestThrottlesThatGoOnCutTheRateToWhatIsLetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, left := range []float64{20, 300, 700} {
			b, service := queues.NewBudget(1000), queues.NewBudget(left)
			until := time.Now().Add(4 * time.Second)
			for time.Now().Before(until) {
				proof.Must(t, b.Spend(t.Context(), queues.ClassPut, 1))
				if !service.TrySpend(queues.ClassPut, 1) {
					b.Throttled()
				}
			}
			// It rises by 20 a second until it meets the limit again.
			if r := b.Rate(); r < 0.85*left-10 || r > 1.05*left+60 {
				t.Errorf("where %v a second are left the rate is %v", left, r)
			}
		}
	})
}

func TestAThrottleCutsTheBudgetThatItIsAbout(t *testing.T) {
	busy := func(message string) error {
		return &storage.Error{Code: storage.Throttled, Status: 503, Service: "ServerBusy", Index: -1, Err: errors.New(message)}
	}
	ofQueue := busy("The server is currently unable to receive requests. Please retry your request.")
	ofAccount := busy("Operations per second is over the account limit.")
	type throttle struct {
		queue int
		err   error
		after time.Duration
	}
	for _, c := range []struct {
		name                  string
		throttles             []throttle
		first, second, shared bool // whose budget is cut
	}{
		{"one queue", []throttle{{0, ofQueue, 0}}, true, false, false},
		{"one queue, again and again", []throttle{{0, ofQueue, 0}, {0, ofQueue, time.Second / 3}, {0, ofQueue, time.Second / 3}}, true, false, false},
		{"the account, by the service's word", []throttle{{0, ofAccount, 0}}, false, false, true},
		{"two queues at once", []throttle{{0, ofQueue, 0}, {1, ofQueue, time.Second / 2}}, true, true, true},
		{"two queues, one after the other", []throttle{{0, ofQueue, 0}, {1, ofQueue, 2 * time.Second}}, true, true, false},
		{"no throttle", []throttle{{0, &storage.Error{Code: storage.MaybeDone}, 0}, {1, nil, 0}}, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits, err := setup.Budget(pump.Budget{})
				proof.Must(t, err)
				a := &queues.Account{Name: "a", Budget: queues.NewBudget(limits.Account)}
				var qs [2]*queues.Queue
				for i := range qs {
					qs[i] = &queues.Queue{Account: a, Budget: queues.NewBudget(limits.Queue), Hooks: &pump.Hooks{}}
				}
				for _, th := range c.throttles {
					time.Sleep(th.after)
					if err := qs[th.queue].Send(t.Context(), queues.OpPut, "", func(context.Context) error { return th.err }); !errors.Is(err, th.err) {
						t.Fatal(err)
					}
				}
				for _, b := range []struct {
					name string
					b    *queues.Budget
					cut  bool
				}{{"first queue", qs[0].Budget, c.first}, {"second queue", qs[1].Budget, c.second}, {"account", a.Budget, c.shared}} {
					if rate, target := b.b.At(time.Now()); rate < target != b.cut {
						cut := !b.cut
						t.Errorf("the budget of the %s: cut %v, want %v", b.name, cut, b.cut)
					}
				}
			})
		})
	}
}

func TestWhatIsSpentFollowsTheCutRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := drained(1000)
		b.Throttled()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		n := 0
		for b.Spend(ctx, queues.ClassPut, 1) == nil {
			n++
		}
		// 900/s rising by 20/s each second reaches 1,000/s after 5 s.
		if want := 950*5 + 1000*15; math.Abs(float64(n-want)) > 250 {
			t.Errorf("%d in 20 s, want %d", n, want)
		}
	})
}

func TestAChargeAfterTheFactDelaysTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := drained(100)
		b.Charge(500) // more than the burst
		began := time.Now()
		proof.Must(t, b.Spend(t.Context(), queues.ClassSettle, 1))
		if d := time.Since(began); d < 5*time.Second || d > 5200*time.Millisecond {
			t.Errorf("waited %v for a debt of 5 s", d)
		}
	})
}

func TestGivingUpWhileWaitingSpendsNothingAndHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := drained(10)
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				proof.Is(t, b.Spend(ctx, queues.ClassSettle, 10), testworld.ErrFlop, "the context's cause is")
			})
		}
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		wg.Go(func() {
			proof.Is(t, b.Spend(t.Context(), queues.ClassGet, 1), nil)
			if d := time.Since(began); d > 200*time.Millisecond {
				t.Errorf("waited %v behind those that gave up", d)
			}
		})
		synctest.Wait()
		cancel(testworld.ErrFlop)
		wg.Wait()
	})
}

func TestAContextThatHasEndedPaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := setup.Complete(pump.Config{Workload: "work", Accounts: []pump.Account{{Storage: noStorage{}}}})
		proof.Must(t, err)
		f := queues.Open(&cfg.Config)
		s, err := f.Queue("none", "work-00")
		proof.Must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = s.Do(ctx, queues.ClassPut, 1, queues.OpPut, "", func(context.Context) error {
			t.Error("the request was made")
			return nil
		})
		if !storage.Is(err, storage.Canceled) || storage.Ambiguous(err) {
			t.Errorf("%v: nothing was sent, so nothing is in doubt", err)
		}
		r, _ := f.Requests()
		proof.Same(t, len(r["none"]), 0, "counted", r)
	})
}

// noStorage is an account that is never asked anything.
type noStorage struct{}

func (noStorage) Name() string { return "none" }

func (noStorage) Queue(string) storage.Queue { return nil }

func (noStorage) Container(string) storage.Container { return nil }

func (noStorage) Table(string) storage.Table { return through.Table{} }

func (noStorage) Queues(context.Context, string) ([]string, error) { return nil, nil }

// A get pays for what it may bring, and its answer says seconds later what was not due. The
// limiter has no documented way to take that back; all that was paid is there again.
func TestWhatIsGivenBackIsThereAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := queues.NewBudget(1) // a burst of 8
		atOnce := func(what string, want int) {
			t.Helper()
			n := 0
			for b.TrySpend(queues.ClassPut, 1) {
				n++
			}
			proof.Same(t, n, want, what, "at once")
		}
		if !b.TrySpend(queues.ClassGet, 32) {
			t.Fatal("a get found no room in a full bucket")
		}
		time.Sleep(5 * time.Second) // 8 - 32 + 5
		b.Charge(-31)
		atOnce("31 of 32 given back", 8)
		b.Charge(32)
		b.Charge(-20)
		atOnce("20 of a debt of 32 given back", 0)
		b.Charge(-15)
		atOnce("the rest, and 3 that were paid before", 3)
		b.Charge(-1000)
		time.Sleep(time.Minute)
		atOnce("never more than a burst", 8)
		b.Charge(-1000)
		b.SetTarget(0.5)
		atOnce("nor after a change of the share", 8)
	})
}

// Who gives up a wait leaves the bucket as it was, whatever was found out for it: looking how
// long the wait will be spends nothing.
func TestLookingHowLongAWaitWillBeSpendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := drained(100)
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
			if err := b.Spend(ctx, queues.ClassGet, 5); err == nil {
				t.Fatal("5 of nothing were granted")
			}
			cancel()
		}
		began := time.Now() // 1 ms later, in which a tenth of one has come
		proof.Must(t, b.Spend(t.Context(), queues.ClassPut, 5))
		if d := time.Since(began); d < 45*time.Millisecond || d > 50*time.Millisecond {
			t.Errorf("waited %v for 5 at 100 a second", d)
		}
	})
}

// A request that costs more than the burst is granted when the burst is there, not never, and it is
// owed.
func TestAGetIsPaidAtOnceHoweverLowTheTargetAndLeavesADebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := queues.NewBudget(1)
		began := time.Now()
		waited := func(least time.Duration) {
			t.Helper()
			proof.Same(t, time.Since(began).Round(time.Millisecond), least, "waited … in all")
		}
		spend := func(cost int) {
			t.Helper()
			proof.Must(t, b.Spend(t.Context(), queues.ClassGet, cost))
		}
		spend(storage.MaxGet)
		waited(0)
		spend(1) // 8 were there, 24 are owed
		waited(25 * time.Second)
		spend(storage.MaxGet)
		waited(33 * time.Second)
		b.Charge(-storage.MaxGet) // it brought nothing
		spend(8)
		waited(33 * time.Second)
		spend(1)
		waited(34 * time.Second)
	})
}
