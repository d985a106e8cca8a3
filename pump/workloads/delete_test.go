package workloads_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

// leftOf lists the workload's rows and queues in all accounts.
func leftOf(w *testworld.World) (left []string) {
	w.T.Helper()
	for _, a := range w.Cfg.Accounts {
		for e, err := range a.Storage.Table(row.TableName).Query(w.T.Context(), storage.Query{}) {
			if err != nil {
				if storage.Is(err, storage.Missing) {
					break
				}
				w.T.Fatal(err)
			}
			if e.Partition == w.Cfg.Workload || strings.HasPrefix(e.Partition, w.Cfg.Workload+".") {
				left = append(left, a.Name+": "+e.Partition+"/"+e.Row)
			}
		}
		queues, err := a.Storage.Queues(w.T.Context(), w.Cfg.Workload+"-")
		proof.Must(w.T, err)
		for _, q := range queues {
			left = append(left, a.Name+": queue "+q)
		}
	}
	return left
}

// used fills the workload with all that there may be of one.
func used(w *testworld.World) {
	w.T.Helper()
	ctx := w.T.Context()
	d := testworld.Made(w, distributor.New, "d", &testworld.ListSource{Print: "list", N: 200}, distributor.Options{Every: time.Hour})
	going, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	_, _ = d.Run(going)
	var n atomic.Int64
	handler := pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
		if n.Add(1)%10 == 0 {
			return pump.Reject(errors.New("no"))
		}
		return nil
	})
	p, err := processor.New(w.Config("p", 2), handler, processor.Options{UntilIdle: 5 * time.Second})
	proof.Must(w.T, err)
	proof.Must(w.T, proof.ErrOf(p.Run(ctx)))
	beside(w)
	proof.Must(w.T, workload.NewRuns(w.Table(), w.Cfg.Workload).End(ctx, w.Run, true, "test"))
}

// beside makes what others than distributors and processors make: a gate, ids, claims.
func beside(w *testworld.World) {
	w.T.Helper()
	ctx := w.T.Context()
	proof.Must(w.T, proof.ErrOf(gates.Open(ctx, w.Operator(), "g", "me")))
	ids, err := coordination.NewIDRange(w.Table(), w.Cfg.Workload, "ids", 10)
	if err == nil {
		_, err = ids.Next(ctx)
	}
	c := coordination.NewClaims(w.Table(), w.Cfg.Workload, time.Minute, "p")
	for i := range 40 {
		if err == nil {
			_, _, _, err = c.Claim(ctx, []byte{byte(i)}, coordination.TaskRef{Run: w.Run, N: uint64(i)})
		}
	}
	proof.Must(w.T, err)
}

// deleted deletes the workload as often as it stops half-way.
func deleted(w *testworld.World, instance string, o workloads.Options) (*workloads.Deletion, error) {
	w.T.Helper()
	c := w.Operator()
	c.Instance = instance
	return workloads.Delete(w.T.Context(), c, o)
}

