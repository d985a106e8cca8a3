package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// must ends a test with an error.
var must = proof.Must

func mustIDRange(t testing.TB, table storage.Table, size int) *IDRange {
	t.Helper()
	r, err := NewIDRange(table, "city", "orders", size)
	must(t, err)
	return r
}

// putRow writes a row as no program of ours would.
func putRow(t testing.TB, s *testkit.Server, partition, key string, props map[string]any) {
	t.Helper()
	props[row.FormatProperty] = int64(row.Format)
	w := storage.Write{Mode: storage.Upsert, Entity: storage.Entity{Partition: partition, Row: key, Properties: props}}
	must(t, proof.ErrOf(s.Apply(partition+"/"+key, w)))
}

func TestNumbersBeginAtOneAndCostARequestAThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		client.Exists = false // the table too is made
		r := mustIDRange(t, client, 0)
		for want := uint64(1); want <= 2001; want++ {
			if id, err := r.Next(t.Context()); err != nil || id != want {
				t.Fatalf("%d, %v, want %d", id, err, want)
			}
		}
		proof.Same(t, client.Writes("city.ids/orders"), 3, "writes for 2,001 numbers")
		if first, err := r.Reserve(t.Context(), 7); err != nil || first != 3001 {
			t.Errorf("%d, %v, want 3001", first, err)
		}
		proof.Same(t, proof.ErrOf(r.Reserve(t.Context(), 0)) == nil, false, "a range of none was given")
		other := mustIDRange(t, client, 1)
		for want := uint64(3008); want < 3011; want++ {
			if id, err := other.Next(t.Context()); err != nil || id != want {
				t.Errorf("%d, %v, want %d", id, err, want)
			}
		}
	})
}

func TestManyGoroutinesShareOneReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		r := mustIDRange(t, client, 100)
		var mu sync.Mutex
		var all []uint64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				id, err := r.Next(t.Context())
				proof.Is(t, err, nil)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, id)
			})
		}
		wg.Wait()
		slices.Sort(all)
		if len(slices.Compact(all)) != 100 || all[0] != 1 || all[99] != 100 {
			t.Errorf("%v", all)
		}
		proof.Same(t, client.Writes("city.ids/orders"), 1, "writes")
	})
}

func TestWhoseContextEndsDoesNotFailTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		r := mustIDRange(t, client, 10)
		impatient, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			proof.Same(t, proof.ErrOf(r.Next(impatient)) == nil, false, "the first did not give up")
		})
		time.Sleep(time.Millisecond)
		wg.Go(func() {
			proof.Is(t, proof.ErrOf(r.Next(impatient)), context.DeadlineExceeded, "a waiting one")
		})
		wg.Go(func() {
			proof.Is(t, proof.ErrOf(r.Next(t.Context())), nil, "the patient one")
		})
		wg.Wait()
	})
}

