package workloads_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

func TestAWorkloadIsShownWhateverTheConfigurationSaysOfIt(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		w.Joined("p", cluster.RoleProcessor, cluster.Report{})
		w.Joined("d", cluster.RoleDistributor, cluster.Report{})
		runs := workload.NewRuns(w.Table(), w.Cfg.Workload)
		for i := range 3 {
			run := workload.Run{ID: pump.RunID{byte(i + 1)}, Mode: "once", Fingerprint: "f", Instance: "d"}
			proof.Must(t, runs.Create(t.Context(), run))
			if i > 0 {
				proof.Must(t, runs.Break(t.Context(), run.ID, "gone"))
			}
		}
		cfg := w.Operator()
		cfg.Delivery = pump.Once // is not what is pinned
		got, err := workloads.Show(t.Context(), cfg)
		proof.Must(t, err)
		if got.Name != "town" || len(got.Incarnation) != 16 || got.Control != "accounta" || got.Delivery != "at-least-once" || got.Segments != 128 || got.MapVersion != 1 ||
			got.Queues != 4 || len(got.Accounts) != 3 || got.Processors != 1 || got.Distributors != 1 || got.Runs["open"] != 1 || got.Runs["broken"] != 2 || !got.AllRuns ||
			len(got.Rivals) != 0 || len(got.Unseen) != 0 || got.Retention != (7*24*time.Hour).Seconds() || got.Shared {
			t.Errorf("%+v", got)
		}
		if got.Made == nil || time.Since(*got.Made) > time.Minute || got.Changed.IsZero() {
			t.Errorf("made %v, changed %v", got.Made, got.Changed)
		}
		cfg.Workload = "village"
		proof.Is(t, proof.ErrOf(workloads.Show(t.Context(), cfg)), pump.ErrNoWorkload)
	})
}

// rival makes a second workload of the same name, with its rows in account i.
func rival(w *testworld.World, i int, shards []shardmap.Shard) {
	w.T.Helper()
	spec := workload.Spec{Name: w.Cfg.Workload, Delivery: string(w.Cfg.Delivery), Shards: shards}
	proof.Must(w.T, proof.ErrOf(workload.Ensure(w.T.Context(), w.Cfg.Accounts[i].Storage.Table(row.TableName), spec)))
}

func TestWorkloadShowNamesASecondWorkloadOverTheSameQueues(t *testing.T) {
	testworld.In(t, testworld.Plain, 4, 2, nil, func(t *testing.T, w *testworld.World) {
		all := setup.Shards(w.Cfg)
		rival(w, 1, all)
		rival(w, 2, []shardmap.Shard{{Account: "other", Queue: all[0].Queue}})
		w.Sim.Inject(azsim.Rule{Account: "accountd", Service: "table", Fault: azsim.FailBefore})
		got, err := workloads.Show(t.Context(), w.Operator())
		proof.Must(t, err)
		same := []string{"accounta", "accountb", "accountc", "accountd"}
		if r := got.Rivals; len(r) != 2 || r[0].Account != "accountb" || !slices.Equal(r[0].SameQueues, same) || r[1].Account != "accountc" || len(r[1].SameQueues) != 0 {
			t.Errorf("rivals %+v", r)
		}
		proof.Alike(t, got.Unseen, []string{"accountd"}, "not looked into")
	})
}

// removed removes rows of the workload's own partition, as who cleans up by hand does.
func removed(w *testworld.World, keep func(row string) bool) {
	w.T.Helper()
	table := w.Table()
	var rows []storage.Entity
	for e, err := range table.Query(w.T.Context(), storage.Query{Partition: w.Cfg.Workload}) {
		proof.Must(w.T, err)
		rows = append(rows, e)
	}
	for _, e := range rows {
		if keep != nil && keep(e.Row) {
			continue
		}
		proof.Must(w.T, proof.ErrOf(table.Write(w.T.Context(), storage.Write{Mode: storage.Remove, Entity: storage.Entity{Partition: e.Partition, Row: e.Row}})))
	}
}

// remade makes the workload's row again, of other queues.
func remade(w *testworld.World, segments, queues int) {
	w.T.Helper()
	var shards []shardmap.Shard
	for i := range queues {
		shards = append(shards, shardmap.Shard{Account: "accounta", Queue: fmt.Sprintf("other-%02d", i), Weight: 1})
		proof.Must(w.T, w.Queue("accounta", shards[i].Queue).Create(w.T.Context()))
	}
	remadeOf(w, segments, shards)
}

// remadeAlike removes the workload and makes it again of the same queues.
func remadeAlike(w *testworld.World) {
	w.T.Helper()
	was, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
	proof.Must(w.T, err)
	removed(w, nil)
	remadeOf(w, was.Map.Segments, was.Map.Shards)
}