func TestAfterADeletionNothingIsLeftOfAWorkloadAndItsNameIsFree(t *testing.T) {
	testworld.In(t, testworld.Once, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		used(w)
		before := leftOf(w)
		for _, part := range []string{"work/owner.", "work/workload", "work/clock", "work.runs/", "work.progress/", "work.ledger.", "work.claims.", "work.gates/", "work.ids/", "work.election/", "queue work-00", "queue work-poison"} {
			if !slices.ContainsFunc(before, func(l string) bool { return strings.Contains(l, part) }) {
				t.Errorf("the test made nothing of %s", part)
			}
		}
		dry, err := deleted(w, "o1", workloads.Options{DryRun: true})
		proof.Must(t, err)
		proof.Alike(t, leftOf(w), before, "a dry run changed something: … became")
		if all, quarantined := dry.Messages(); len(dry.Queues) != 9 || quarantined == 0 || all < quarantined || dry.AllRows() != len(before)-9 || dry.Rows["ledger"] == 0 || dry.Rows["claims"] < 40 {
			t.Errorf("%+v, and there are %d", dry, len(before))
		}
		first, err := workloads.Show(t.Context(), w.Operator())
		proof.Must(t, err)
		steps := map[string]int{}
		began := time.Now()
		done, err := deleted(w, "o2", workloads.Options{Force: true, Progress: func(p workloads.Progress) { steps[p.Step]++ }})
		if err != nil || !done.Deleted || steps["noticing"] == 0 || steps["queues"] != 9 || steps["rows"] == 0 {
			t.Errorf("%+v, %v, %v", done, err, steps)
		}
		proof.Alike(t, leftOf(w), nil, "are left")
		if took := time.Since(began); took < queues.RemoveAfter || took > queues.RemoveAfter+20*time.Second {
			t.Errorf("took %v", took)
		}
		proof.Is(t, proof.ErrOf(deleted(w, "o3", workloads.Options{})), pump.ErrNoWorkload)
		time.Sleep(time.Minute) // the names of queues are free again
		d := testworld.Made(w, distributor.New, "again", &testworld.ListSource{Print: "list", N: 10}, distributor.Options{})
		proof.Must(t, proof.ErrOf(d.Run(t.Context())))
		again, err := workloads.Show(t.Context(), w.Operator())
		if err != nil || again.Incarnation == first.Incarnation || again.Runs["sealed"] != 1 || len(again.Runs) != 1 {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// What is made after the deletion was planned goes as well: a processor makes a queue before it has
// noticed. So do causes that stand in rows.
func TestWhatIsMadeWhileAWorkloadIsDeletedGoesToo(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		proof.Must(t, proof.ErrOf(w.Table().Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: storage.Entity{
			Partition: row.CausePartition(w.Cfg.Workload), Row: "accounta.work-00.1",
			Properties: map[string]any{row.FormatProperty: int64(row.Format), "Text": "0-0"},
		}})))
		made := false
		done, err := deleted(w, "o", workloads.Options{Force: true, Progress: func(workloads.Progress) {
			if !made {
				made = true
				proof.Is(t, w.Queue("accounta", "work-poison").Create(t.Context()), nil)
			}
		}})
		if left := leftOf(w); err != nil || !made || !done.Deleted || len(left) > 0 {
			t.Errorf("%+v, %v: %q are left", done, err, left)
		}
	})
}

func TestAWorkloadInUseIsNotDeleted(t *testing.T) {
	refusal := func(t *testing.T, err error, says ...string) {
		t.Helper()
		e, ok := errors.AsType[*workloads.Error](err)
		for _, s := range says {
			if !ok || e.Begun || !strings.Contains(err.Error(), s) {
				t.Errorf("want %q: %v", s, err)
			}
		}
	}
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		refusal(t, proof.ErrOf(deleted(w, "o", workloads.Options{})), w.Run.String(), "runs end")
		p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
		time.Sleep(5 * time.Second)
		refusal(t, proof.ErrOf(deleted(w, "o", workloads.Options{})), "1 processes of it live: p", "--force")
		p.Stop()
		<-p.Done
		proof.Must(t, workload.NewRuns(w.Table(), w.Cfg.Workload).Seal(t.Context(), w.Run, make([]uint64, 64)))
		w.Put("accounta", "work-00", 1, 1)
		refusal(t, proof.ErrOf(deleted(w, "o", workloads.Options{})), w.Run.String())
		proof.Must(t, w.Queue("accounta", "work-00").Drop(t.Context()))
		if d, err := deleted(w, "o", workloads.Options{}); err != nil || !d.Deleted || len(leftOf(w)) > 0 {
			t.Errorf("%+v, %v; left %q", d, err, leftOf(w))
		}
	})
	// A process that was killed keeps no other waiting.
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
		time.Sleep(5 * time.Second)
		w.Crash("p")
		time.Sleep(time.Minute)
		refusal(t, proof.ErrOf(deleted(w, "o", workloads.Options{})), w.Run.String())
		if d, err := deleted(w, "o", workloads.Options{Force: true}); err != nil || !d.Deleted {
			t.Errorf("%+v, %v", d, err)
		}
		p.Stop()
		<-p.Done
	})
}

