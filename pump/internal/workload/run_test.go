package workload

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

func TestARunGoesFromOpenToSealedOrBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := NewRuns(testkit.NewServer().Client("me"), "city")
		id := testkit.RunID(1)
		proof.Is(t, proof.ErrOf(runs.Get(t.Context(), id)), pump.ErrNoRun, "before")
		proof.Is(t, runs.Seal(t.Context(), id, []uint64{1}), pump.ErrNoRun, "sealing none")
		must(t, runs.Create(t.Context(), Run{ID: id, Mode: "once", Fingerprint: "jsonl size=7", Instance: "me", Note: "first"}))
		want := Run{ID: id, Workload: "city", Mode: "once", Fingerprint: "jsonl size=7", State: RunOpen, Started: time.Now().UTC(), Instance: "me", Note: "first"}
		got, err := runs.Get(t.Context(), id)
		must(t, err)
		if got.Changed.IsZero() {
			t.Error("when it changed is not told")
		}
		want.Changed = got.Changed
		// Two requests of 10 ms each have passed before it was read.
		proof.Same(t, cmp.Diff(want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() < 100*time.Millisecond })), "")
		counts := []uint64{3, 0, 5, math.MaxInt64 - 8}
		time.Sleep(time.Hour)
		must(t, runs.Seal(t.Context(), id, counts))
		got, err = runs.Get(t.Context(), id)
		must(t, err)
		if got.State != RunSealed || !slices.Equal(got.Sealed, counts) || got.Tasks != math.MaxInt64 || got.Ended.Sub(got.Started) < time.Hour {
			t.Errorf("%+v", got)
		}
		proof.Is(t, runs.Break(t.Context(), id, "too late"), pump.ErrRunState, "breaking a sealed run")
		must(t, runs.Create(t.Context(), Run{ID: testkit.RunID(2)}))
		must(t, runs.Break(t.Context(), testkit.RunID(2), "the source changed\xff at line 7"))
		if got, err = runs.Get(t.Context(), testkit.RunID(2)); err != nil || got.State != RunBroken || got.Note != "the source changed at line 7" {
			t.Errorf("%+v, %v", got, err)
		}
		if err := runs.Seal(t.Context(), testkit.RunID(2), counts); !errors.Is(err, pump.ErrRunState) || !strings.Contains(err.Error(), "line 7") {
			t.Errorf("sealing a broken run: %v", err)
		}
	})
}

func TestEachCallOfARunMayBeMadeAgainAndMayBeAmbiguous(t *testing.T) {
	for name, c := range map[string]testkit.Fault{"nothing lost": {}, "answers lost": testkit.LostAnswer, "requests lost": testkit.LostRequest, "late": testkit.LandsLate(30 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				client.SetFault(func(this testkit.Call) testkit.Fault {
					if this.Op == "write" && this.N%2 == 1 { // the first attempt of each
						return c
					}
					return testkit.Fault{}
				})
				runs := NewRuns(client, "city")
				run, counts := Run{ID: testkit.RunID(1), Fingerprint: "f", Instance: "me"}, []uint64{1, 2}
				for range 3 {
					must(t, runs.Create(t.Context(), run))
					time.Sleep(time.Second)
				}
				proof.Is(t, runs.By(1).Create(t.Context(), run), pump.ErrRunState, "created again by another term")
				for range 3 {
					must(t, runs.Seal(t.Context(), run.ID, counts))
				}
				proof.Is(t, runs.Seal(t.Context(), run.ID, []uint64{2, 1}), pump.ErrRunState, "sealed again with other counts")
				proof.Is(t, runs.Create(t.Context(), run), pump.ErrRunState,
					"created again after it was sealed")
				broken := Run{ID: testkit.RunID(2)}
				must(t, runs.Create(t.Context(), broken))
				for _, note := range []string{"why", "why again"} {
					must(t, runs.Break(t.Context(), broken.ID, note))
				}
				got, err := runs.Get(t.Context(), broken.ID)
				if err != nil || got.Note != "why" {
					t.Errorf("%+v, %v", got, err)
				}
				all, err := runs.List(t.Context(), 10)
				if err != nil || len(all) != 2 || all[0].ID != broken.ID || all[1].ID != run.ID {
					t.Errorf("listed %+v, %v", all, err)
				}
			})
		})
	}
}

func TestOfTwoWhoSealDifferentlyOneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		id := testkit.RunID(1)
		must(t, NewRuns(server.Client("a"), "city").Create(t.Context(), Run{ID: id}))
		results := make(chan error)
		for i, name := range []string{"a", "b"} {
			go func() {
				results <- NewRuns(server.Client(name), "city").Seal(t.Context(), id, []uint64{uint64(i)})
			}()
		}
		a, b := <-results, <-results
		if (a == nil) == (b == nil) || !errors.Is(errors.Join(a, b), pump.ErrRunState) {
			t.Errorf("%v and %v", a, b)
		}
	})
}

// A repair that has put all of a broken run again mends it; the rest of Seal's rules stay.
func TestABrokenRunIsMendedAndKeepsItsNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := NewRuns(testkit.NewServer().Client("me"), "city")
		counts := []uint64{3, 0, 1}
		for i, before := range []RunState{RunOpen, RunBroken} {
			id := testkit.RunID(byte(i + 1))
			must(t, runs.Create(t.Context(), Run{ID: id}))
			if before == RunBroken {
				must(t, runs.Break(t.Context(), id, "why"))
				proof.Is(t, runs.Seal(t.Context(), id, counts), pump.ErrRunState, "sealing a broken run")
			}
			for range 2 {
				must(t, runs.Mend(t.Context(), id, counts))
			}
			proof.Is(t, runs.Mend(t.Context(), id, []uint64{3, 1, 0}), pump.ErrRunState, "mended again otherwise")
			got, err := runs.Get(t.Context(), id)
			if err != nil || got.State != RunSealed || got.Tasks != 4 || !slices.Equal(got.Sealed, counts) || (got.Note == "why") != (before == RunBroken) {
				t.Errorf("%+v, %v", got, err)
			}
			must(t, runs.Close(t.Context(), id))
			proof.Is(t, runs.Mend(t.Context(), id, counts), nil, "mending what is closed by now")
		}
	})
}

func TestAWrongRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		runs := NewRuns(client, "city")
		for name, run := range map[string]Run{
			"no id":                {},
			"another workload":     {ID: testkit.RunID(1), Workload: "village"},
			"not open":             {ID: testkit.RunID(1), State: RunSealed},
			"a huge fingerprint":   {ID: testkit.RunID(1), Fingerprint: strings.Repeat("x", maxText+1)},
			"a binary fingerprint": {ID: testkit.RunID(1), Fingerprint: "\xff"},
		} {
			proof.Same(t, runs.Create(t.Context(), run) == nil, false, name, "is accepted")
		}
		for name, counts := range map[string][]uint64{"none": nil, "too many": make([]uint64, shardmap.MaxSegments+1), "too large": {math.MaxInt64, 1}} {
			proof.Same(t, runs.Seal(t.Context(), testkit.RunID(1), counts) == nil, false, name, "is sealed")
		}
		proof.Same(t, len(client.Sent()), 0, "requests")
	})
}

func TestADamagedRunRowIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		runs := NewRuns(server.Client("me"), "city")
		id := testkit.RunID(1)
		must(t, runs.Create(t.Context(), Run{ID: id}))
		must(t, runs.Seal(t.Context(), id, []uint64{300, 4}))
		for name, change := range map[string]map[string]any{
			"an unknown state":      {"State": "lost"},
			"open with counts":      {"State": "open"},
			"another sum":           {"Tasks": int64(305)},
			"negative":              {"Tasks": int64(-304)},
			"no counts":             {"Sealed": []byte{0}},
			"too many counts":       {"Sealed": binary.AppendUvarint(nil, 1<<40)},
			"counts that end early": {"Sealed": []byte{2, 0xac, 0x82}},
			"bytes after them":      {"Sealed": []byte{2, 0xac, 2, 4, 0}},
		} {
			before := server.Rows["city.runs/"+id.String()]
			broken := before
			broken.Properties = map[string]any{}
			for _, props := range []map[string]any{before.Properties, change} {
				for k, v := range props {
					broken.Properties[k] = v
				}
			}
			server.Rows["city.runs/"+id.String()] = broken
			proof.Is(t, proof.ErrOf(runs.Get(t.Context(), id)), row.ErrCorrupt, name)
			server.Rows["city.runs/"+id.String()] = before
		}
	})
}

