package poll_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/shardmap"
)

func TestRoundRobinReadsEveryQueueOfEveryAccount(t *testing.T) {
	testworld.In(t, testworld.Plain, 5, 8, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(1, 1)
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(2 * time.Second)
		h.Expect(t, tasks, tasks)
		p.End()
	})
}

func TestTasksOfAllQueuesGoOnTogetherUnderOneSchedule(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 4, nil, func(t *testing.T, w *testworld.World) {
		w.Spread(400, 1)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 50*time.Millisecond) }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 10})
		time.Sleep(10 * time.Second) // about 2,000 of 3,200 tasks
		p.Stop()
		h.Mu.Lock()
		bySegment := map[uint32]int{}
		for _, task := range h.Order {
			bySegment[task.Segment]++
		}
		n := len(h.Order)
		h.Mu.Unlock()
		for segment, k := range bySegment {
			if k < n/16 || k > n/4 {
				t.Errorf("segment %d got %d of %d, of 8 queues", segment, k, n)
			}
		}
		proof.Same(t, len(bySegment), 8, "queues were read")
		<-p.Done
	})
}

func TestIdleQueuesCostABoundedNumberOfGets(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct {
		accounts, queues int
		most             float64 // gets a second
	}{{1, 1, 0.25}, {1, 8, 2}, {8, 8, 11}, {10, 40, 11}} {
		t.Run(fmt.Sprint(c.accounts*c.queues), func(t *testing.T) {
			testworld.In(t, testworld.Plain, c.accounts, c.queues, nil, func(t *testing.T, w *testworld.World) {
				p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
				time.Sleep(3 * time.Minute) // to the longest back-off
				before := w.Requests("GetMessages")
				time.Sleep(5 * time.Minute)
				rate := float64(w.Requests("GetMessages")-before) / 300
				if rate > c.most || rate < c.most/3 {
					t.Errorf("%.2f gets a second, want at most %v", rate, c.most)
				}
				t.Logf("%d idle queues: %.2f gets a second", c.accounts*c.queues, rate)
				p.End()
			})
		})
	}
}

func TestOneTaskInAnIdleQueueIsFoundWithinTheBackOff(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 2, 8, nil, func(t *testing.T, w *testworld.World) {
		var at []time.Duration
		var put time.Time
		var mu sync.Mutex // guards both
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(put))
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		for range 20 {
			time.Sleep(5 * time.Minute)
			mu.Lock()
			put = time.Now()
			mu.Unlock()
			w.Put("accountb", "work-03", 1, 1)
		}
		time.Sleep(time.Minute)
		p.End()
		if len(at) != 20 {
			t.Fatalf("%d tasks of 20", len(at))
		}
		for _, d := range at {
			if d > pollIdleLeast*5/4+time.Second {
				t.Errorf("found after %v", d)
			}
		}
	})
}

func TestTheFirstMessageResetsTheBackOff(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(10 * time.Minute)
		w.Put("accounta", "work-00", 1, 1)
		for h.Tasks() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		w.Put("accounta", "work-00", 1, 1)
		for h.Tasks() == 1 {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(began); d > 300*time.Millisecond {
			t.Errorf("the next message took %v", d)
		}
		p.End()
	})
}

func TestSeveralGetsOfABusyQueueAreUnderWayAtOnce(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, func(c *azsim.Config) { c.Limits, c.Latency = azsim.NoLimits(), 100*time.Millisecond }, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 40*32, 1)
		cfg := w.Config("p", 1)
		cfg.Budget = pump.Budget{Account: 1e6, Queue: 1e6}
		h := &testworld.Seen{}
		pr, err := processor.New(cfg, h, processor.Options{})
		proof.Must(t, err)
		p := testworld.Start(w.T, pr)
		for h.Tasks() < 1280 {
			time.Sleep(10 * time.Millisecond)
		}
		d := time.Since(h.Started())
		p.End()
		// One get after the other would take 40 x 100 ms.
		if d > 2500*time.Millisecond {
			t.Errorf("1,280 messages took %v at 100 ms a get", d)
		}
	})
}

