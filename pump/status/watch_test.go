package status_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
)

// watching looks at queues until the test ends or stop is called.
func watching(w *testworld.World, o status.Options) (watcher *status.Watcher, stop func()) {
	w.T.Helper()
	watcher, err := status.NewWatcher(w.Operator(), o)
	proof.Must(w.T, err)
	ctx, cancel := context.WithCancel(w.T.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watcher.Look(ctx)
	}()
	return watcher, func() { cancel(); <-done }
}

func TestAWatcherShowsTheRowsAtOnceAndThenWhatTheStatusShows(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		for range 40 {
			w.PutText("accounta", "town-00", []byte("m"))
		}
		watcher, stop := watching(w, status.Options{})
		defer stop()
		first, err := watcher.Rows(t.Context())
		if err != nil || first.Segments != 128 || len(first.Accounts) != 3 || len(first.Owners) != 128 {
			t.Fatalf("%v: %+v", err, first)
		}
		time.Sleep(3 * time.Second)
		got, err := watcher.Rows(t.Context())
		proof.Must(t, err)
		same := cmp.Options{
			cmpopts.IgnoreUnexported(status.Queue{}),
			cmpopts.IgnoreFields(status.Status{}, "Time", "Requests"),
			cmpopts.EquateApprox(0, 5), // ages
		}
		proof.Same(t, cmp.Diff(w.Status(status.Options{}), got, same), "")
	})
}

func TestAWatcherKeepsToItsRate(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		watcher, stop := watching(w, status.Options{})
		before, began := w.Sim.Stats().Count("", ""), time.Now()
		for time.Since(began) < time.Minute {
			proof.Must(t, proof.ErrOf(watcher.Rows(t.Context())))
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
		proof.Same(t, w.Sim.Stats().Count("", ""), quiet, "requests while none looks")
	})
}