func TestRunsAreListedNewestFirst(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		runs, others := NewRuns(client, "city"), NewRuns(client, "village")
		var want []codec.RunID
		for i := range byte(30) {
			must(t, runs.Create(t.Context(), Run{ID: testkit.RunID(i + 1)}))
			must(t, others.Create(t.Context(), Run{ID: testkit.RunID(i + 100)}))
			want = slices.Insert(want, 0, testkit.RunID(i+1))
		}
		// A Create that got no further than its first row leaves no run.
		client.SetFault(func(c testkit.Call) testkit.Fault {
			return map[bool]testkit.Fault{true: {Fail: true, Code: storage.Auth}}[c.Op == "write" && !strings.Contains(c.Row, "/"+byTime)]
		})
		if err := runs.Create(t.Context(), Run{ID: testkit.RunID(99)}); !storage.Is(err, storage.Auth) {
			t.Fatal(err)
		}
		client.SetFault(testkit.FaultOn("query", "city.runs", 1, testkit.LostAnswer))
		for _, limit := range []int{-1, 0, 1, 29, 30, 31} {
			list, err := runs.List(t.Context(), limit)
			must(t, err)
			var got []codec.RunID
			for _, r := range list {
				got = append(got, r.ID)
			}
			proof.Alike(t, got, want[:min(max(limit, 0), 30)], "limit", limit)
		}
		client.SetLatency(func(testkit.Call) time.Duration { return 3 * time.Second })
		list, err := runs.List(t.Context(), 30) // for which there is a minute
		must(t, err)
		proof.Same(t, len(list), 30, "runs of a slow table")
	})
}

func TestADamagedRowHidesNoOtherRunOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		runs := NewRuns(server.Client("me"), "city")
		for i := range byte(30) {
			must(t, runs.Create(t.Context(), Run{ID: testkit.RunID(i + 1)}))
		}
		damage := func(row, property string) {
			broken := server.Rows[row]
			broken.Properties = maps.Clone(broken.Properties)
			broken.Properties[property] = "?"
			server.Rows[row] = broken
		}
		of, err := runs.Get(t.Context(), testkit.RunID(28))
		must(t, err)
		damage("city.runs/"+testkit.RunID(29).String(), "State")
		damage("city.runs/"+runs.timeKey(of), "Run")
		list, err := runs.List(t.Context(), 3)
		var got []codec.RunID
		for _, r := range list {
			got = append(got, r.ID)
		}
		want := []codec.RunID{testkit.RunID(30), testkit.RunID(27), testkit.RunID(26)}
		if !slices.Equal(got, want) || !errors.Is(err, row.ErrCorrupt) {
			t.Errorf("%v, %v", got, err)
		}
		for _, name := range []string{testkit.RunID(29).String(), runs.timeKey(of)} {
			proof.Says(t, err, name, "row is not named")
		}
	})
}

func TestCountsOf4096SegmentsFitAPropertyWhateverTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 64, 4096}).Draw(t, "segments")
		largest := rapid.Uint64().Draw(t, "largest")
		counts := make([]uint64, n)
		for i := range counts {
			counts[i] = largest >> (testkit.Hash(largest, "", i) % 64)
		}
		stored := appendCounts(nil, counts)
		if len(stored) > storage.MaxProperty {
			t.Fatalf("%d bytes", len(stored))
		}
		read, err := readCounts(stored)
		if err != nil || !slices.Equal(read, counts) {
			t.Fatalf("read back %d counts, %v", len(read), err)
		}
	})
	worst := appendCounts(nil, slices.Repeat([]uint64{math.MaxUint64}, 4096))
	t.Logf("4,096 counts of 2^64-1 take %d bytes of %d", len(worst), storage.MaxProperty)
	if len(worst) > storage.MaxProperty {
		t.Error("too many")
	}
}

func FuzzReadCounts(f *testing.F) {
	f.Add(appendCounts(nil, []uint64{1, 1 << 40, 0}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		counts, err := readCounts(b)
		if err != nil {
			return
		}
		again, err := readCounts(appendCounts(nil, counts))
		if err != nil || !slices.Equal(again, counts) {
			t.Fatalf("%v, %v", again, err)
		}
	})
}