// A process of a version that does not know the mark goes on, and is in the way.
func TestADeletionStopsWhereProcessesDoNotEnd(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		queues := func() int {
			return len(slices.DeleteFunc(leftOf(w), func(l string) bool { return !strings.Contains(l, "queue ") }))
		}
		old := w.Joined("old", cluster.RoleProcessor, cluster.Report{})
		unmarked := forgetful(w, "old")
		_, err := deleted(w, "o", workloads.Options{Force: true})
		e, ok := errors.AsType[*workloads.Error](err)
		if !ok || !e.Begun || !strings.Contains(err.Error(), "still live: old") || queues() != 6 {
			t.Errorf("%v; %d queues", err, queues())
		}
		unmarked()
		old.Leave(t.Context())
		time.Sleep(time.Minute)
		if d, err := deleted(w, "o", workloads.Options{}); err != nil || !d.Begun || len(leftOf(w)) > 0 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// forgetful keeps a member row beating as a version does that does not know the mark.
func forgetful(w *testworld.World, instance string) (stop func()) {
	w.T.Helper()
	ctx, end := context.WithCancel(w.T.Context())
	done := make(chan struct{})
	row, err := w.Table().Read(ctx, w.Cfg.Workload, "present."+instance)
	proof.Must(w.T, err)
	go func() {
		defer close(done)
		for waits.Wait(ctx, 5*time.Second) {
			row.ETag = ""
			_, _ = w.Table().Write(ctx, storage.Write{Mode: storage.Upsert, Entity: row})
		}
	}()
	return func() { end(); <-done }
}

// Of two workloads over the same queues the one that is deleted leaves the other its queues.
func TestADeletionKeepsTheQueuesOfAnotherWorkloadOfTheName(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		shared := slices.DeleteFunc(setup.Shards(w.Cfg), func(s shardmap.Shard) bool { return s.Account == "accountc" })
		rival(w, 1, shared)
		c := w.Operator()
		d, err := workloads.Delete(t.Context(), c, workloads.Options{Force: true})
		if err != nil || !slices.Equal(d.Kept, []string{"accounta", "accountb"}) || len(d.Queues) != 3 {
			t.Errorf("%+v, %v", d, err)
		}
		if left := leftOf(w); len(left) != 1+2*3 || !w.HasRow(1) || w.HasRow(0) {
			t.Errorf("left: %q", left)
		}
		c.Control = "accountb"
		proof.Must(t, proof.ErrOf(status.Read(t.Context(), c, status.Options{})))
	})
}

func TestALeftoverOfWhoDiedMakingAWorkloadIsRemoved(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Workload = "town"
		maker := &workload.Maker{Account: "elsewhere", Known: func(string) error { return nil }}
		proof.Must(t, maker.Announce(t.Context(), w.Cfg.Accounts[2].Storage.Table(row.TableName), "town"))
		c := w.Operator()
		if err := testworld.Prepared(t.Context(), distributor.New, c); err == nil || !strings.Contains(err.Error(), "of account elsewhere") || w.HasRow(0) {
			t.Fatal(err)
		}
		d, err := workloads.Delete(t.Context(), w.Operator(), workloads.Options{})
		if err != nil || !slices.Contains(d.Leftovers, "accountc") || len(leftOf(w)) > 0 {
			t.Errorf("%+v, %v", d, err)
		}
		c.Instance = "second"
		proof.Must(t, testworld.Prepared(t.Context(), distributor.New, c))
	})
}

// An account that is gone keeps no workload from being deleted: what is in the others goes.
func TestADeletionLeavesOutAnAccountThatIsGoneForGood(t *testing.T) {
	testworld.In(t, testworld.Once, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		used(w)
		_, err := deleted(w, "o1", workloads.Options{Lost: []string{"accountc"}})
		if e, ok := errors.AsType[*workloads.Error](err); !ok || e.Begun || !strings.Contains(e.Problem, "it is not gone: it answers for its queue work-") {
			t.Errorf("of one that is there: %v", err)
		}
		for _, name := range []string{"accounta", "nobody"} {
			proof.Says(t, proof.ErrOf(deleted(w, "o1", workloads.Options{Lost: []string{name}})), "cannot be given up", name)
		}
		w.Sim.Blackout("accountc", true)
		if d, err := deleted(w, "o1", workloads.Options{}); err == nil || d.Begun {
			t.Errorf("an account that does not answer is left out unasked: %+v, %v", d, err)
		}
		proof.Must(t, proof.ErrOf(accounts.Drain(t.Context(), w.Operator(), "accountc")))
		lost := workloads.Options{Lost: []string{"accountc"}, Force: true}
		if d, err := deleted(w, "o1", lost); err == nil || d.Begun || !strings.Contains(err.Error(), "it may answer again for another") {
			t.Errorf("right after the drain: %+v, %v", d, err)
		}
		time.Sleep(accounts.LostAfter)
		// Half-way it goes on at once.
		broken := w.Sim.Inject(azsim.Rule{Account: "accountb", Operations: []string{"DeleteQueue"}, Fault: azsim.Answer, Status: 400, Code: "InvalidInput"})
		if d, err := deleted(w, "o1", lost); err == nil || !d.Begun {
			t.Errorf("%+v, %v", d, err)
		}
		broken.Remove()
		d, err := deleted(w, "o1", lost)
		if err != nil || !d.Deleted || !slices.Equal(d.Lost, lost.Lost) {
			t.Fatalf("%+v, %v", d, err)
		}
		w.Sim.Blackout("accountc", false)
		left := leftOf(w)
		if len(left) == 0 || slices.ContainsFunc(left, func(l string) bool { return !strings.HasPrefix(l, "accountc: ") }) {
			t.Errorf("left is %q", left)
		}
	})
}

