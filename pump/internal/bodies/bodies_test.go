package bodies_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
)

// large gives every second task a body that fits no message.
func large(i int) []byte {
	if i%2 == 1 {
		return fmt.Appendf(nil, "small %d", i)
	}
	return append(testworld.Incompressible(60_000), fmt.Sprint(i)...)
}

func listOf(tasks int) *testworld.ListSource {
	return &testworld.ListSource{Print: "a", N: tasks, Body: large}
}

var inBlobs = distributor.Options{BlobAbove: 40 << 10, Name: "large"}

// blobs is how many bodies are there.
func blobs(w *testworld.World) (n int) {
	for _, name := range w.Sim.Accounts() {
		n += len(w.Sim.Blobs(name, "work-bodies"))
	}
	return n
}

// expectBodies checks that the handlers saw the bodies that were sent.
func expectBodies(w *testworld.World, seen *testworld.Seen, tasks int) {
	w.T.Helper()
	seen.Mu.Lock()
	defer seen.Mu.Unlock()
	of := map[string]bool{}
	for i := range seen.Order {
		t, n := &seen.Order[i], 0
		fmt.Sscan(t.ID, &n)
		if !bytes.Equal(t.Body, large(n)) || string(t.Key) != fmt.Sprintf("key %d", n%97) {
			w.T.Errorf("task %s has key %q and a body of %d bytes", t.ID, t.Key, len(t.Body))
		}
		of[t.ID] = true
	}
	proof.Same(w.T, len(of), tasks, "tasks that were handled")
}

// swept waits until the run is closed, and its bodies are gone: a closer that begins sweeps.
func swept(w *testworld.World) {
	w.T.Helper()
	w.Within(10*time.Minute, "the run is closed", func() bool {
		return w.RunRow(w.Newest()).State == workload.RunClosed
	})
	w.Within(3*time.Hour, "no body is left", func() bool {
		time.Sleep(time.Minute)
		return blobs(w) == 0
	})
}

func TestHandlersSeeLargeBodiesAndTheSweepRemovesThem(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		seen := &testworld.Seen{}
		var put, got atomic.Int64 // bytes
		heard := func(operation string, bytes int) {
			map[string]*atomic.Int64{"put-blob": &put, "get-blob": &got}[operation].Add(int64(bytes))
		}
		p := testworld.Begun(w, func(c pump.Config, h pump.Handler, o processor.Options) (*processor.Processor, error) {
			c.Hooks.Body = heard
			return processor.New(c, h, o)
		}, "p", seen, processor.Options{})
		w.Settled(1)
		testworld.Ran(w, func(c pump.Config, s source.Source, o distributor.Options) (*distributor.Distributor, error) {
			c.Hooks.Body = heard
			return distributor.New(c, s, o)
		}, "d", listOf(20), inBlobs)
		proof.Same(t, blobs(w), 10, "bodies")
		defer func() {
			bytes := int64(10*60_000 + 5*1 + 5*2) // numbers from 0 to 18 stand behind
			proof.Same(t, put.Load(), bytes, "bytes put")
			proof.Same(t, got.Load(), bytes, "bytes got")
		}()
		w.Within(time.Minute, "all is done", func() bool { return w.Left() == 0 })
		seen.Expect(t, 20, 20)
		expectBodies(w, seen, 20)
		swept(w)
		p.End()
	})
}

// Bodies that come day and night would grow without an end if fewer went.
func TestTheSweepRemovesHundredsOfBodiesASecond(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		w.Settled(1)
		testworld.Ran(w, distributor.New, "d", listOf(2), inBlobs)
		swept(w) // the next one begins after an hour
		at := w.Cfg.Accounts[0].Storage.Container("work-bodies")
		const more = 3000
		for n := range more {
			proof.Must(t, at.Put(t.Context(), fmt.Sprintf("%v/0/%d", w.Newest(), 1000+n), []byte("x"), nil))
		}
		w.Within(3*time.Hour, "a sweep begins", func() bool { return blobs(w) < more })
		began := time.Now()
		w.Within(time.Minute, "no body is left", func() bool { return blobs(w) == 0 })
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the sweep of %d bodies took %v", more, took)
		}
		p.End()
	})
}

