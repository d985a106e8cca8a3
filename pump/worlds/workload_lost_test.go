package worlds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// removed removes rows of the workload's own partition, as who cleans up by hand does.
func (w *world) removed(keep func(row string) bool) {
	w.T.Helper()
	table := w.Table()
	var rows []storage.Entity
	for e, err := range table.Query(w.T.Context(), storage.Query{Partition: w.Cfg.Workload}) {
		must(w.T, err)
		rows = append(rows, e)
	}
	for _, e := range rows {
		if keep != nil && keep(e.Row) {
			continue
		}
		must(w.T, errOf(table.Write(w.T.Context(), storage.Write{Mode: storage.Remove, Entity: storage.Entity{Partition: e.Partition, Row: e.Row}})))
	}
}

// remade makes the workload's row again, of other queues.
func (w *world) remade(segments, queues int) {
	w.T.Helper()
	var shards []shardmap.Shard
	for i := range queues {
		shards = append(shards, shardmap.Shard{Account: "accounta", Queue: fmt.Sprintf("other-%02d", i), Weight: 1})
		must(w.T, w.Queue("accounta", shards[i].Queue).Create(w.T.Context()))
	}
	w.remadeOf(segments, shards)
}

// remadeAlike removes the workload and makes it again of the same queues.
func (w *world) remadeAlike() {
	w.T.Helper()
	was, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
	must(w.T, err)
	w.removed(nil)
	w.remadeOf(was.Map.Segments, was.Map.Shards)
}

func (w *world) remadeOf(segments int, shards []shardmap.Shard) {
	w.T.Helper()
	spec := workload.Spec{Name: w.Cfg.Workload, Segments: segments, Delivery: string(w.Cfg.Delivery), Shards: shards}
	must(w.T, errOf(workload.Ensure(w.T.Context(), w.Table(), spec)))
}

// A9: only the incarnation tells a workload that was made again with a map of the same
// version; a map with more segments must not be a panic.
func TestAWorkloadThatWasMadeAgainIsTheEndOfEveryProcessOfTheOldOne(t *testing.T) {
	proof.Only(t)
	for name, change := range map[string]func(w *world){
		"of equal size": func(w *world) { w.removed(nil); w.remade(128, 4) },
		"alike":         (*world).remadeAlike,
		"larger":        func(w *world) { w.removed(nil); w.remade(1024, 4) },
		"its row alone": func(w *world) {
			w.removed(func(row string) bool { return row != "workload" })
			w.remade(128, 4)
		},
		"not at all": func(w *world) { w.removed(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				var handled atomic.Int64
				p := w.join("p", pump.HandlerFunc(func(context.Context, *pump.Task) error { handled.Add(1); return nil }), processor.Options{})
				var ends sync.WaitGroup
				errs := make([]error, 3)
				send := func(i int, o distributor.Options) {
					d := w.distributor(fmt.Sprintf("d%d", i), &testworld.ListSource{Print: "list", N: 100_000, Pace: 100 * time.Millisecond}, o)
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
				if n := w.Logged("the workload was deleted"); n != 3+1 {
					t.Errorf("%d lines say it, want one of each of 4 processes", n)
				}
				if handled.Load() == 0 {
					t.Error("nothing was handled before")
				}
				v, err := cluster.LoadView(t.Context(), w.Table(), w.Cfg.Workload)
				if name == "not at all" {
					if !errors.Is(err, pump.ErrNoWorkload) {
						t.Errorf("the deletion was undone: %v", err)
					}
				} else if err != nil || len(v.Members) != 0 && name != "its row alone" {
					t.Errorf("members %v of the new workload, %v", v, err)
				}
			})
		})
	}
}

func TestWhoChangesAWorkloadSeesThatItWasMadeAgain(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		w.poison("accounta", 1, codec.ReasonRejected, time.Now(), "key")
		q, err := quarantine.Open(t.Context(), w.Operator())
		must(t, err)
		time.Sleep(workload.MapMaxAge)
		w.removed(nil)
		w.remade(128, 4)
		var problem string
		if err := q.Redrive(t.Context(), quarantine.Filter{}, quarantine.Options{}, func(o quarantine.Outcome) bool {
			problem = o.Problem
			return true
		}); err != nil || !strings.Contains(problem, workload.ErrReplaced.Error()) {
			t.Errorf("%v, %q", err, problem)
		}
	})
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		must(t, errOf(accounts.Drain(t.Context(), w.Operator(), "accountb")))
		var once sync.Once
		_, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{Wait: true, Progress: func(accounts.Progress) {
			once.Do(func() {
				w.removed(nil)
				w.remade(128, 4)
			})
		}})
		if !errors.Is(err, workload.ErrReplaced) {
			t.Error(err)
		}
	})
}