// Forced: who is at work ends by itself, and nothing is put or started after the mark.
func TestProcessesOfAWorkloadThatIsDeletedEnd(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
		send := func(name string, o distributor.Options) chan error {
			ended := make(chan error, 1)
			d := testworld.Made(w, distributor.New, name, &testworld.ListSource{Print: "list", N: 100_000, Pace: 100 * time.Millisecond}, o)
			go func() { ended <- proof.ErrOf(d.Run(ctx)) }()
			return ended
		}
		all := []chan error{
			send("d0", distributor.Options{SealAge: time.Second}),
			send("d1", distributor.Options{SealAge: time.Second, Every: time.Hour}),
			send("d2", distributor.Options{SealAge: time.Second, Every: time.Hour}),
		}
		time.Sleep(20 * time.Second)
		started := make(chan error, 2)
		go func() {
			time.Sleep(10 * time.Second) // marked, and nothing is removed yet
			started <- <-send("late", distributor.Options{})
			late, err := processor.New(w.Config("late", 2), pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil }), processor.Options{})
			if err == nil {
				err = proof.ErrOf(late.Run(ctx))
			}
			started <- err
		}()
		if d, err := deleted(w, "o", workloads.Options{Force: true}); err != nil || !d.Deleted || len(d.Members) > 0 {
			t.Errorf("%+v, %v", d, err)
		}
		select {
		case <-p.Done:
		case <-ctx.Done():
			p.Stop()
			<-p.Done
		}
		for i, err := range []error{p.Err, <-all[0], <-all[1], <-all[2]} {
			if !workload.Lost(err) {
				t.Errorf("process %d: %v", i, err)
			}
		}
		for range 2 {
			proof.Is(t, <-started, workload.ErrDeleting, "one that was started meanwhile")
		}
		proof.Alike(t, leftOf(w), nil)
	})
}

// Whatever request a deletion dies at, the same command finishes it.
func TestADeletionThatDiesAtAnyRequestIsFinishedByTheNext(t *testing.T) {
	proof.Only(t)
	t.Parallel()
	for _, last := range []azsim.FaultKind{azsim.FailBefore, azsim.AnswerLost} {
		for at, more := 0, true; more; at++ {
			testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				beside(w)
				dead := w.Sim.Inject(azsim.Rule{Instance: "operator", Fault: azsim.FailBefore, Skip: at + 1})
				w.Sim.Inject(azsim.Rule{Instance: "operator", Fault: last, Skip: at, First: 1})
				ctx, die := context.WithCancel(t.Context())
				defer die()
				go func() {
					for dead.Hits() == 0 && ctx.Err() == nil {
						waits.Wait(ctx, 100*time.Millisecond)
					}
					die()
				}()
				d, err := workloads.Delete(ctx, w.Operator(), workloads.Options{Force: true})
				e, half := errors.AsType[*workloads.Error](err)
				marked := true
				if now, err := workload.Load(t.Context(), w.Table(), w.Cfg.Workload); !errors.Is(err, pump.ErrNoWorkload) {
					marked = !now.Deleting.IsZero()
				}
				more = err != nil
				if begun := half && e.Begun; err != nil && marked && !begun {
					t.Errorf("%v at request %d: it is marked, and the error is: %v", last, at, err)
				}
				if err == nil && !d.Deleted {
					t.Errorf("at request %d: %+v", at, d)
				}
				dead.Remove()
				next := w.Config("next", 2)
				if _, err := workloads.Delete(t.Context(), next, workloads.Options{Force: true}); err != nil && !errors.Is(err, pump.ErrNoWorkload) {
					t.Errorf("after %v at request %d: %v", last, at, err)
				}
				proof.Alike(t, leftOf(w), nil, "after", last, "at request", at)
			})
			if t.Failed() {
				return
			}
			if at > 400 {
				t.Fatal("it makes more requests than that")
			}
		}
	}
}