// Each process ends in turn after each of its requests, before the answer; another goes on. No task
// is lost or recorded twice, and no body is left.
func TestACrashAfterEachRequestLosesNoBodyAndLeavesNone(t *testing.T) {
	const tasks = 4
	step := 1
	if proof.Less(t) {
		step = 4
	}
	for _, who := range []string{"d", "p"} {
		last := false
		for k := 0; !last; k += step {
			testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
				seen := &testworld.Seen{}
				p := testworld.Begun(w, processor.New, "p", seen, processor.Options{})
				w.Settled(1)
				time.Sleep(5 * time.Second)
				var cut *azsim.Injection
				crash := func() {
					lost := azsim.Rule{Instance: who, Fault: azsim.AnswerLost, Skip: k, First: 1}
					w.Sim.Inject(lost)
					cut = w.Sim.Inject(azsim.Rule{Instance: who, Fault: azsim.FailBefore, Skip: k + 1})
				}
				crash()
				d := testworld.Begun(w, distributor.New, "d", listOf(tasks), inBlobs)
				time.Sleep(10 * time.Second)
				last = cut.Hits() == 0 || k > 200
				other := testworld.Begun(w, processor.New, "q", seen, processor.Options{})
				if who == "d" {
					d.Stop()
					testworld.Ran(w, distributor.New, "e", listOf(tasks), distributor.Options{
						BlobAbove: 40 << 10, Name: "large", Wait: &pump.WaitOptions{},
					})
				}
				p.Stop()
				w.Within(10*time.Minute, "all is done", func() bool { return w.Left() == 0 })
				expectBodies(w, seen, tasks)
				if n := seen.Deliveries(); who == "d" && n != tasks {
					t.Errorf("%d tasks were handled %d times", tasks, n)
				}
				other.End()
				other = testworld.Begun(w, processor.New, "r", seen, processor.Options{})
				swept(w)
				if run := w.RunRow(w.Newest()); run.Tasks != tasks || run.Rest != 0 {
					t.Errorf("%s ends after %d requests: %+v", who, k, run)
				}
				other.End()
				<-p.Done
				<-d.Done
			})
			if t.Failed() {
				t.Fatalf("%s ended after %d requests", who, k)
			}
		}
	}
}

// one puts one large task for a processor, which ends with the test.
func one(t *testing.T, o processor.Options, work func(context.Context, *pump.Task) error,
	test func(w *testworld.World, seen *testworld.Seen, run pump.RunID),
) {
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		seen := &testworld.Seen{Work: work}
		w.Cfg.Retention = 2 * time.Hour
		round := w.Sim.Inject(azsim.Rule{Service: "blob", Account: "accounta", Fault: azsim.FailBefore})
		testworld.Ran(w, distributor.New, "d", listOf(1), inBlobs)
		round.Remove()
		p := testworld.Made(w, processor.New, "p", seen, o)
		started := testworld.Start(t, p)
		test(w, seen, w.Newest())
		started.End()
	})
}

// of is the account that has the only body.
func of(w *testworld.World) string {
	for _, name := range w.Sim.Accounts() {
		if len(w.Sim.Blobs(name, "work-bodies")) > 0 {
			return name
		}
	}
	w.T.Fatal("there is no body")
	return ""
}

func container(w *testworld.World, account string) storage.Container {
	for _, a := range w.Cfg.Accounts {
		if a.Name == account {
			return a.Storage.Container("work-bodies")
		}
	}
	return nil
}

