package election

import (
	"context"
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
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// The control plane over the driver that ships and the simulated service: what
// the fake table of the other tests leaves out is how properties, stamps, ETags
// and failures really travel.

func TestOverTheWireNothingIsDoneTwiceOrForgottenWhateverAnswerIsLost(t *testing.T) {
	operations := []string{"InsertEntity", "MergeEntity", "UpdateEntity", "GetEntity", "InsertOrReplaceEntity", "QueryEntities", "CreateTable", "Batch"}
	faults := []azsim.Rule{
		{Fault: azsim.AnswerLost},
		{Fault: azsim.FailBefore},
		{Fault: azsim.CutBody},
		{Fault: azsim.HangAfter},
		{Fault: azsim.HangBefore},
		{Fault: azsim.AnswerAfter},
		{Fault: azsim.Answer},
		{Fault: azsim.Answer, Status: 500, Code: "OperationTimedOut"},
	}
	for _, f := range faults {
		for _, op := range operations {
			if f.Fault == azsim.CutBody && op != "GetEntity" && op != "QueryEntities" {
				continue // the other answers have no body to speak of
			}
			rule := f
			rule.Service, rule.Operations, rule.First = "table", []string{op}, 2
			t.Run(fmt.Sprintf("%s %s %s", op, f.Fault, f.Code), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim := testkit.Simulated()
					injected := sim.Inject(rule)
					distribute(t, testkit.OverTheWire(t, sim, "a"), 8, 64)
					if injected.Hits() == 0 {
						t.Error("nothing went wrong")
					}
				})
			})
		}
	}
}

// distribute is a distribution from start to end, judged by what it left.
func distribute(t *testing.T, table storage.Table, shards, segments int) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		must(t, err)
	}
	spec := workload.Spec{Name: "city", Segments: segments, Delivery: string(pump.AtLeastOnce)}
	for i := range shards {
		spec.Shards = append(spec.Shards, shardmap.Shard{Account: fmt.Sprint("account", i/8), Queue: fmt.Sprintf("city-%02d", i%8), Weight: 1.5})
	}
	w, err := workload.Ensure(ctx, table, spec)
	check(err)
	loaded, err := workload.Load(ctx, table, "city")
	check(err)
	proof.Alike(t, w.Map.Loads(), loaded.Map.Loads(), "the map changed on its way")
	e := candidate(table, "a")
	term := standFor(t, e, 30*time.Second)
	runs := workload.NewRuns(table, "city")
	run := workload.Run{ID: testkit.RunID(1), Mode: "every", Fingerprint: "Zürich 'jsonl'", Instance: "a"}
	check(runs.Create(ctx, run))
	check(term.Begin(ctx, run.ID))
	check(term.Save(ctx, make([]byte, 2*checkpointPart)))
	check(term.Save(ctx, []byte("shorter: the row is replaced")))
	counts := make([]uint64, 4096)
	for i := range counts {
		counts[i] = 1 << (i % 50)
	}
	check(runs.Seal(ctx, run.ID, counts))
	check(term.Finish(ctx))
	sealed, err := runs.Get(ctx, run.ID)
	check(err)
	if sealed.State != workload.RunSealed || !slices.Equal(sealed.Sealed, counts) || sealed.Fingerprint != run.Fingerprint || sealed.Ended.Before(sealed.Started) {
		t.Errorf("run %+v", sealed)
	}
	list, err := runs.List(ctx, 10)
	check(err)
	if len(list) != 1 || list[0].ID != run.ID {
		t.Errorf("listed %+v", list)
	}
	again := standFor(t, e, 2*time.Minute)
	if again.Epoch != term.Epoch+1 || again.Resume != nil {
		t.Errorf("epoch %d after %d, resume %v", again.Epoch, term.Epoch, again.Resume)
	}
	check(again.Begin(ctx, testkit.RunID(2)))
	check(again.Save(ctx, []byte("x")))
	again.Abandon(ctx)
	status, err := e.Status(ctx)
	check(err)
	if status.Leader != "" || status.Phase != Running || status.Run != testkit.RunID(2) || status.Checkpoint != 1 || status.Changed.IsZero() {
		t.Errorf("status %+v", status)
	}
}

func TestOverTheWireADeadLeaderIsReplacedAndTheServersClockMayBeOff(t *testing.T) {
	for _, offset := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := testkit.Simulated()
				sim.SetClockOffset(offset)
				table := testkit.OverTheWire(t, sim, "setup")
				must(t, table.Create(t.Context()))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := standFor(t, candidate(testkit.OverTheWire(t, sim, "a"), "a"), time.Second)
				must(t, first.Begin(ctx, testkit.RunID(1)))
				mustSave(t, first, "here")
				var wins []*Term
				var mu sync.Mutex
				var wg sync.WaitGroup
				for _, name := range []string{"b", "c"} {
					wg.Go(func() {
						if term := stand(ctx, candidate(testkit.OverTheWire(t, sim, name), name)); term != nil {
							mu.Lock()
							wins = append(wins, term)
							mu.Unlock()
						}
					})
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				mu.Lock()
				proof.Same(t, len(wins), 0, "a living leader was replaced")
				mu.Unlock()
				sim.Inject(azsim.Rule{Instance: "a", Fault: azsim.HangBefore}) // from here on a is cut off
				time.Sleep(33 * time.Second)
				synctest.Wait()
				mu.Lock()
				if len(wins) != 1 || wins[0].Epoch != 2 || wins[0].Resume == nil || string(wins[0].Resume.Checkpoint) != "here" {
					t.Fatalf("wins %+v", wins)
				}
				next := wins[0]
				mu.Unlock()
				if first.Context().Err() == nil {
					t.Error("the first still trusts")
				}
				mustFinish(t, next)
				finished := time.Now()
				// The other one runs the next distribution, a period later.
				wg.Wait()
				if after := time.Since(finished); len(wins) != 2 || wins[1].Epoch != 3 || wins[1].Resume != nil || after < time.Minute-50*time.Millisecond || after > time.Minute+time.Second {
					t.Errorf("after %v: %+v", after, wins[1:])
				}
				mustFinish(t, wins[1])
				<-first.done
			})
		})
	}
}

func TestOverTheWireTheRowsAreReadable(t *testing.T) {
	// What an operator sees in a table browser, and what nothing may rename.
	synctest.Test(t, func(t *testing.T) {
		sim := testkit.Simulated()
		table := testkit.OverTheWire(t, sim, "a")
		distribute(t, table, 100, 4096)
		var got []string
		for e, err := range table.Query(t.Context(), storage.Query{}) {
			must(t, err)
			var names []string
			for name := range e.Properties {
				names = append(names, name)
			}
			slices.Sort(names)
			key := e.Row
			if strings.HasPrefix(key, "t.") {
				key = "t...."
			}
			got = append(got, e.Partition+"/"+key+": "+strings.Join(names, " "))
		}
		want := []string{
			"city/workload: Delivery Format Incarnation Made Map MapVersion Nonce Segments Shared",
			"city.election/clock: Format",
			"city.election/election: Beat Beats Checkpoint0 Epoch Every Format Leader Lease Margin Nonce Phase Run",
			"city.runs/" + testkit.RunID(1).String() + ": Accounts Ended Fingerprint Format Instance Mode Name Nonce Note Sealed Started State Tasks",
			"city.runs/live." + testkit.RunID(1).String() + ": Accounts Beat Beats Drop Epoch Format Instance Mode Over Put Rest State Tasks",
			"city.runs/t....: Format Run",
		}
		if !slices.Equal(got, want) {
			t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