func remadeOf(w *testworld.World, segments int, shards []shardmap.Shard) {
	w.T.Helper()
	spec := workload.Spec{Name: w.Cfg.Workload, Segments: segments, Delivery: string(w.Cfg.Delivery), Shards: shards}
	proof.Must(w.T, proof.ErrOf(workload.Ensure(w.T.Context(), w.Table(), spec)))
}

// A9: only the incarnation tells a workload that was made again with a map of the same
// version; a map with more segments must not be a panic.
func TestAWorkloadThatWasMadeAgainIsTheEndOfEveryProcessOfTheOldOne(t *testing.T) {
	proof.Only(t)
	for name, change := range map[string]func(w *testworld.World){
		"of equal size": func(w *testworld.World) { removed(w, nil); remade(w, 128, 4) },
		"alike":         remadeAlike,
		"larger":        func(w *testworld.World) { removed(w, nil); remade(w, 1024, 4) },
		"its row alone": func(w *testworld.World) {
			removed(w, func(row string) bool { return row != "workload" })
			remade(w, 128, 4)
		},
		"not at all": func(w *testworld.World) { removed(w, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				var handled atomic.Int64
				p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(context.Context, *pump.Task) error { handled.Add(1); return nil }), processor.Options{})
				var ends sync.WaitGroup
				errs := make([]error, 3)
				send := func(i int, o distributor.Options) {
					d := testworld.Made(w, distributor.New, fmt.Sprintf("d%d", i), &testworld.ListSource{Print: "list", N: 100_000, Pace: 100 * time.Millisecond}, o)
					ends.Go(func() { _, errs[i] = d.Run(ctx) })
				}
				send(0, distributor.Options{SealAge: time.Second})
				send(1, distributor.Options{SealAge: time.Second, Every: time.Hour})
				send(2, distributor.Options{SealAge: time.Second, Every: time.Hour}) // stands by
				time.Sleep(20 * time.Second)
				change(w)
				changed := time.Now()
				time.Sleep(workload.MapMaxAge)
				before := w.Left()
				ends.Wait()
				select {
				case <-p.Done:
				case <-ctx.Done():
					t.Fatal("the processor goes on")
				}
				errs = append(errs, p.Err)
				for i, err := range errs {
					if !workload.Lost(err) || !strings.Contains(err.Error(), "restart") {
						t.Errorf("process %d ended with: %v", i, err)
					}
				}
				if took := time.Since(changed); took > time.Minute {
					t.Errorf("they ended after %v", took)
				}
				if now := w.Left(); now > before {
					t.Errorf("%d messages were put %v after the change", now-before, workload.MapMaxAge)
				}
				for i := range 4 {
					if n, err := w.Queue("accounta", fmt.Sprintf("other-%02d", i)).Count(t.Context()); n > 0 || err != nil && !storage.Is(err, storage.Missing) {
						t.Errorf("%d messages in a queue of the other workload, %v", n, err)
					}
				}
				proof.Same(t, w.Logged("its workload is gone"), 3+1, "lines say it")
				if handled.Load() == 0 {
					t.Error("nothing was handled before")
				}
				v, err := cluster.LoadView(t.Context(), w.Table(), w.Cfg.Workload)
				if name == "not at all" {
					proof.Is(t, err, pump.ErrNoWorkload, "the deletion was undone")
				} else if err != nil || len(v.Members) != 0 && name != "its row alone" {
					t.Errorf("members %v of the new workload, %v", v, err)
				}
			})
		})
	}
}

func TestWhoChangesAWorkloadSeesThatItWasMadeAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Poison("accounta", 1, codec.ReasonRejected, time.Now(), "key")
		q, err := quarantine.Open(t.Context(), w.Operator())
		proof.Must(t, err)
		time.Sleep(workload.MapMaxAge)
		removed(w, nil)
		remade(w, 128, 4)
		var problem string
		if err := q.Redrive(t.Context(), quarantine.Filter{}, quarantine.Options{}, func(o quarantine.Outcome) bool {
			problem = o.Problem
			return true
		}); err != nil || !strings.Contains(problem, workload.ErrReplaced.Error()) {
			t.Errorf("%v, %q", err, problem)
		}
	})
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		proof.Must(t, proof.ErrOf(accounts.Drain(t.Context(), w.Operator(), "accountb")))
		var once sync.Once
		_, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{Wait: true, Progress: func(accounts.Progress) {
			once.Do(func() {
				removed(w, nil)
				remade(w, 128, 4)
			})
		}})
		proof.Is(t, err, workload.ErrReplaced)
	})
}