// A body that is gone, or has other bytes, is given up at once with that cause. Its redrive is
// refused until the body is there again.
func TestABodyThatIsGoneIsGivenUpWithItsCause(t *testing.T) {
	for name, spoil := range map[string]func(ctx context.Context, c storage.Container, blob string) error{
		"gone": func(ctx context.Context, c storage.Container, blob string) error { return c.Delete(ctx, blob) },
		"other": func(ctx context.Context, c storage.Container, blob string) error {
			return c.Put(ctx, blob, []byte("x"), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
				testworld.Ran(w, distributor.New, "d", listOf(1), inBlobs)
				c, blob := container(w, of(w)), w.Sim.Blobs(of(w), "work-bodies")[0]
				proof.Must(t, spoil(t.Context(), c, blob))
				seen := &testworld.Seen{}
				p := testworld.Begun(w, processor.New, "p", seen, processor.Options{})
				w.Within(5*time.Minute, "it is in quarantine", func() bool { return len(w.Condemned()) == 1 })
				for _, cause := range w.Condemned() {
					if cause.Reason != "no-body" || !strings.Contains(cause.Detail, blob) || cause.Attempts != 1 {
						t.Errorf("%+v", cause)
					}
				}
				if out := redriven(w); len(out) != 1 || out[0].Outcome != quarantine.Kept {
					t.Errorf("%+v", out)
				}
				proof.Must(t, c.Put(t.Context(), blob, large(0), nil))
				if out := redriven(w); len(out) != 1 || out[0].Outcome != quarantine.Redriven {
					t.Errorf("%+v", out)
				}
				w.Within(5*time.Minute, "it is done", func() bool { return seen.Tasks() == 1 && w.Left() == 0 })
				expectBodies(w, seen, 1)
				swept(w)
				p.End()
			})
		})
	}
}

func redriven(w *testworld.World) (out []quarantine.Outcome) {
	w.T.Helper()
	q, err := quarantine.Open(w.T.Context(), w.Operator())
	proof.Must(w.T, err)
	proof.Must(w.T, q.Redrive(w.T.Context(), quarantine.Filter{}, quarantine.Options{}, func(o quarantine.Outcome) bool {
		out = append(out, o)
		return true
	}))
	return out
}

// A run ends if all accounts deny bodies, and not if some do and another does not answer now.
func TestADarkAccountBesideOneThatDeniesBodiesIsWaitedFor(t *testing.T) {
	for denies, silent := range map[string]string{"accounta": "accountb", "accountb": "accounta", "": ""} {
		testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
			w.Sim.Inject(azsim.Rule{
				Service: "blob", Account: denies, Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch",
			})
			if silent == "" {
				_, err := testworld.Made(w, distributor.New, "d", listOf(1), inBlobs).Run(t.Context())
				proof.Is(t, err, bodies.ErrRefused)
				return
			}
			dark := w.Sim.Inject(azsim.Rule{Service: "blob", Account: silent, Fault: azsim.FailBefore})
			d := testworld.Begun(w, distributor.New, "d", listOf(40), inBlobs) // in both orders of the accounts
			time.Sleep(5 * time.Minute)
			dark.Remove()
			proof.Must(t, d.Wait())
			proof.Same(t, blobs(w), 20, "bodies")
		})
	}
}

// A dark account does not keep bodies from being put; tasks whose bodies are in it wait without an
// attempt, beside others that are done.
func TestADarkAccountOfBodiesIsNotNow(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		dark := w.Sim.Inject(azsim.Rule{Service: "blob", Account: "accounta", Fault: azsim.FailBefore})
		testworld.Ran(w, distributor.New, "d", listOf(20), inBlobs)
		if n := len(w.Sim.Blobs("accountb", "work-bodies")); n != 10 || dark.Hits() == 0 {
			t.Errorf("%d bodies went round, %v", n, dark)
		}
		dark.Remove()
		dark = w.Sim.Inject(azsim.Rule{Service: "blob", Account: "accountb", Fault: azsim.FailBefore})
		seen := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", seen, processor.Options{Concurrency: 2, Retry: pump.RetryPolicy{MaxAttempts: 1}})
		w.Within(3*time.Minute, "the small ones are done", func() bool { return seen.Tasks() == 10 })
		time.Sleep(5 * time.Hour)
		if hits := dark.Hits(); hits == 0 || hits > 5*3600/10 || len(w.Condemned()) > 0 {
			t.Errorf("%d requests, and %v are given up", hits, w.Condemned())
		}
		dark.Remove()
		w.Within(20*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		seen.Expect(t, 20, 20)
		expectBodies(w, seen, 20)
		swept(w)
		p.End()
	})
}

