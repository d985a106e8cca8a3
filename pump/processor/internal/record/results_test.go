package record_test

import (
	"context"
	"encoding/json"
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
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/storage"
)

var kept = processor.Options{Results: true}

// answers gives each task's identity and the process as its result.
func (r *ran) answers(instance string) pump.Handler {
	return pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		if err := testworld.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
		r.note(instance, t)
		if t.N%2 == 1 {
			t = new(*t) // a middleware may have given a copy
		}
		t.SetResult(ctx, []byte(instance))
		return nil
	})
}

// resultsOf reads all results of a run, by task.
func resultsOf(w *testworld.World, run pump.RunID) (of map[string]string, read runs.ResultsRead) {
	w.T.Helper()
	of = map[string]string{}
	read, err := runs.Results(w.T.Context(), w.Cfg, run, runs.ResultsOptions{}, func(line []byte) error {
		var l struct {
			Run     pump.RunID
			Segment uint32
			N       uint64
			Result  string
		}
		if err := json.Unmarshal(line, &l); err != nil || l.Result == "" {
			return fmt.Errorf("%s: %w", line, err)
		}
		of[testworld.Identity(&pump.Task{Run: l.Run, Segment: l.Segment, N: l.N})] = l.Result
		return nil
	})
	proof.Must(w.T, err)
	return of, read
}

// expectResults wants one result of each task, and no repeat.
func expectResults(w *testworld.World, run pump.RunID, tasks int) {
	w.T.Helper()
	of, read := resultsOf(w, run)
	if len(of) != tasks || read.Results != uint64(tasks) || read.Repeats != 0 {
		w.T.Errorf("%d of %d tasks have results: %+v", len(of), tasks, read)
	}
}

func objects(w *testworld.World) (n int) {
	for _, name := range w.Sim.Accounts() {
		n += len(w.Sim.Blobs(name, "work-results"))
	}
	return n
}

// Of a run that is done each result is there once: from the ledger, and from the index when the run
// is closed and forgotten.
func TestEachResultIsKeptOnce(t *testing.T) {
	testworld.In(t, testworld.Once, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
		q := testworld.Begun(w, processor.New, "q", r.answers("q"), kept)
		w.Settled(2)
		run := testworld.Distributed(w, distributor.New, 5000)
		w.Within(3*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		expectResults(w, run.ID, 5000)
		w.Within(5*time.Minute, "it is closed", func() bool {
			return w.RunRow(run.ID).State == workload.RunClosed
		})
		time.Sleep(2 * time.Minute) // the ledger forgets it
		for segment, b := range w.Book().Records {
			if len(b.Runs()) > 0 {
				t.Errorf("the ledger of segment %d keeps %v", segment, b.Runs())
			}
		}
		expectResults(w, run.ID, 5000)
		a, b := p.End(), q.End()
		if puts := a.Objects + b.Objects; puts > 20 || int(puts) != objects(w) {
			t.Errorf("%d objects, and %d are there", puts, objects(w))
		}
	})
}

// The process is gone between each two steps: put, commit, delete. Each result is there once.
func TestWindowsOfResultsInModeOnce(t *testing.T) {
	for _, c := range []struct {
		name, operation string
		fault           azsim.FaultKind
	}{
		{"before the put", "PutBlob", azsim.FailBefore},
		{"after the put", "PutBlob", azsim.AnswerLost},
		{"before the commit", "Batch", azsim.FailBefore},
		{"after the commit", "Batch", azsim.AnswerLost},
		{"before the delete", "DeleteMessage", azsim.FailBefore},
	} {
		t.Run(c.name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				var r ran
				p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
				w.Settled(1)
				time.Sleep(2 * time.Second)
				tasks := w.PutHome([]uint32{1, 2}, 3)
				w.Within(time.Minute, "some are kept", func() bool { return w.Left() == 0 })
				cut := w.Fault(azsim.Rule{Fault: c.fault}, c.operation)
				tasks += w.PutHome([]uint32{1, 2, 3}, 5)
				w.Within(time.Minute, "the effects are there", func() bool {
					n, _, _ := r.counts()
					return n == tasks && cut.Hits() > 0
				})
				w.Crash("p")
				q := testworld.Begun(w, processor.New, "q", r.answers("q"), kept)
				w.Within(3*time.Minute, "the rest is done", func() bool { return w.Left() == 0 })
				w.ExpectBook(tasks, 0)
				expectResults(w, w.Run, tasks)
				q.End()
				p.Stop()
				<-p.Done
			})
		})
	}
}

