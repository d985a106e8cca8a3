package worlds

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/status"
)

// watching looks at queues until the test ends or stop is called.
func (w *world) watching(o status.Options) (watcher *status.Watcher, stop func()) {
	w.T.Helper()
	watcher, err := status.NewWatcher(w.Operator(), o)
	must(w.T, err)
	ctx, cancel := context.WithCancel(w.T.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watcher.Look(ctx)
	}()
	return watcher, func() { cancel(); <-done }
}

func TestAWatcherShowsTheRowsAtOnceAndThenWhatTheStatusShows(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		for range 40 {
			w.PutText("accounta", "town-00", []byte("m"))
		}
		watcher, stop := w.watching(status.Options{})
		defer stop()
		first, err := watcher.Rows(t.Context())
		if err != nil || first.Segments != 128 || len(first.Accounts) != 3 || len(first.Owners) != 128 {
			t.Fatalf("%v: %+v", err, first)
		}
		time.Sleep(3 * time.Second)
		got, err := watcher.Rows(t.Context())
		must(t, err)
		same := cmp.Options{
			cmpopts.IgnoreUnexported(status.Queue{}),
			cmpopts.IgnoreFields(status.Status{}, "Time", "Requests"),
			cmpopts.EquateApprox(0, 5), // ages
		}
		if d := cmp.Diff(w.status(status.Options{}), got, same); d != "" {
			t.Error(d)
		}
	})
}

func TestAWatcherKeepsToItsRate(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		watcher, stop := w.watching(status.Options{})
		before, began := w.Sim.Stats().Count("", ""), time.Now()
		for time.Since(began) < time.Minute {
			must(t, errOf(watcher.Rows(t.Context())))
		}
		stop()
		// At first it may be a second ahead.
		n := float64(w.Sim.Stats().Count("", "") - before)
		if most := status.WatchRate * (time.Since(began).Seconds() + 2); n > most {
			t.Errorf("%.0f requests in %v", n, time.Since(began))
		}
		if n < status.WatchRate*30 {
			t.Errorf("only %.0f requests: nothing bounds them but the test", n)
		}
		quiet := w.Sim.Stats().Count("", "")
		time.Sleep(time.Minute)
		if now := w.Sim.Stats().Count("", ""); now != quiet {
			t.Errorf("%d requests while none looks", now-quiet)
		}
	})
}

func TestAWatcherReadsRowsBesideManyQueues(t *testing.T) {
	inWorld(t, 24, 4, nil, func(t *testing.T, w *world) {
		for _, account := range w.Sim.Accounts() {
			for _, queue := range []string{"work-01", "work-02", "work-03"} {
				w.PutText(account, queue, []byte("m"))
			}
		}
		watcher, stop := w.watching(status.Options{})
		defer stop()
		began, read := time.Now(), 0
		for time.Since(began) < time.Minute {
			must(t, errOf(watcher.Rows(t.Context())))
			read++
		}
		if read < 20 {
			t.Errorf("rows were read %d times in a minute", read)
		}
		looked := 0
		for _, a := range watcher.Now().Accounts {
			looked += len(a.ByQueue)
			if a.Dark != "" || a.Messages != 3 { // to wait for its turn is no dark account
				t.Errorf("%+v", a)
			}
		}
		if looked != 24*4 { // some 120 requests: within 8 s
			t.Errorf("%d queues were looked at", looked)
		}
	})
}

func TestAWatcherShowsADarkAccountAndGoesOnWithTheOthers(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		watcher, stop := w.watching(status.Options{})
		defer stop()
		look := func() *status.Status {
			t.Helper()
			s, err := watcher.Rows(t.Context())
			must(t, err)
			return s
		}
		look()
		w.Sim.Hang("accountb", true)
		w.PutText("accounta", "town-01", []byte("m"))
		time.Sleep(15 * time.Second)
		s := look()
		if a, b := s.Accounts[0], s.Accounts[1]; a.Dark != "" || a.Messages != 1 || b.Dark == "" || b.ByQueue[0].Dark == "" || b.Poison != nil {
			t.Errorf("%+v\n%+v", a, b)
		}
		w.Sim.Hang("accountb", false)
		time.Sleep(15 * time.Second)
		if b := look().Accounts[1]; b.Dark != "" || b.ByQueue[0].Dark != "" || b.Poison == nil {
			t.Errorf("%+v", b)
		}
		// A dark control account leaves what was known.
		w.Sim.Hang("accounta", true)
		if s, err := watcher.Rows(t.Context()); err == nil || s == nil || s.Segments != 128 {
			t.Errorf("%v: %+v", err, s)
		}
		w.Sim.Hang("accounta", false)
		look()
	})
}

