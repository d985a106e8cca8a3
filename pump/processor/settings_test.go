package processor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/metrics"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/workloads"
)

// set sets values of a workload as an operator does.
func set(w *testworld.World, values map[string]string, unset ...string) workloads.SettingsChange {
	w.T.Helper()
	c, err := workloads.SetSettings(w.T.Context(), w.Operator(), values, unset, "me@here")
	must(w.T, err)
	return c
}

// Over twenty processors, at any moment: the setting is in force in all of them within two beats of
// those that they had, and no task is lost or done twice.
func TestASettingAtAnyMomentIsInForceWithinTwoBeats(t *testing.T) {
	changes := []map[string]string{
		{"beat": "1s"},
		{"beat": "2s", "lease": "30s"},
		{"max-rate": "400"},
		{"beat": "5s", "lease": "15s"},
		{"max-rate": "900", "max-attempts": "5"},
		{"retry-max": "20s", "beat": "1s", "lease": "3s"},
	}
	seeds := uint64(3)
	if proof.Less(t) {
		seeds = 1
	}
	for seed := range seeds {
		testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			const many = 20
			draw := rand.New(rand.NewPCG(seed, 30))
			var seen testworld.Seen
			var all []*testworld.Started[*processor.Processor, processor.Summary]
			for i := range many {
				all = append(all, testworld.Begun(w, processor.New, fmt.Sprintf("p%02d", i), pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
					return errors.Join(testworld.Pause(ctx, 50*time.Millisecond), seen.Handle(ctx, task))
				}), processor.Options{}))
			}
			w.Settled(many)
			tasks, beat := 0, 5*time.Second
			for _, change := range changes {
				tasks += w.Spread(8, 10)
				time.Sleep(time.Duration(draw.Int64N(int64(10 * time.Second))))
				set(w, change)
				time.Sleep(2*beat + time.Second/2)
				v := w.View()
				if late := v.Behind(); len(late) > 0 || len(v.Members) != many {
					t.Fatalf("seed %d: after two beats %v is not in force in %v of %d members", seed, change, late, len(v.Members))
				}
				if text, is := change["beat"]; is {
					beat, _ = time.ParseDuration(text)
				}
				for _, m := range v.Members {
					if m.Every != beat {
						t.Fatalf("seed %d: %s beats each %v, not %v", seed, m.Instance, m.Every, beat)
					}
				}
			}
			set(w, nil, "max-rate", "beat", "lease")
			w.Within(10*time.Minute, "all tasks are done", func() bool { return seen.Tasks() == tasks })
			testworld.StopAll(all)
			seen.Expect(t, tasks, tasks)
			if n := w.Logged("evicted"); n > 0 {
				t.Errorf("seed %d: %d evictions", seed, n)
			}
		})
	}
}

// A rate that is set, changed and taken back while tasks wait for it: the tasks go on at once.
func TestARateIsSetAndTakenBackWhileTasksWait(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		set(w, map[string]string{"max-rate": "0.5"})
		var seen testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &seen, processor.Options{})
		tasks := w.Spread(10, 10)
		time.Sleep(time.Minute)
		if n := seen.Tasks(); n < 20 || n > 35 {
			t.Errorf("%d tasks in a minute at 0.5 a second", n)
		}
		set(w, map[string]string{"max-rate": "1"})
		before := seen.Tasks()
		time.Sleep(30 * time.Second)
		if n := seen.Tasks() - before; n < 20 || n > 42 {
			t.Errorf("%d tasks in 30 s at one a second", n)
		}
		set(w, map[string]string{"max-rate": "0.001"})
		time.Sleep(twoBeats + 10*time.Second) // a task waits for minutes, whatever it had waited before
		set(w, nil, "max-rate")
		w.Within(twoBeats+2*time.Second, "all are done", func() bool { return seen.Tasks() == tasks })
		p.End()
	})
}

// Limits by key are set and taken back while tasks wait.
func TestALimitByKeyIsSetAndTakenBack(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		set(w, map[string]string{"per-key-concurrent": "1"})
		judge := newKeyJudge(2 * time.Second)
		p := testworld.Begun(w, processor.New, "p", judge, processor.Options{Concurrency: 8})
		judge.give(w, slices.Repeat([]string{"a"}, 60), 1000)
		time.Sleep(20 * time.Second)
		proof.Same(t, judge.atOnce("a"), 1, "tasks of a key at once")
		set(w, nil, "per-key-concurrent")
		w.Within(2*time.Minute, "all are done", func() bool { return judge.Tasks() == 60 })
		if n := judge.atOnce("a"); n < 4 {
			t.Errorf("%d tasks of a key at once without a limit", n)
		}
		p.End()
	})
}

