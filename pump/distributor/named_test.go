package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

var nightly = distributor.Options{Name: "nightly-2026-11-27"}

// crashing gives the command again until it ends well, each time by another instance, and lets the
// former ones die at random moments.
func crashing(
	t *testing.T, w *testworld.World, seed uint64, most int, s source.Source, o distributor.Options,
) (last distributor.Summary, times int) {
	random := rand.New(rand.NewPCG(seed, 29))
	for times = 1; ; times++ {
		who := fmt.Sprintf("d%d", times)
		ctx, stop := context.WithCancel(t.Context())
		if times <= most {
			after := time.Duration(random.Int64N(int64(40 * time.Second)))
			dies := time.AfterFunc(after, func() { w.Crash(who); stop() })
			defer dies.Stop()
		}
		o := o
		o.Grace = time.Millisecond
		summary, err := testworld.Made(w, distributor.New, who, s, o).Run(ctx)
		stop()
		if err == nil || times > most {
			proof.Is(t, err, nil, "the last", times, "times")
			return summary, times
		}
	}
}

func TestANamedRunIsGivenAgainUntilItIsSent(t *testing.T) {
	for seed := range uint64(6) {
		testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			w.Engine.BarrierAge = 2 * time.Second
			s := &testworld.ListSource{Print: "a", N: 5000, Pace: 10 * time.Millisecond}
			last, times := crashing(t, w, seed, 5, s, nightly)
			w.Collect().Expect(t, w.Segments(), last.Run, s, s.N, -1)
			row := w.RunRow(last.Run)
			if row.State != workload.RunSealed || row.Tasks != 5000 || row.Mode != "named" || row.Name != nightly.Name {
				t.Errorf("seed %d: the run's row after %d times: %+v", seed, times, row)
			}
			before := w.Requests("PutMessage")
			again, err := testworld.Made(w, distributor.New, "late", s, nightly).Run(t.Context())
			if err != nil || again.Again != "sealed" || again.Run != last.Run || again.Tasks != 5000 ||
				w.Requests("PutMessage") != before {
				t.Errorf("seed %d: given again after its end: %+v, %v", seed, again, err)
			}
		})
	}
}

func TestOfManyCommandsOneSendsANamedRun(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 8000, Pace: 10 * time.Millisecond}
		var taken, sent int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				summary, err := testworld.Made(w, distributor.New, fmt.Sprintf("d%d", i), s, nightly).Run(t.Context())
				mu.Lock()
				defer mu.Unlock()
				var by *distributor.TakenError
				switch {
				case errors.As(err, &by) && strings.HasPrefix(by.By, "d") && strings.Contains(err.Error(), by.By):
					taken++
				case err == nil && summary.Envelopes > 0:
					sent++
				default:
					t.Errorf("d%d: %+v, %v", i, summary, err)
				}
			})
		}
		all.Wait()
		if sent != 1 || taken != 4 {
			t.Errorf("%d sent, and %d were told who sends", sent, taken)
		}
		runs, err := w.AllRuns().List(t.Context(), 10)
		proof.Must(t, err)
		runs = slices.DeleteFunc(runs, func(r workload.Run) bool { return r.Mode != "named" })
		if len(runs) != 1 {
			t.Fatalf("%d runs", len(runs))
		}
		w.Collect().Expect(t, w.Segments(), runs[0].ID, s, s.N, s.N)
	})
}

func TestAnotherSourceUnderANameIsRefused(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 3000, Pace: 10 * time.Millisecond}
		begun := testworld.Begun(w, distributor.New, "d1", s, nightly)
		time.Sleep(15 * time.Second)
		w.Crash("d1")
		before := w.Requests("PutMessage")
		for _, stage := range []string{"open", "sealed"} {
			other := &testworld.ListSource{Print: "b", N: 3000}
			summary, err := testworld.Made(w, distributor.New, "other", other, nightly).Run(t.Context())
			var wrong *pump.ConfigError
			if !errors.As(err, &wrong) || wrong.Field != "name" || !strings.Contains(err.Error(), `"a"`) ||
				!strings.Contains(err.Error(), `"b"`) || summary.Envelopes > 0 {
				t.Errorf("%s: %+v, %v", stage, summary, err)
			}
			if stage == "open" {
				if puts := w.Requests("PutMessage"); puts != before {
					t.Errorf("%d puts of a source that was refused", puts-before)
				}
				_, err := testworld.Made(w, distributor.New, "d2", s, nightly).Run(t.Context())
				proof.Must(t, err)
			}
		}
		begun.Stop()
		_ = begun.Wait()
	})
}

// A stream is read from its start again, and is the same as far as it was sent, or refused.
func TestAStreamUnderANameIsReadAgainAndCompared(t *testing.T) {
	for name, changed := range map[string]int{"same": -1, "another first record": 0, "another record": 700, "shorter": -2} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				w.Engine.BarrierAge = time.Second
				s := &testworld.ListSource{N: 3000, Pace: 10 * time.Millisecond}
				o := nightly
				o.Grace = time.Millisecond
				ctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(15*time.Second, func() { w.Crash("d1"); stop() })
				if _, err := testworld.Made(w, distributor.New, "d1", s, o).Run(ctx); err == nil {
					t.Fatal("it was sent to its end")
				}
				again := &testworld.ListSource{N: 3000}
				switch {
				case changed >= 0:
					again.Key = func(i int) string {
						if i == changed {
							return "other"
						}
						return fmt.Sprintf("key %d", i%97)
					}
				case changed == -2:
					again.N = 500
				}
				before := w.Requests("PutMessage")
				summary, err := testworld.Made(w, distributor.New, "d2", again, nightly).Run(t.Context())
				if changed == -1 {
					proof.Must(t, err)
					w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, -1)
					return
				}
				var wrong *pump.ConfigError
				if !errors.As(err, &wrong) || wrong.Field != "name" || w.Requests("PutMessage") != before {
					t.Fatalf("%d puts, %v", w.Requests("PutMessage")-before, err)
				}
				if changed != 0 && !errors.Is(err, source.ErrSourceChanged) && !strings.Contains(err.Error(), "records") {
					t.Errorf("it does not say what differs: %v", err)
				}
			})
		})
	}
}

// A stream whose sender lost the lead cannot be sent by the same process: it says what goes on.
func TestAStreamWhoseLeaderWasCutOffGoesOnWithTheNextCommand(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Engine.BarrierAge = time.Second
		s := &testworld.ListSource{N: 8000, Pace: 10 * time.Millisecond}
		begun := testworld.Begun(w, distributor.New, "d1", s, nightly)
		time.Sleep(10 * time.Second)
		dark := w.Sim.Inject(azsim.Rule{Instance: "d1", Service: "table", Fault: azsim.FailBefore})
		time.Sleep(40 * time.Second)
		dark.Remove()
		if err := begun.Wait(); !errors.Is(err, source.ErrNotReplayable) || !strings.Contains(err.Error(), "give the command again") {
			t.Fatalf("cut off: %v", err)
		}
		summary, err := testworld.Made(w, distributor.New, "d2", s, nightly).Run(t.Context())
		proof.Must(t, err)
		w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, -1)
	})
}