func TestNoMoreIsFetchedThanHandlersCanStart(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		w.Spread(30, 200) // 24,000 tasks
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 10*time.Second) }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 20, Grace: time.Second})
		// 2 tasks a second: one envelope takes 100 s.
		time.Sleep(90 * time.Second)
		taken := 0
		for _, s := range setup.Shards(w.Cfg) {
			taken += 30 - w.Visible(s.Account, s.Queue)
		}
		if taken > 2 {
			t.Errorf("%d envelopes of 200 tasks were taken, where one lasts 100 s", taken)
		}
		p.End()
	})
}

// rateBeside is how many tasks of two healthy accounts are handled in ten seconds beside
// one in trouble.
func rateBeside(t *testing.T, trouble func(w *testworld.World)) (tasks int) {
	testworld.In(t, testworld.Plain, 3, 4, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 20*time.Millisecond) }}
		for _, s := range setup.Shards(w.Cfg) {
			w.Put(s.Account, s.Queue, 100, 10)
		}
		trouble(w)
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 10, Grace: time.Second})
		time.Sleep(10 * time.Second) // 5,000 tasks of 12,000
		h.Mu.Lock()
		healthy := map[uint32]bool{}
		for _, s := range setup.Shards(w.Cfg) {
			if s.Account != "accountb" {
				healthy[shardmap.Segment([]byte(s.Account+s.Queue), 64)] = true
			}
		}
		for _, task := range h.Order {
			if healthy[task.Segment] {
				tasks++
			}
		}
		h.Mu.Unlock()
		p.Stop()
		<-p.Done
	})
	return tasks
}

func TestAnAccountInTroubleDoesNotStallTheOthers(t *testing.T) {
	for _, c := range []struct {
		name    string
		trouble func(w *testworld.World)
	}{
		{"throttled", func(w *testworld.World) {
			w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.Answer})
		}},
		{"dark", func(w *testworld.World) { w.Sim.Blackout("accountb", true) }},
		{"hanging", func(w *testworld.World) { w.Sim.Hang("accountb", true) }},
		{"slow", func(w *testworld.World) {
			w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.DelayBefore, Delay: 5 * time.Second})
		}},
		{"forbidden", func(w *testworld.World) {
			w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The pool is the bottleneck: 500 tasks a second, from any queue.
			if n := rateBeside(t, c.trouble); n < 4200 {
				t.Errorf("%d tasks of the healthy accounts in 10 s, want nearly 5,000", n)
			}
		})
	}
}

func TestAQueueInTroubleDoesNotStallTheOthersOfItsAccount(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct {
		name    string
		trouble func(w *testworld.World)
	}{
		{"none", func(*testworld.World) {}},
		{"throttled", func(w *testworld.World) { w.Fault(azsim.Rule{Object: "work-00", Fault: azsim.Answer}) }},
		{"gets that hang", func(w *testworld.World) {
			w.Fault(azsim.Rule{Object: "work-00", Fault: azsim.HangBefore}, "GetMessages")
		}},
		{"slow gets", func(w *testworld.World) {
			w.Fault(azsim.Rule{Object: "work-00", Fault: azsim.DelayBefore, Delay: 3 * time.Second}, "GetMessages")
		}},
		{"deletes that hang", func(w *testworld.World) {
			w.Fault(azsim.Rule{Object: "work-00", Fault: azsim.HangBefore}, "DeleteMessage")
		}},
		{"throttled deletes", func(w *testworld.World) { w.Fault(azsim.Rule{Object: "work-00", Fault: azsim.Answer}, "DeleteMessage") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
				w.Spread(1000, 1)
				c.trouble(w)
				bad := shardmap.Segment([]byte("accounta"+"work-00"), 64)
				var healthy atomic.Int64
				p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
					if task.Segment != bad {
						healthy.Add(1)
					}
					return nil
				}), processor.Options{Grace: time.Second})
				// A message costs two of 2,000 a second: 1,000 of a queue take a second.
				time.Sleep(2 * time.Second)
				proof.Same(t, healthy.Load(), 3000, "tasks of the healthy queues in two seconds")
				deleted := 0
				for _, r := range w.Sim.Stats().Requests {
					if r.Operation == "DeleteMessage" && r.Status == 204 {
						deleted += int(r.Count)
					}
				}
				if deleted < 3000 {
					t.Errorf("%d deletes in two seconds, want 3,000", deleted)
				}
				p.Stop()
				<-p.Done
			})
		})
	}
}