// ofTheView is how many requests a look at the cluster makes.
const ofTheView = 1

// A table that is slow for a viewer empties nothing of what was known. Old parts say that they are.
func TestAWatcherKeepsWhatItCannotReadNow(t *testing.T) {
	inWorldOf(t, workload.Spec{Delivery: string(pump.Once)}, 1, 2, nil, func(t *testing.T, w *world) {
		w.Sim.SetClockOffset(10 * time.Minute)
		p := w.sampling("p", &testworld.Seen{}, nil)
		defer p.End()
		d, err := distributor.New(w.Config("d", 2), &testworld.ListSource{Print: "a", N: 8, Key: func(int) string { return "one" }}, distributor.Options{})
		must(t, err)
		must(t, errOf(d.Run(t.Context())))
		must(t, errOf(gates.Open(t.Context(), w.Operator(), "morning", "me")))
		claims := coordination.NewClaims(w.Table(), w.Cfg.Workload, time.Hour, "p")
		if _, _, _, err := claims.Claim(t.Context(), []byte("Oslo"), coordination.TaskRef{Foreign: "o/1"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		watcher, err := status.NewWatcher(w.Operator(), status.Options{})
		must(t, err)
		look := func() *status.Status {
			t.Helper()
			s, err := watcher.Rows(t.Context())
			must(t, err)
			return s
		}
		known := look()
		if len(known.Runs) != 2 || known.Runs[0].Exact == nil || len(known.Gates) != 1 || len(known.Keys) != 1 || known.Ledger == nil ||
			len(known.Money.Accounts) != 1 || known.LocalClock || known.Distribution.Phase == "unknown" || len(known.NotRead) != 0 {
			t.Fatalf("%+v", known)
		}
		everything := []string{"time", "election", "runs", "ledger", "ends", "gates", "keys", "history"}
		for range 2 { // the second time from what the first one took over
			dark := w.Fault(azsim.Rule{Instance: "operator", Service: "table", Fault: azsim.DelayBefore, Delay: time.Minute, Skip: ofTheView})
			s := look()
			dark.Remove()
			same := cmp.Options{
				cmpopts.IgnoreFields(status.Status{}, "Time", "Requests", "Instances", "Problems", "NotRead", "Accounts"),
				cmpopts.IgnoreFields(status.MoneyRequests{}, "Requests"), // of members, whose rows are read
				cmpopts.EquateApprox(0, 90), // ages
			}
			if diff := cmp.Diff(known, s, same); diff != "" {
				t.Errorf("what cannot be read now:\n%s", diff)
			}
			var names []string
			for _, part := range s.NotRead {
				names = append(names, part.Part)
				if part.AsOf == nil || part.AsOf.Sub(known.Time).Abs() > time.Second {
					t.Errorf("%s is as of %v, and was read at %v", part.Part, part.AsOf, known.Time)
				}
			}
			if !slices.Equal(names, everything) || !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "the runs: ") }) {
				t.Errorf("not read are %v; problems %q", names, s.Problems)
			}
			if now := time.Now().Add(10 * time.Minute); s.Time.Sub(now).Abs() > 2*time.Second {
				t.Errorf("it is %v, and the status is of %v", now, s.Time)
			}
		}
		// Of a table that takes 4 s for each request some is read.
		slow := w.Fault(azsim.Rule{Instance: "operator", Service: "table", Fault: azsim.DelayBefore, Delay: 4 * time.Second})
		if s := look(); len(s.NotRead) == 0 || len(s.NotRead) == len(everything) || len(s.Runs) != 2 || len(s.Gates) != 1 || s.LocalClock {
			t.Errorf("%+v: %+v", s.NotRead, s)
		}
		one, err := status.Read(t.Context(), w.Operator(), status.Options{})
		if err != nil || len(one.NotRead) == 0 || one.NotRead[0].AsOf != nil {
			t.Errorf("who looks once: %+v, %v", one.NotRead, err)
		}
		slow.Remove()
		if s := look(); len(s.NotRead) != 0 || len(s.Problems) != 0 {
			t.Errorf("%+v, problems %q", s.NotRead, s.Problems)
		}
	})
}