// In mode at-least-once a row leads to what was put before the messages go.
func TestResultsInModeAtLeastOnce(t *testing.T) {
	for _, spec := range []workload.Spec{testworld.Plain, testworld.Shared} {
		testworld.In(t, spec, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			var r ran
			p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
			run := testworld.Distributed(w, distributor.New, 3000)
			w.Within(3*time.Minute, "some are done", func() bool { n, _, _ := r.counts(); return n > 1000 })
			w.Crash("p")
			q := testworld.Begun(w, processor.New, "q", r.answers("q"), kept)
			w.Within(5*time.Minute, "all is done", func() bool { return w.Left() == 0 })
			q.End()
			of, read := resultsOf(w, run.ID)
			_, twice, _ := r.counts()
			if len(of) != 3000 || read.Repeats > uint64(twice) || read.Results != 3000+read.Repeats {
				t.Errorf("%d tasks have results: %+v; %d were done twice", len(of), read, twice)
			}
			p.Stop()
			<-p.Done
		})
	}
}

// An account that refuses, or hangs, is gone round. One object that is lost is named, and the others
// are read.
func TestResultsGoRoundAnAccount(t *testing.T) {
	for _, fault := range []azsim.Rule{
		{Fault: azsim.Answer, Status: 403, Code: "AuthorizationFailure"}, {Fault: azsim.HangBefore},
	} {
		testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			fault.Account, fault.Service = "accounta", "blob"
			w.Sim.Inject(fault)
			var r ran
			p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
			q := testworld.Begun(w, processor.New, "q", r.answers("q"), kept)
			w.Settled(2)
			run := testworld.Distributed(w, distributor.New, 2000)
			w.Within(3*time.Minute, "all is done", func() bool { return w.Left() == 0 })
			expectResults(w, run.ID, 2000)
			if p.End(); len(w.Sim.Blobs("accounta", "work-results")) > 0 {
				t.Error("objects are in the account that refuses")
			}
			q.End()
		})
	}
}

// An object that is lost is named; the other segments' results are read.
func TestAnObjectThatIsMissingIsNamed(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
		w.Settled(1)
		time.Sleep(2 * time.Second)
		w.PutHome([]uint32{1}, 2)
		time.Sleep(time.Minute)
		lost := w.Sim.Blobs("accounta", "work-results")[0]
		tasks := w.PutHome([]uint32{2}, 3)
		time.Sleep(time.Minute)
		at := queues.Open(&w.Cfg).Account("accounta").Store.Container("work-results")
		proof.Must(t, at.Delete(t.Context(), lost))
		read, err := runs.Results(t.Context(), w.Cfg, w.Run, runs.ResultsOptions{},
			func([]byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), lost) || read.Results != uint64(tasks) {
			t.Errorf("%+v, %v; want %d results, and %s named", read, err, tasks, lost)
		}
		p.End()
	})
}

// An object under the name of another one, as after a wrong restore, is named too.
func TestAnObjectUnderAnothersNameIsNamed(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
		w.Settled(1)
		for segment := range uint32(2) {
			w.PutHome([]uint32{segment}, 2)
			time.Sleep(time.Minute)
		}
		at, names := queues.Open(&w.Cfg).Account("accounta").Store.Container("work-results"), w.Sim.Blobs("accounta", "work-results")
		other, err := at.Get(t.Context(), names[0], 0, 1<<20)
		proof.Must(t, err)
		proof.Must(t, at.Put(t.Context(), names[1], other.Body, nil))
		_, err = runs.Results(t.Context(), w.Cfg, w.Run, runs.ResultsOptions{}, func([]byte) error { return nil })
		proof.Says(t, err, names[1], "the error")
		p.End()
	})
}

// A reader that is interrupted goes on at its place; a place of another run is refused.
func TestAReaderGoesOnAtItsPlace(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
		w.Settled(1)
		tasks, lines := 0, map[string]int{}
		for range 3 {
			tasks += w.PutHome([]uint32{1, 2}, 2)
			time.Sleep(time.Minute)
		}
		read := func(o runs.ResultsOptions) (runs.ResultsRead, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.Progress = func(r runs.ResultsRead) {
				if r.Results > 0 {
					cancel()
				}
			}
			return runs.Results(ctx, w.Cfg, w.Run, o, func(line []byte) error { lines[string(line)]++; return nil })
		}
		for o := (runs.ResultsOptions{}); ; {
			got, err := read(o)
			if o.From = got.Place; o.From == "" {
				break
			}
			proof.Is(t, err, context.Canceled, "an interrupted reader")
		}
		for line, n := range lines {
			proof.Same(t, n, 1, line)
		}
		proof.Same(t, len(lines), tasks, "results")
		_, err := runs.Results(t.Context(), w.Cfg, w.Run, runs.ResultsOptions{From: "accounta/0000000000000001/1"}, func([]byte) error { return nil })
		proof.Says(t, err, "no object of the run", "the error")
		p.End()
	})
}