func TestAnAccountThatComesBackSlowIsReadAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accountb", "work-00", 20, 10)
		w.Put("accountb", "work-01", 20, 10)
		w.Sim.Hang("accountb", true)
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		time.Sleep(2 * time.Minute)
		w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.DelayBefore, Delay: queues.TroubledTimeout + 2*time.Second})
		w.Sim.Hang("accountb", false)
		w.Within(5*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		p.End()
	})
}

// Something on the way to the account may ask for any pause, for a moment.
func TestWhatAsksForAnHourIsAskedAgainWithinMinutes(t *testing.T) {
	for _, op := range []string{"GetMessages", "DeleteMessage"} {
		t.Run(op, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.Put("accounta", "work-00", 1, 1)
				w.Fault(azsim.Rule{Fault: azsim.Answer, Status: 503, First: 1, RetryAfter: time.Hour}, op)
				p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
				w.Within(3*time.Minute, "the message is gone", func() bool { return w.Left() == 0 })
				p.End()
			})
		})
	}
}

func TestAProcessorWaitsForItsWorkload(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("p", 1)
		cfg.Workload = "late"
		h := &testworld.Seen{}
		pr, err := processor.New(cfg, h, processor.Options{})
		proof.Must(t, err)
		p := testworld.Start(w.T, pr)
		time.Sleep(time.Minute)
		proof.Same(t, w.Logged("waiting for the workload"), 1, "said … times that it waits")
		w.Cfg.Workload = "late"
		f := queues.Open(&w.Cfg)
		proof.Must(t, proof.ErrOf(workload.Ensure(t.Context(), f.Control, workload.Spec{Name: "late", Shards: setup.Shards(w.Cfg), Delivery: "at-least-once"})))
		proof.Must(t, w.Queue("accounta", "late-00").Create(t.Context()))
		w.Run = w.NewRun()
		w.Put("accounta", "late-00", 1, 4)
		time.Sleep(15 * time.Second)
		h.Expect(t, 4, 4)
		p.End()
	})
}

// What keeps the control account from being asked is said with the wait for it.
func TestAProcessorThatHasNoTokenSaysForWhatItWaits(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("p", 1)
		w.WithoutToken(&cfg, 0)
		p, err := processor.New(cfg, &testworld.Seen{}, processor.Options{})
		proof.Must(t, err)
		s := testworld.Start(t, p)
		time.Sleep(5 * time.Minute)
		proof.Same(t, w.Logged(`error="read accounta/queuepump(work,workload): canceled: it waited for a token`) > 0, true, "the log says it")
		s.Stop()
		<-s.Done
	})
}

func TestWithUntilIdleAMissingWorkloadIsAnError(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("p", 1)
		cfg.Workload = "late"
		pr, err := processor.New(cfg, &testworld.Seen{}, processor.Options{UntilIdle: 5 * time.Second})
		proof.Must(t, err)
		began := time.Now()
		_, err = pr.Run(t.Context())
		if !errors.Is(err, pump.ErrNoWorkload) || !strings.HasSuffix(err.Error(), "and no distributor made it within 5s") || time.Since(began) > 6*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestAProcessorStoppedWhileItWaitsSaysForWhat(t *testing.T) {
	for what, fault := range map[string]*azsim.Rule{
		"waiting for the workload to be created by its first distributor": nil,
		"waiting for the control account to answer":                       {Service: "table", Fault: azsim.HangBefore},
	} {
		testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
			cfg := w.Config("p", 1)
			cfg.Workload = "late"
			if fault != nil {
				w.Fault(*fault)
			}
			pr, err := processor.New(cfg, &testworld.Seen{}, processor.Options{})
			proof.Must(t, err)
			p := testworld.Start(w.T, pr)
			time.Sleep(time.Minute)
			p.Stop()
			<-p.Done
			if p.Err != nil || w.Logged(what) < 2 || w.Logged("stopped while "+what) != 1 {
				t.Errorf("%s: %v", what, p.Err)
			}
		})
	}
}

