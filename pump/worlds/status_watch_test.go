package worlds

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/queuepump/queuepump/pump/status"
)

// watching looks at queues until the test ends or stop is called.
func (w *world) watching(o status.Options) (watcher *status.Watcher, stop func()) {
	w.T.Helper()
	watcher, err := status.NewWatcher(w.Operator(), o)
	if err != nil {
		w.T.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
			if _, err := watcher.Rows(t.Context()); err != nil {
				t.Fatal(err)
			}
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
			if _, err := watcher.Rows(t.Context()); err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
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