// TestNoNumberIsGivenTwice is origins T1 under all that may happen: 32
// processes of which each takes 10,000 numbers and now and then dies with some in hand.
func TestNoNumberIsGivenTwice(t *testing.T) {
	proof.Only(t)
	synctest.Test(t, func(t *testing.T) {
		const processes, each, seed = 32, 10_000, 1
		sim := testkit.Simulated()
		for _, rule := range []azsim.Rule{
			{Operations: []string{"MergeEntity", "InsertEntity"}, Fault: azsim.Answer, Status: 412, Code: "UpdateConditionNotSatisfied", Probability: 0.1},
			{Operations: []string{"MergeEntity", "InsertEntity"}, Fault: azsim.AnswerAfter, Status: 412, Code: "UpdateConditionNotSatisfied", Probability: 0.02},
			{Operations: []string{"MergeEntity", "InsertEntity"}, Fault: azsim.AnswerLost, Probability: 0.1},
			{Operations: []string{"MergeEntity", "InsertEntity"}, Fault: azsim.AnswerAfter, Probability: 0.05},
			{Fault: azsim.FailBefore, Probability: 0.03},
			{Fault: azsim.HangAfter, Probability: 0.01},
			{Fault: azsim.Answer, Probability: 0.03}, // 503
		} {
			rule.Service = "table"
			sim.Inject(rule)
		}
		given := make([][]uint64, processes)
		var abandoned, died int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for p := range processes {
			name := fmt.Sprintf("p%02d", p)
			table := row.Seeded(testkit.OverTheWire(t, sim, name), testkit.SeededDraw(seed, name))
			wg.Go(func() {
				for life := 0; len(given[p]) < each; life++ {
					r := mustIDRange(t, table, 100)
					// It dies after so many numbers, or so long after it began: in mid-request.
					alive, die := context.WithTimeout(t.Context(), time.Duration(testkit.Hash(seed, name+" dies", life)%uint64(5*time.Second)))
					until := len(given[p]) + int(testkit.Hash(seed, name, life)%3000) + 1
					for len(given[p]) < min(until, each) {
						id, err := r.Next(alive)
						if err != nil {
							mu.Lock()
							died++
							mu.Unlock()
							break
						}
						given[p] = append(given[p], id)
					}
					die()
					mu.Lock()
					abandoned += int(r.end - r.next)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		all := slices.Sorted(slices.Values(slices.Concat(given...)))
		for i := 1; i < len(all); i++ {
			if all[i] == all[i-1] {
				t.Fatalf("%d was given twice (seed %d)", all[i], seed)
			}
		}
		v, err := idRowOf(testkit.OverTheWire(t, sim, "after"), "city", "orders").MustRead(t.Context())
		must(t, err)
		gaps := int(v.Value-1) - len(all)
		t.Logf("seed %d: %d numbers given by %d processes, the last is %d; %d never given: %d lost by crashes, %d by answers that never came; %d died in mid-request",
			seed, len(all), processes, all[len(all)-1], gaps, abandoned, gaps-abandoned, died)
		if len(all) != processes*each || all[0] != 1 {
			t.Errorf("%d numbers from %d on", len(all), all[0])
		}
		if gaps < abandoned || abandoned == 0 || died == 0 {
			t.Errorf("%d gaps, %d of them by crashes, %d in mid-request", gaps, abandoned, died)
		}
		// Whole ranges of 100 and those in hand are lost, not more than the faults
		// explain.
		if lost := gaps - abandoned; lost%100 != 0 || lost > processes*each/10 {
			t.Errorf("%d numbers were lost by answers", lost)
		}
	})
}

func TestAWriteThatLandsLateGivesNothingTwice(t *testing.T) {
	for _, late := range []time.Duration{17 * time.Millisecond, 100 * time.Millisecond, time.Second, 90 * time.Second} {
		for name, first := range map[string]bool{"insert": true, "change": false} {
			t.Run(fmt.Sprintf("%s %v", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := testkit.NewServer()
					a, b := mustIDRange(t, server.Client("a"), 10), server.Client("b")
					n := 1
					if !first {
						must(t, proof.ErrOf(a.Next(t.Context())))
					}
					b.SetFault(testkit.FaultOn("write", "city.ids/orders", n, testkit.LandsLate(late)))
					r := mustIDRange(t, b, 10)
					var all []uint64
					for range 40 {
						for _, from := range []*IDRange{r, a} {
							id, err := from.Next(t.Context())
							must(t, err)
							all = append(all, id)
						}
						time.Sleep(late / 30)
					}
					slices.Sort(all)
					proof.Same(t, len(slices.Compact(all)), len(all), "given twice", all)
				})
			})
		}
	}
}

func TestAReservationIsTriedTwentyFiveTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		client.SetFault(func(c testkit.Call) testkit.Fault {
			return map[bool]testkit.Fault{true: {Fail: true, Code: storage.Precondition}}[c.Op == "write"]
		})
		began := time.Now()
		_, err := mustIDRange(t, client, 0).Next(t.Context())
		if !errors.Is(err, row.ErrLost) || !strings.Contains(err.Error(), "25 times") {
			t.Errorf("%v", err)
		}
		if n, took := client.Writes("city.ids/orders"), time.Since(began); n != 25 || took > row.Patience/2 {
			t.Errorf("%d writes in %v", n, took)
		}
		client.SetFault(func(c testkit.Call) testkit.Fault { return testkit.LostRequest })
		began = time.Now()
		if _, err := mustIDRange(t, client, 0).Next(t.Context()); !storage.Ambiguous(err) || time.Since(began) > row.Patience+time.Second {
			t.Errorf("a dark table: %v after %v", err, time.Since(began))
		}
	})
}