func TestAProcessorRefusesAWorkloadThatItHasNoCredentialsFor(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("p", 1)
		cfg.Accounts = cfg.Accounts[:1]
		pr, err := processor.New(cfg, &testworld.Seen{}, processor.Options{})
		proof.Must(t, err)
		_, err = pr.Run(t.Context())
		var ce *pump.ConfigError
		if !errors.As(err, &ce) || ce.Field != "accounts" || !strings.Contains(ce.Problem, "accountb") || ce.Fix == "" {
			t.Errorf("%v", err)
		}
	})
}

// TestAProcessorTakesWhatIsPinnedWhereItsConfigurationSaysNothing: neither of segments nor of
// queues.
func TestAProcessorTakesWhatIsPinnedWhereItsConfigurationSaysNothing(t *testing.T) {
	testworld.In(t, workload.Spec{Segments: 1024}, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("p", 0)
		p, err := processor.New(cfg, &testworld.Seen{}, processor.Options{UntilIdle: time.Second})
		proof.Must(t, err)
		proof.Must(t, proof.ErrOf(p.Run(t.Context())))
		proof.Same(t, w.Logged("are not in use"), 0, "it warns of accounts that are in use")
	})
}

func TestAProcessorThatDoesNotKnowThatSegmentsAreSharedRefusesToStart(t *testing.T) {
	testworld.In(t, testworld.Shared, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("p", 2)
		cfg.Segments = 0
		p, err := processor.New(cfg, &testworld.Seen{}, processor.Options{UntilIdle: time.Second})
		proof.Must(t, err)
		_, err = p.Run(t.Context())
		if m, ok := errors.AsType[*pump.MismatchError](err); !ok || m.Field != "segments" || !strings.Contains(m.Fix, "set segments: 0") {
			t.Error(err)
		}
	})
}

func TestAProcessorWarnsOfAnAccountThatIsNotInUse(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		p, err := processor.New(w.Operator(), &testworld.Seen{}, processor.Options{UntilIdle: time.Second})
		proof.Must(t, err)
		proof.Must(t, proof.ErrOf(p.Run(t.Context())))
		if n := w.Logged("accounts of the configuration are not in use"); n != 1 || w.Logged("accounts=accountc") != 1 {
			t.Errorf("%d warnings", n)
		}
	})
}

func TestAProcessorWhoseConfigurationDisagreesRefusesToStart(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		for field, change := range map[string]func(*pump.Config){
			"segments":  func(c *pump.Config) { c.Segments = 1024 },
			"accounts":  func(c *pump.Config) { c.Accounts[0].Queues = 3 },
			"segments ": func(c *pump.Config) { c.Segments = pump.Shared },
		} {
			field = strings.TrimSpace(field)
			cfg := w.Config("p", 2)
			change(&cfg)
			pr, err := processor.New(cfg, &testworld.Seen{}, processor.Options{})
			proof.Must(t, err)
			_, err = pr.Run(t.Context())
			if me, ok := errors.AsType[*pump.MismatchError](err); !ok || me.Field != field || !strings.Contains(me.Fix, "a new workload beside this one") {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

func TestARefusedControlAccountIsAnErrorAtOnce(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{Service: "table", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		began := time.Now()
		_, err := testworld.Made(w, processor.New, "p", &testworld.Seen{}, processor.Options{}).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "accounta") || time.Since(began) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestProgressIsReportedAndEndsWithTheSummary(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(10, 10)
		var last processor.Summary
		calls := 0
		s := testworld.Ran(w, processor.New, "p", &testworld.Seen{}, processor.Options{UntilIdle: 5 * time.Second, Progress: func(p processor.Summary) {
			calls++
			if p.Handled < last.Handled {
				t.Errorf("went back from %d to %d", last.Handled, p.Handled)
			}
			last = p
		}})
		if last.Handled != int64(tasks) || last.Handled != s.Handled || last.Seconds != s.Seconds {
			t.Errorf("last %+v, summary %+v", last, s)
		}
		if perSecond := float64(calls) / s.Seconds; perSecond < 4 || perSecond > 6 {
			t.Errorf("%.1f calls a second", perSecond)
		}
		if s.Requests["accounta"]["delete"] != 20 || s.Requests.Total() < 30 {
			t.Errorf("requests %v", s.Requests)
		}
	})
}