// Tasks whose bodies were in an account that is gone for good wait, and a repair puts them again with
// their bodies elsewhere: their old messages are duplicates then.
func TestARepairBringsBodiesOfALostAccount(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		full := w.Sim.Inject(azsim.Rule{Service: "blob", Account: "accounta", Fault: azsim.FailBefore})
		testworld.Ran(w, distributor.New, "d", listOf(20), inBlobs)
		full.Remove()
		w.Sim.Blackout("accountb", true)
		seen := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", seen, processor.Options{})
		proof.Must(t, proof.ErrOf(accounts.Drain(t.Context(), w.Operator(), "accountb")))
		time.Sleep(time.Hour)
		proof.Must(t, proof.ErrOf(accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{Lost: true})))
		time.Sleep(time.Hour)
		_, poison := w.Sim.Depth("accounta", "work-poison")
		if n := seen.Tasks(); n == 0 || n == 20 || poison > 0 || w.Count("accounta", "work-00") == 0 {
			t.Errorf("%d tasks are done, and %d given up", n, poison)
		}
		cfg := w.Operator()
		cfg.Accounts = cfg.Accounts[:1]
		d, err := distributor.New(cfg, listOf(20), inBlobs)
		proof.Must(t, err)
		sum, err := d.Repair(t.Context(), w.Newest(), distributor.RepairOptions{})
		if err != nil || sum.Missing == 0 {
			t.Errorf("%+v, %v", sum, err)
		}
		w.Within(time.Hour, "all is done", func() bool { return w.Count("accounta", "work-00") == 0 })
		seen.Expect(t, 20, 20)
		expectBodies(w, seen, 20)
		p.End()
	})
}

// While the workload or a run is paused, for longer than the retention, its bodies stay. What goes on
// is done once, and its bodies go.
func TestPausesKeepBodies(t *testing.T) {
	for _, part := range []bool{false, true} {
		testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
			w.Cfg.Retention = 2 * time.Hour
			testworld.Ran(w, distributor.New, "d", listOf(6), inBlobs)
			run := workloads.Part{Run: w.Newest().String()}
			pause := func(on bool) (err error) {
				switch {
				case part && on:
					_, err = workloads.PausePart(t.Context(), w.Operator(), run, "me")
				case part:
					_, err = workloads.ResumePart(t.Context(), w.Operator(), run)
				case on:
					_, err = workloads.Pause(t.Context(), w.Operator(), "me", workloads.PauseOptions{})
				default:
					_, err = workloads.Resume(t.Context(), w.Operator())
				}
				return err
			}
			proof.Must(t, pause(true))
			seen := &testworld.Seen{}
			p := testworld.Begun(w, processor.New, "p", seen, processor.Options{})
			time.Sleep(4 * time.Hour)
			if n := blobs(w); n != 3 || seen.Deliveries() > 0 {
				t.Errorf("%d bodies, and %d tasks were handled", n, seen.Deliveries())
			}
			proof.Must(t, pause(false))
			w.Within(time.Hour, "all is done", func() bool { return w.Left() == 0 })
			seen.Expect(t, 6, 6)
			expectBodies(w, seen, 6)
			swept(w)
			p.End()
		})
	}
}