// The results of a process that lost its segments between put and commit are nobody's: the next owner
// does the tasks, and has theirs.
func TestResultsOfAFencedProcessAreNotRead(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
		w.Settled(1)
		time.Sleep(2 * time.Second)
		tasks := w.PutHome([]uint32{1, 2}, 2)
		w.Within(time.Minute, "the first are kept", func() bool { return w.Left() == 0 })
		dark := w.Fault(azsim.Rule{Fault: azsim.HangBefore, Service: "table"})
		tasks += w.PutHome([]uint32{1, 2}, 3)
		before := objects(w)
		w.Within(time.Minute, "they are put", func() bool { return objects(w) > before })
		q := testworld.Begun(w, processor.New, "q", r.answers("q"), kept)
		time.Sleep(15 * time.Minute) // for so long p keeps them hidden
		w.Within(5*time.Minute, "q does them", func() bool { return w.Book().Done == uint64(tasks) })
		dark.Remove()
		time.Sleep(time.Minute)
		expectResults(w, w.Run, tasks)
		of, _ := resultsOf(w, w.Run)
		by := map[string]int{}
		for _, instance := range of {
			by[instance]++
		}
		if by["q"] != tasks-by["p"] || by["p"] != 4 {
			t.Errorf("results by process: %v", by)
		}
		p.End()
		q.End()
	})
}

// As long as the index cannot be written, the ledger forgets nothing.
func TestTheLedgerKeepsResultsUntilTheirIndexIsThere(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
		w.Settled(1)
		cut := w.Fault(azsim.Rule{Fault: azsim.FailBefore, Partition: "work.results"})
		run := testworld.Distributed(w, distributor.New, 200)
		w.Within(5*time.Minute, "it is closed", func() bool {
			return w.RunRow(run.ID).State == workload.RunClosed
		})
		time.Sleep(3 * time.Minute)
		expectResults(w, run.ID, 200)
		if cut.Remove(); cut.Hits() == 0 {
			t.Error("no index was written")
		}
		time.Sleep(3 * time.Minute)
		for _, b := range w.Book().Records {
			if len(b.Runs()) > 0 {
				t.Errorf("the ledger keeps %v", b.Runs())
			}
		}
		expectResults(w, run.ID, 200)
		p.End()
	})
}

// Objects go when the last of their runs does, and no account goes before.
func TestObjectsGoWithTheLastOfTheirRuns(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Retention = 4 * time.Hour
		w.Sim.Inject(azsim.Rule{Fault: azsim.Answer, Status: 403, Account: w.Cfg.Control, Service: "blob", Operations: []string{"PutBlob"}})
		var r ran
		p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
		w.Settled(1)
		first := testworld.Distributed(w, distributor.New, 100)
		time.Sleep(2 * time.Hour)
		early := objects(w)
		testworld.Ran(w, distributor.New, "e", &testworld.ListSource{Print: "b", N: 150}, distributor.Options{})
		second := w.RunRow(w.Newest())
		w.Within(time.Minute, "all is done", func() bool { return w.Left() == 0 })
		time.Sleep(time.Minute)
		late := objects(w) - early
		for range 6 * 60 {
			if objects(w) == late {
				break
			}
			time.Sleep(time.Minute)
		}
		expectResults(w, second.ID, 150)
		_, err := runs.Results(t.Context(), w.Cfg, first.ID, runs.ResultsOptions{}, nil)
		proof.Is(t, err, pump.ErrNoRun, "results of a run that is gone")
		w.DrainAccount("accountb")
		time.Sleep(5 * time.Minute)
		_, err = accounts.Remove(t.Context(), w.Cfg, "accountb", accounts.RemoveOptions{})
		proof.Says(t, err, second.ID.String(), "an account with results is removed")
		time.Sleep(4 * time.Hour)
		if left := objects(w); left != 0 || early == 0 || late == 0 {
			t.Errorf("%d objects, and %d later; %d are left", early, late, left)
		}
		p.End()
	})
}