// A process that gives a value itself, or one that belongs to it, ends when it starts, with an error
// that names both and the fix; while one runs, the command refuses and names the process.
func TestAValueHasOnePlace(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Begun(w, processor.New, "own", &testworld.Seen{}, processor.Options{Lease: 40 * time.Second, MaxRate: 7})
		w.Settled(1)
		for _, name := range []string{"max-rate=5", "beat=2s"} {
			name, value, _ := strings.Cut(name, "=")
			_, err := workloads.SetSettings(t.Context(), w.Operator(), map[string]string{name: value}, nil, "me")
			if e, is := errors.AsType[*pump.ConfigError](err); !is || e.Field != name || !strings.Contains(err.Error(), "own on") {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.End()
		set(w, map[string]string{"max-rate": "5"})
		_, err := testworld.Made(w, processor.New, "other", &testworld.Seen{}, processor.Options{MaxRate: 7}).Run(t.Context())
		if e, is := errors.AsType[*pump.ConfigError](err); !is || e.Field != "max-rate" || !strings.Contains(err.Error(), "max-rate=5 by me@here") || !strings.Contains(e.Fix, "--unset max-rate") {
			t.Errorf("it runs with its own rate: %v", err)
		}
		log, err := workloads.Log(t.Context(), w.Operator(), time.Time{})
		must(t, err)
		if len(log) != 1 || log[0].What != "set max-rate=5" || log[0].State != workload.LogDone || log[0].By != "me@here" {
			t.Errorf("the log says %+v", log)
		}
	})
}

// Values are checked as flags are, alone and together, before anything is written.
func TestAWrongSettingIsRefused(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		for _, c := range []struct{ name, value, says string }{
			{"beat", "often", "90s"},
			{"beat", "20m", "10m"},
			{"lease", "6s", "three beats"},
			{"max-rate", "0", "--unset max-rate"},
			{"retry-max", "200h", "168h"},
			{"max-age", "-1s", "negative"},
			{"rate", "5", "max-rate"},
			{"retention", "1s", "given to this process"},
			{"currency", "EUR", "both prices"},
			{"per-key-concurrent", "-1", "out of range"},
			{"cost-per-day", "0.0001", "at the least"},
		} {
			if _, err := workloads.SetSettings(t.Context(), w.Operator(), map[string]string{c.name: c.value}, nil, "me"); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s=%s: %v", c.name, c.value, err)
			}
		}
		for name, c := range map[string]struct {
			set   map[string]string
			unset []string
			says  string
		}{
			"no value":          {map[string]string{"max-rate": ""}, nil, "max-rate=5"},
			"a name is no name": {map[string]string{"max-rat": ""}, nil, "no setting is called so"},
			"unset, no name":    {nil, []string{"max-rat"}, "no setting is called so"},
			"set and unset":     {map[string]string{"max-rate": "5"}, []string{"max-rate"}, "set and unset"},
		} {
			_, err := workloads.SetSettings(t.Context(), w.Operator(), c.set, c.unset, "me")
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if c, err := workloads.Settings(t.Context(), w.Operator()); err != nil || len(c.Settings) < 13 || c.Settings[0] != (workloads.Setting{Name: "beat", Value: "5s", From: "default"}) {
			t.Errorf("%+v, %v", c, err)
		}
		if log, err := workloads.Log(t.Context(), w.Operator(), time.Time{}); err != nil || len(log) > 0 {
			t.Errorf("%+v, %v", log, err)
		}
	})
}

// Whoever sets a value, the workload can be read.
func TestALongNameSpoilsNoWorkload(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		name := strings.Repeat("me ", 40_000)
		for set := range map[string]string{"max-rate": "", "max-attempts": ""} {
			must(t, proof.ErrOf(workloads.SetSettings(t.Context(), w.Operator(), map[string]string{set: "5"}, nil, name)))
		}
		must(t, proof.ErrOf(workloads.Pause(t.Context(), w.Operator(), name, workloads.PauseOptions{})))
		must(t, proof.ErrOf(workloads.PausePart(t.Context(), w.Operator(), workloads.Part{Key: []byte("k")}, name)))
		must(t, proof.ErrOf(workloads.Settings(t.Context(), w.Operator())))
	})
}

// A change without an entry in the log is not made; a pause is.
func TestWithoutAnEntryOnlyAPauseIsMade(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Sim.Inject(azsim.Rule{Service: "table", Partition: "work.log", Fault: azsim.FailBefore})
		proof.Says(t, proof.ErrOf(workloads.SetSettings(t.Context(), w.Operator(), map[string]string{"beat": "1s"}, nil, "me")), "nothing was changed", "set")
		pause(w)
		if v := w.View(); len(v.Workload.Settings) > 0 || !v.Workload.Paused.Is() {
			t.Errorf("%+v, %+v", v.Workload.Settings, v.Workload.Paused)
		}
	})
}

// Requests are counted at the prices that an operator sets, and after that at those of before.
func TestAPriceThatIsSetIsTheOneOfTheMetrics(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		var prices []float64
		cfg := w.Config("p", 1)
		cfg.Hooks = metrics.NewCounters(pump.Prices{}).Hooks(pump.Hooks{Priced: func(list pump.Prices) {
			prices = append(prices, list.Queue)
		}})
		p, err := processor.New(cfg, &testworld.Seen{}, processor.Options{})
		must(t, err)
		s := testworld.Start(w.T, p)
		w.Settled(1)
		set(w, map[string]string{"queue-price": "0.3"})
		time.Sleep(11 * time.Second)
		set(w, nil, "queue-price")
		time.Sleep(11 * time.Second)
		s.End() // which the last call of the hook is before
		usual := pump.Prices{}.OrPublished().Queue
		proof.Alike(t, prices, []float64{usual, 0.3, usual}, "the prices")
	})
}