func TestAWatcherReadsRowsBesideManyQueues(t *testing.T) {
	testworld.In(t, testworld.Plain, 24, 4, nil, func(t *testing.T, w *testworld.World) {
		for _, account := range w.Sim.Accounts() {
			for _, queue := range []string{"work-01", "work-02", "work-03"} {
				w.PutText(account, queue, []byte("m"))
			}
		}
		watcher, stop := watching(w, status.Options{})
		defer stop()
		began, read := time.Now(), 0
		for time.Since(began) < time.Minute {
			proof.Must(t, proof.ErrOf(watcher.Rows(t.Context())))
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
		proof.Same(t, looked, 24*4, "queues that were looked at") // some 120 requests: within 8 s
	})
}

func TestAWatcherShowsADarkAccountAndGoesOnWithTheOthers(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		watcher, stop := watching(w, status.Options{})
		defer stop()
		look := func() *status.Status {
			t.Helper()
			s, err := watcher.Rows(t.Context())
			proof.Must(t, err)
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
	testworld.In(t, workload.Spec{Delivery: string(pump.Once)}, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Sim.SetClockOffset(10 * time.Minute)
		p := sampling(w, "p", &testworld.Seen{}, nil)
		defer p.End()
		d, err := distributor.New(w.Config("d", 2), &testworld.ListSource{Print: "a", N: 8, Key: func(int) string { return "one" }}, distributor.Options{})
		proof.Must(t, err)
		proof.Must(t, proof.ErrOf(d.Run(t.Context())))
		proof.Must(t, proof.ErrOf(gates.Open(t.Context(), w.Operator(), "morning", "me")))
		claims := coordination.NewClaims(w.Table(), w.Cfg.Workload, time.Hour, "p")
		if _, _, _, err := claims.Claim(t.Context(), []byte("Oslo"), coordination.TaskRef{Foreign: "o/1"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		watcher, err := status.NewWatcher(w.Operator(), status.Options{})
		proof.Must(t, err)
		look := func() *status.Status {
			t.Helper()
			s, err := watcher.Rows(t.Context())
			proof.Must(t, err)
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
			proof.Same(t, cmp.Diff(known, s, same), "", "what cannot be read now")
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

// endOf is what status says of the end of a run, and what `runs show` says is the same.
func endOf(w *testworld.World, run pump.RunID) (*runs.Ends, runs.RunEnd) {
	w.T.Helper()
	s := w.Status(status.Options{})
	info, err := runs.Show(w.T.Context(), w.Operator(), run.String())
	proof.Must(w.T, err)
	for _, e := range s.Ends.Runs {
		if e.ID == run.String() {
			if cut, _, _ := strings.Cut(info.WaitsFor, ":"); cut == "" || !strings.HasPrefix(e.Text, cut) {
				w.T.Errorf("the status says %q, and `runs show` %q", e.Text, info.WaitsFor)
			}
			return &s.Ends, e
		}
	}
	proof.Same(w.T, info.WaitsFor, "", "the status says nothing, and `runs show`")
	return &s.Ends, runs.RunEnd{}
}

func TestTheStatusSaysWhichQueueHoldsBackTheEndOfARun(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		account, queue := w.Home(7)
		dark := w.Fault(azsim.Rule{Account: account, Object: queue, Fault: azsim.Answer}, "GetMessages")
		run := w.Lonely(1, 7)
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		if ends, _ := endOf(w, run); ends.Waiting != 0 || len(ends.Runs) != 0 || ends.HeldBackBy != "" {
			t.Errorf("while it is open: %+v", ends)
		}
		time.Sleep(3 * time.Hour)
		ends, end := endOf(w, run)
		by := "queue " + account + "/" + queue + ", which p reads"
		if ends.Waiting != 1 || ends.HeldBackBy != by || end.State != "abandoned" || end.WaitsFor != "reading" {
			t.Errorf("while its queue is dark: %+v", ends)
		}
		if !strings.Contains(end.Text, "beyond the last sign of it") || !strings.Contains(end.Text, by) {
			t.Errorf("while its queue is dark: %s", end.Text)
		}
		proof.Same(t, p.Of.State().RunsUnfinished, 1,
			"the processor that ends runs says that … wait for their ends")
		dark.Remove()
		w.Within(time.Minute, "its task is handled", func() bool { return h.Tasks() == 1 })
		handled := time.Now()
		time.Sleep(30 * time.Minute)
		ends, end = endOf(w, run)
		if ends.Waiting != 1 || ends.HeldBackBy != "" || ends.BehindSeconds != nil || end.WaitsFor != "quiet" {
			t.Errorf("half an hour after its task was handled: %+v", ends)
		}
		if d := end.LastSign.Sub(handled); d < -time.Minute || d > 10*time.Minute {
			t.Errorf("the last sign of it is %v after its task was handled", d)
		}
		w.Within(3*time.Hour, "it has ended", func() bool { return w.RunRow(run).Over })
		if late := time.Since(end.NotBefore); late < 0 || late > time.Hour+10*time.Minute {
			t.Errorf("it ended %v after the earliest time that was said", late)
		}
		if ends, _ := endOf(w, run); ends.Waiting != 0 || len(ends.Runs) != 0 {
			t.Errorf("when it is over: %+v", ends)
		}
		time.Sleep(time.Minute)
		proof.Same(t, p.Of.State().RunsUnfinished, 0, "when it is over the processor says that … wait")
		p.End()
	})
}

func TestTheStatusSaysThatNoProcessorReadsForTheEndOfARun(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run := w.Lonely(1, 7)
		c := w.Closer("c")
		c.HorizonBy(func(context.Context) (*cluster.View, error) { return w.View(), nil })
		w.ClosesFor(c, 3*time.Hour)
		ends, end := endOf(w, run)
		const by = "segment 0, which no processor holds"
		if ends.Waiting != 1 || ends.HeldBackBy != by || ends.BehindSeconds != nil || end.WaitsFor != "reading" || !strings.HasSuffix(end.Text, by) {
			t.Errorf("%+v", ends)
		}
		// A processor that was killed reads nothing any more.
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		time.Sleep(5 * time.Minute)
		if ends, end = endOf(w, run); ends.HeldBackBy != "" || end.WaitsFor != "quiet" {
			t.Errorf("with a processor: %+v", ends)
		}
		kill := w.Fault(azsim.Rule{Instance: "p", Fault: azsim.FailBefore})
		time.Sleep(5 * time.Minute)
		if ends, end = endOf(w, run); ends.HeldBackBy != by || end.WaitsFor != "reading" {
			t.Errorf("with a dead processor: %+v", ends)
		}
		kill.Remove()
		p.End()
	})
}

// The longest waiting come first, and no more than a screen has room for.
func TestTheStatusShowsAFewOfManyRunsThatWaitForTheirEnds(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var all []pump.RunID
		for i := range byte(7) {
			run := pump.RunID{9 - i, 15: 1}
			all = append(all, run)
			proof.Must(t, w.AllRuns().Create(t.Context(), workload.Run{ID: run, Mode: "client"}))
			proof.Must(t, w.AllRuns().Break(t.Context(), run, "so"))
			time.Sleep(time.Second)
		}
		proof.Must(t, proof.ErrOf(runs.End(t.Context(), w.Operator(), all[0].String(), false, "enough")))
		// A tally of a run is a sign of it, and a hidden message is one later.
		noted := time.Now()
		proof.Must(t, workload.NoteTallies(t.Context(), w.Table(), "work", "p", workload.RunTally{Run: all[1], Tally: workload.Tally{Met: 1, Hides: time.Hour}}))
		ends := w.Status(status.Options{}).Ends
		if ends.Waiting != 7 || len(ends.Runs) != 5 {
			t.Fatalf("%d wait, %d are shown", ends.Waiting, len(ends.Runs))
		}
		for i, e := range ends.Runs {
			if e.ID != all[i+1].String() || e.State != "broken" {
				t.Errorf("%d is %+v", i, e)
			}
		}
		if d := ends.Runs[0].LastSign.Sub(noted); d < time.Hour || d > time.Hour+time.Second {
			t.Errorf("the last sign of a run with something hidden is %v away", d)
		}
	})
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		proof.Must(t, w.AllRuns().Break(t.Context(), w.Run, "so"))
		if ends, _ := endOf(w, w.Run); ends.Waiting != 0 || len(ends.Runs) != 0 || ends.Runs == nil {
			t.Errorf("at least once: %+v", ends)
		}
	})
}