// A closer that dies in the midst of a sweep, of objects or of rows, leaves the rest to the next one. What
// a kept run needs stays.
func TestASweepThatIsCutShortIsEndedByTheNext(t *testing.T) {
	for _, c := range []struct {
		spec workload.Spec
		cut  azsim.Rule
		left bool // some objects, not all
	}{
		{testworld.Once, azsim.Rule{Fault: azsim.FailBefore, Operations: []string{"DeleteBlob"}, Skip: 2}, true},
		{testworld.Once, azsim.Rule{Fault: azsim.AnswerLost, Operations: []string{"DeleteBlob"}, Skip: 2}, true},
		{testworld.Plain, azsim.Rule{Fault: azsim.FailBefore, Partition: "work.results", Operations: []string{"Batch", "DeleteEntity"}}, false},
	} {
		testworld.In(t, c.spec, 2, 1, nil, func(t *testing.T, w *testworld.World) {
			w.Cfg.Retention = 4 * time.Hour
			var r ran
			p := testworld.Begun(w, processor.New, "p", r.answers("p"), kept)
			runOf := func(print string) (id pump.RunID, objectsMore int) {
				before := objects(w)
				testworld.Ran(w, distributor.New, "d"+print, &testworld.ListSource{Print: print, N: 450, Pace: 50 * time.Millisecond}, distributor.Options{SealAge: time.Second})
				w.Within(time.Minute, "all is done", func() bool { return w.Left() == 0 })
				time.Sleep(time.Minute)
				return w.Newest(), objects(w) - before
			}
			old, early := runOf("a")
			time.Sleep(2 * time.Hour)
			run, late := runOf("b")
			c.cut.Instance = "p"
			cut := w.Sim.Inject(c.cut)
			for cut.Hits() == 0 && time.Since(w.RunRow(run).Ended) < 3*time.Hour+45*time.Minute {
				time.Sleep(5 * time.Second)
			}
			w.Crash("p")
			if n := objects(w) - late; cut.Hits() == 0 || early < 4 || c.left && (n <= 0 || n >= early) || !c.left && n > 0 {
				t.Fatalf("%d of %d objects of run %v are left when the sweep is cut short", n, early, old)
			}
			q := testworld.Begun(w, processor.New, "q", r.answers("q"), kept)
			w.Within(30*time.Minute, "the rest is swept", func() bool { return objects(w) == late })
			time.Sleep(time.Minute)
			found, err := row.MustFind(t.Context(), w.Table(), storage.Query{Partition: results.Partition("work"), From: old.String(), To: old.String() + "~"}, -1)
			if err != nil || len(found) > 0 {
				t.Errorf("rows are left: %v, %v", found, err)
			}
			expectResults(w, run, 450)
			q.End()
			p.Stop()
			<-p.Done
		})
	}
}

// A task may be redriven when its run is closed, and its index written: its result is read too.
func TestTheResultOfARedrivenTaskIsThereAfterTheIndex(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var r ran
		mended := false
		p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
			if task.N == 0 && task.Segment%4 == 0 && !mended {
				return pump.Reject(testworld.ErrFlop)
			}
			return r.answers("p").Handle(ctx, task)
		}), kept)
		w.Settled(1)
		run := testworld.Distributed(w, distributor.New, 200)
		w.Within(5*time.Minute, "it is closed", func() bool { return w.RunRow(run.ID).State == workload.RunClosed })
		time.Sleep(3 * time.Minute) // its index is written
		of, _ := resultsOf(w, run.ID)
		q, err := quarantine.Open(t.Context(), w.Operator())
		proof.Must(t, err)
		mended = true
		proof.Must(t, q.Redrive(t.Context(), quarantine.Filter{}, quarantine.Options{}, func(quarantine.Outcome) bool { return true }))
		time.Sleep(3 * time.Minute)
		if len(of) == 200 {
			t.Error("nothing was in quarantine")
		}
		expectResults(w, run.ID, 200)
		p.End()
	})
}

// late takes half a minute for its first batch, whatever its context says, and gives the results
// then, the last one first.
type late struct{ came bool }

func (*late) Handle(context.Context, *pump.Task) error { return testworld.ErrFlop }

func (l *late) HandleBatch(ctx context.Context, tasks []*pump.Task) []error {
	if !l.came {
		l.came = true
		time.Sleep(30 * time.Second)
	}
	for _, task := range slices.Backward(tasks) {
		task.SetResult(ctx, []byte("late"))
	}
	return nil
}

// A handler that was given up may still say what its tasks have resulted in: it does not matter.
func TestAHandlerThatWasGivenUpMayGiveResults(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutTasks(testworld.SomeSegment, 0, 1, 2)
		p := testworld.Begun(w, processor.New, "p", &late{}, processor.Options{Results: true, Timeout: time.Second})
		w.Within(5*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		time.Sleep(time.Minute)
		if gaveUp, panics := w.Logged("given up has returned"), w.Logged("panicked"); gaveUp != 1 || panics != 0 {
			t.Errorf("%d handlers were given up, %d panicked", gaveUp, panics)
		}
		expectResults(w, w.Run, 3)
		p.End()
	})
}