func TestADamagedCounterIsNamedAndLeftAsItIs(t *testing.T) {
	for name, next := range map[string]any{
		"nothing": nil, "empty": "", "words": "many", "negative": "-5", "zero": "0", "a fraction": "1.5", "signed": "+5", "spaces": " 5",
		"leading zero": "05", "too large": "18446744073709551616", "an integer": int64(5), "bytes": []byte("5"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := testkit.NewServer().Client("me")
				props := map[string]any{"Next": next}
				if next == nil {
					delete(props, "Next")
				}
				putRow(t, client.Server, "city.ids", "orders", props)
				before := len(client.Written())
				_, err := mustIDRange(t, client, 0).Next(t.Context())
				if !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), "city.ids/orders") || !strings.Contains(err.Error(), "Next") {
					t.Errorf("%v", err)
				}
				proof.Same(t, len(client.Written()), before, "it was overwritten")
			})
		})
	}
}

func TestTheCounterIsExactBeyondInt64AndDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := testkit.Simulated()
		table := testkit.OverTheWire(t, sim, "me")
		must(t, table.Create(t.Context()))
		const start = math.MaxUint64 - 2500
		w := storage.Write{Entity: storage.Entity{
			Partition: "city.ids", Row: "orders",
			Properties: map[string]any{row.FormatProperty: int64(row.Format), "Next": fmt.Sprint(uint64(start))},
		}}
		must(t, proof.ErrOf(table.Write(t.Context(), w)))
		r := mustIDRange(t, table, 0)
		for i := range uint64(2000) {
			if id, err := r.Next(t.Context()); err != nil || id != start+i {
				t.Fatalf("%d, %v, want %d", id, err, start+i)
			}
		}
		for range 2 {
			if id, err := r.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "left") {
				t.Errorf("%d, %v", id, err)
			}
		}
		if first, err := r.Reserve(t.Context(), 500); err != nil || first != start+2000 {
			t.Errorf("%d, %v", first, err)
		}
		proof.Same(t, proof.ErrOf(r.Reserve(t.Context(), 1)) == nil, false, "the counter wrapped round")
	})
}

func TestNamesThatCannotBeAreRefused(t *testing.T) {
	table := testkit.NewServer().Client("me")
	for _, name := range []string{"", "a b", "a/b", "Zürich", "'", strings.Repeat("x", 64)} {
		proof.Same(t, proof.ErrOf(NewIDRange(table, "city", name, 0)) == nil, false, "id range", name)
		g := NewGate(table, "city", name)
		_, err := g.State(t.Context())
		for _, err := range []error{err, g.Release(t.Context(), "me"), g.Hold(t.Context(), "me"), g.Wait(t.Context(), nil)} {
			proof.Says(t, err, "letters", name, "gate")
		}
	}
	proof.Same(t, proof.ErrOf(NewIDRange(table, "a city", "orders", 0)) == nil, false, "a city")
	proof.Same(t, proof.ErrOf(NewIDRange(table, "city", "orders", -1)) == nil, false, "size -1")
	must(t, proof.ErrOf(NewIDRange(table, "city", "A-z_0.9~"+strings.Repeat("x", 55), 5)))
	proof.Same(t, len(table.Sent()), 0, "requests were made")
}

func TestManyProcessesThatReserveAtOnceAllSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		var wg sync.WaitGroup
		for p := range 60 {
			name := fmt.Sprint("p", p)
			r := mustIDRange(t, row.Seeded(server.Client(name), testkit.SeededDraw(2, name)), 1)
			wg.Go(func() {
				for range 20 {
					if _, err := r.Next(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// A row that is gone, or came back as it was before, has no handle give a number twice.
func TestAHandleGivesNoNumberTwiceThoughItsRowWentBack(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("gone %v", gone), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := testkit.NewServer().Client("me")
				var log strings.Builder
				r, other := mustIDRange(t, client, 10), mustIDRange(t, client, 10)
				r.Log = slog.New(slog.NewTextHandler(&log, nil))
				given := map[uint64]bool{}
				take := func(n int) {
					for range n {
						id, err := r.Next(t.Context())
						if err != nil || given[id] {
							t.Fatalf("%d was given before: %v, %v", id, given[id], err)
						}
						given[id] = true
					}
				}
				take(5)
				before := client.Server.Rows["city.ids/orders"]
				take(20)
				if gone {
					delete(client.Server.Rows, "city.ids/orders")
				} else {
					before.ETag = "back"
					client.Server.Rows["city.ids/orders"] = before
				}
				first, err := r.Reserve(t.Context(), 3)
				if err != nil || first != 31 {
					t.Errorf("%d, %v, want 31", first, err)
				}
				take(20)
				if id, err := other.Next(t.Context()); err != nil || id < 34 {
					t.Errorf("%d, %v: the row was not moved up", id, err)
				}
				proof.Same(t, strings.Count(log.String(), "had come back as it was before"), 1, log.String())
			})
		})
	}
}