// exactOf is what the status says exactly of a run.
func exactOf(t *testing.T, s *status.Status, run pump.RunID) *pump.RunProgress {
	t.Helper()
	for _, r := range s.Runs {
		if r.ID == run.String() {
			return r.Exact
		}
	}
	t.Fatalf("run %s is not shown", run)
	return nil
}

func TestTheStatusShowsExactlyHowFarRunsAreInModeOnce(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		half, closed := w.SealedRun(10, 10), w.SealedRun(3)
		s.Record(w.Run, testworld.Below([]uint64{4}), nil) // open
		s.Record(half.ID, testworld.Below([]uint64{9, 5}), map[uint32]codec.NSet{1: codec.MakeNSet(7)})
		s.Record(closed.ID, testworld.Below([]uint64{3}), nil)
		testworld.MustPass(t, w.Closer("c"))
		proof.Must(t, s.Ledger.Prune(t.Context(), []pump.RunID{closed.ID}))
		status, err := status.Read(t.Context(), w.Config("look", 2), status.Options{})
		if err != nil || len(status.Problems) > 0 {
			t.Fatalf("%v, %q", err, status.Problems)
		}
		if p := exactOf(t, status, half.ID); *p.Total != 20 || p.Done != 14 || p.Quarantined != 1 || *p.Remaining != 5 || *p.Percent != 75 {
			t.Errorf("a run half done: %+v", p)
		}
		if p := exactOf(t, status, closed.ID); *p.Total != 3 || p.Done != 3 || *p.Remaining != 0 || *p.Percent != 100 {
			t.Errorf("a run that is closed and forgotten: %+v", p)
		}
		if p := exactOf(t, status, w.Run); p.Total != nil || p.Done != 4 || p.Remaining != nil || p.Percent != nil {
			t.Errorf("an open run: %+v", p)
		}
	})
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		proof.Same(t, exactOf(t, w.Status(status.Options{}), w.Run), nil, "at-least-once")
	})
}

// A row that is damaged hides what is done of its segment, so no run is known exactly.
func TestADamagedLedgerIsNamedAndNothingExactIsShown(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		s.Record(w.Run, testworld.Below([]uint64{4, 4}), nil)
		w.DamageHead("head.0001")
		status := w.Status(status.Options{})
		proof.Same(t, exactOf(t, status, w.Run), nil)
		if len(status.Problems) != 1 || !strings.Contains(status.Problems[0], "head.0001") {
			t.Errorf("problems %q", status.Problems)
		}
	})
}

// sampling starts a processor that samples the queues.
func sampling(w *testworld.World, instance string, h pump.Handler, change func(*pump.Config)) *testworld.Started[*processor.Processor, processor.Summary] {
	w.T.Helper()
	cfg := w.Config(instance, w.Cfg.Accounts[0].Queues)
	cfg.Sample = 15 * time.Second
	if change != nil {
		change(&cfg)
	}
	p, err := processor.New(cfg, h, processor.Options{})
	proof.Must(w.T, err)
	return testworld.Start(w.T, p)
}