// A task in quarantine keeps its body, for days, until it is redriven or dropped. An account with
// bodies is not removed.
func TestQuarantineKeepsBodies(t *testing.T) {
	for _, c := range []struct {
		drop, forgot bool // forgot: the run's row is gone by then
	}{{}, {true, false}, {false, true}, {true, true}} {
		bad := errors.New("bad")
		one(t, processor.Options{}, func(context.Context, *pump.Task) error {
			if bad != nil {
				return pump.Reject(bad)
			}
			return nil
		}, func(w *testworld.World, seen *testworld.Seen, run pump.RunID) {
			w.Within(5*time.Minute, "it is in quarantine", func() bool { return len(w.Condemned()) == 1 })
			if time.Sleep(80 * time.Minute); c.forgot {
				time.Sleep(4 * time.Hour)
			}
			proof.Same(w.T, blobs(w), 1, "its body")
			name := of(w)
			w.DrainAccount(name)
			q, err := quarantine.Open(w.T.Context(), w.Operator())
			proof.Must(w.T, err)
			settle, want := q.Redrive, 2
			if bad = nil; c.drop {
				settle, want = q.Drop, 1
			}
			proof.Must(w.T, settle(w.T.Context(), quarantine.Filter{}, quarantine.Options{Again: c.forgot},
				func(quarantine.Outcome) bool { return true }))
			w.Within(5*time.Minute, "it is settled", func() bool {
				return w.Left() == 0 && seen.Deliveries() == want
			})
			time.Sleep(5 * time.Minute)
			_, err = accounts.Remove(w.T.Context(), w.Cfg, name, accounts.RemoveOptions{})
			if blobs(w) == 1 && (err == nil || !strings.Contains(err.Error(), "bodies of tasks")) {
				w.T.Errorf("an account with bodies is removed: %v", err)
			}
			w.Within(5*time.Hour, "no body is left", func() bool {
				time.Sleep(time.Minute)
				return blobs(w) == 0
			})
		})
	}
}

// A run is closed while a task of it is in quarantine. The owner of its segment makes a rest of the run
// hours later; until then its ledger counts the task as before.
func TestABodyStaysBeforeItsRunIsARest(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		testworld.Ran(w, distributor.New, "d", listOf(1), inBlobs)
		run, s, c := w.RunRow(w.Newest()), w.Scribe(), w.Closer("c")
		c.HorizonBy(func(context.Context) (*cluster.View, error) { return w.View(), nil })
		after := func(what string, want int) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
			defer cancel()
			c.Keep(ctx, "c", func(context.Context) bool { return true })
			if row := w.RunRow(run.ID); row.State != workload.RunClosed || row.Rest != 1 || blobs(w) != want {
				t.Errorf("%s: %d bodies, and the run %+v", what, blobs(w), row)
			}
		}
		s.Record(run.ID, nil, testworld.Below(run.Sealed))
		after("its run is closed", 1)
		proof.Must(t, s.Ledger.Prune(t.Context(), []pump.RunID{run.ID}))
		after("its run is a rest", 1)
		proof.Must(t, s.Ledger.Prune(t.Context(), nil, run.ID))
		after("the rest is gone", 0)
	})
}

// A task that was redriven after its run was forgotten keeps its body for as long as it takes: while the
// workload is paused, and while it is tried again and again.
func TestARedrivenTaskOfAForgottenRunKeepsItsBody(t *testing.T) {
	tries := 0
	one(t, processor.Options{}, func(context.Context, *pump.Task) error {
		if tries++; tries == 1 {
			return pump.Reject(errors.New("bad"))
		} else if tries < 5 {
			return pump.RetryAfter(90*time.Minute, errors.New("later"))
		}
		return nil
	}, func(w *testworld.World, seen *testworld.Seen, run pump.RunID) {
		time.Sleep(6 * time.Hour)
		proof.Is(w.T, proof.ErrOf(w.AllRuns().Get(w.T.Context(), run)), pump.ErrNoRun)
		proof.Must(w.T, proof.ErrOf(workloads.Pause(w.T.Context(), w.Operator(), "me", workloads.PauseOptions{})))
		time.Sleep(time.Minute)
		q, err := quarantine.Open(w.T.Context(), w.Operator())
		proof.Must(w.T, err)
		proof.Must(w.T, q.Redrive(w.T.Context(), quarantine.Filter{}, quarantine.Options{Again: true},
			func(quarantine.Outcome) bool { return true }))
		time.Sleep(5 * time.Hour)
		proof.Must(w.T, proof.ErrOf(workloads.Resume(w.T.Context(), w.Operator())))
		w.Within(7*time.Hour, "it is done", func() bool { return seen.Deliveries() == 5 && w.Left() == 0 })
		proof.Same(w.T, len(w.Condemned()), 0, "condemned", w.Condemned())
		w.Within(5*time.Hour, "no body is left", func() bool {
			time.Sleep(time.Minute)
			return blobs(w) == 0
		})
	})
}
