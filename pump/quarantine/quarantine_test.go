package quarantine_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

func TestQuarantineIsListedOverAllAccountsAndPutBack(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		now := time.Now().Truncate(time.Second)
		for i := range 100 {
			account := "account" + string(rune('a'+i%3))
			reason := []string{codec.ReasonAttempts, codec.ReasonRejected}[i/3%2]
			w.Poison(account, uint32(i%64), reason, now.Add(-time.Duration(i)*time.Minute), "k", fmt.Sprint("key", i%5))
		}
		time.Sleep(time.Second)
		check := func(what string, f quarantine.Filter, want, tasks int) {
			t.Helper()
			got := 0
			ms := listed(w, f)
			for _, m := range ms {
				got += m.Matching
			}
			if len(ms) != want || got != tasks {
				t.Errorf("%s: %d messages with %d tasks, want %d with %d", what, len(ms), got, want, tasks)
			}
		}
		check("all", quarantine.Filter{}, 100, 200)
		check("by reason", quarantine.Filter{Reasons: []string{codec.ReasonRejected}}, 49, 98)
		check("by key", quarantine.Filter{Key: []byte("key2")}, 20, 20)
		check("by time", quarantine.Filter{Since: now.Add(-30*time.Minute - time.Second), Until: now.Add(-10 * time.Minute)}, 20, 40)
		check("by run", quarantine.Filter{Run: pump.RunID{9}}, 0, 0)
		check("limited", quarantine.Filter{Limit: 7}, 7, 14)
		ms := listed(w, quarantine.Filter{})
		check("by id", quarantine.Filter{IDs: []string{ms[0].ID, ms[50].ID}}, 2, 4)
		if m := ms[0]; m.Reason == "" || m.Attempts != 8 || m.Instance != "p" || m.Last == nil || m.First == nil || m.Detail != "flop" || m.Problem != "" || m.Put.IsZero() {
			t.Errorf("%+v", m)
		}
		if tasks, err := ms[0].Open(); err != nil || len(tasks) != 2 || string(tasks[0].Key) != "k" || len(tasks[0].Body) == 0 {
			t.Errorf("%v, %v", tasks, err)
		}
		for _, a := range w.Cfg.Accounts { // all are there for the next one at once
			poison := workload.PoisonQueue("work")
			proof.Same(t, w.Visible(a.Name, poison), min(32, w.Count(a.Name, poison)), a.Name, "visible")
		}
		// Also after the context ended in the midst of it.
		ctx, cancel := context.WithCancel(t.Context())
		err := quarantineOf(w).List(ctx, quarantine.Filter{}, func(*quarantine.Message) bool { cancel(); return true })
		proof.Is(t, err, context.Canceled, "canceled")
		check("after it was canceled", quarantine.Filter{}, 100, 200)
	})
}

// P4.4: what is redriven is tried as if for the first time, and is not visited again
// when it fails again at once.
func TestP44RedriveTriesAgainAsIfForTheFirstTime(t *testing.T) {
	for _, mode := range []pump.Delivery{pump.AtLeastOnce, pump.Once} {
		t.Run(string(mode), func(t *testing.T) {
			testworld.In(t, workload.Spec{Delivery: string(mode)}, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				var good atomic.Bool
				h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
					if task.N%10 == 3 && !good.Load() {
						return pump.Reject(testworld.ErrFlop)
					}
					return nil
				}}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				tasks := w.PutHome(w.EverySegment()[:8], 20)
				time.Sleep(time.Minute)
				if ms := listed(w, quarantine.Filter{}); len(ms) != 8 || ms[0].Matching != 2 || ms[0].Reason != codec.ReasonRejected || ms[0].Generation != 0 {
					t.Fatalf("%d in quarantine: %+v", len(ms), ms[0])
				}
				outs := redrive(w, quarantine.Filter{}, quarantine.Options{Dry: true})
				if len(outs) != 8 || len(w.Condemned()) != 16 {
					t.Errorf("dry: %+v, %d left", outs, len(w.Condemned()))
				}
				// They fail again.
				outs = redrive(w, quarantine.Filter{}, quarantine.Options{Rate: 2})
				if len(outs) != 8 || slices.ContainsFunc(outs, func(o quarantine.Outcome) bool { return o.Outcome != quarantine.Redriven }) {
					t.Errorf("%+v", outs)
				}
				time.Sleep(time.Minute)
				ms := listed(w, quarantine.Filter{})
				if len(ms) != 8 || ms[0].Generation != 1 || ms[0].Attempts != 1 {
					t.Fatalf("quarantined again: %d, %+v", len(ms), ms[0])
				}
				good.Store(true)
				redrive(w, quarantine.Filter{}, quarantine.Options{})
				time.Sleep(time.Minute)
				p.End()
				if len(w.Condemned()) != 0 || w.Left() != 0 {
					t.Errorf("%d in quarantine, %d left", len(w.Condemned()), w.Left())
				}
				h.Expect(t, tasks, tasks+32) // 16 of them three times
				for _, task := range h.Order {
					proof.Same(t, task.Attempt, 1, "attempt")
				}
			})
		})
	}
}

// C10: redriving and dropping wait for no message before the next, unless a rate is given.
func TestRedrivingIsAsFastAsTheBudgetsAllow(t *testing.T) {
	slow := func(c *azsim.Config) { c.Latency = 20 * time.Millisecond }
	testworld.In(t, testworld.Plain, 2, 2, slow, func(t *testing.T, w *testworld.World) {
		fill := func(n int) {
			for i := range n {
				w.Poison(w.Sim.Accounts()[i%2], uint32(i%8), codec.ReasonAttempts, time.Now(), fmt.Sprint(i))
			}
		}
		fill(640)
		began := time.Now()
		outs := redrive(w, quarantine.Filter{Limit: 600}, quarantine.Options{})
		if took := time.Since(began); len(outs) != 600 || took > 5*time.Second {
			t.Errorf("%d of 600 in %v", len(outs), took)
		}
		proof.Same(t, len(listed(w, quarantine.Filter{})), 40, "are left")
		fill(60)
		began = time.Now()
		outs = drop(w, quarantine.Filter{})
		if took := time.Since(began); len(outs) != 100 || took > 2*time.Second {
			t.Errorf("%d of 100 dropped in %v", len(outs), took)
		}
	})
}

// Of an envelope with tasks of several keys only those of one key are redriven or dropped.
func TestP44ByKeyTheOthersStayInQuarantine(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		id := w.Poison("accounta", 5, codec.ReasonAttempts, time.Now(), "a", "b", "a", "c", "b")
		outs := redrive(w, quarantine.Filter{Key: []byte("a")}, quarantine.Options{})
		if len(outs) != 1 || outs[0].Matching != 2 || outs[0].Left != 3 || outs[0].Outcome != quarantine.Redriven {
			t.Fatalf("%+v", outs)
		}
		ms := listed(w, quarantine.Filter{})
		if len(ms) != 1 || ms[0].ID != id || ms[0].Tasks != 3 || ms[0].Reason != codec.ReasonAttempts || ms[0].Detail != "flop" || ms[0].Generation != 0 {
			t.Errorf("%+v", ms[0])
		}
		outs = drop(w, quarantine.Filter{Key: []byte("c")})
		if len(outs) != 1 || outs[0].Outcome != quarantine.Dropped || outs[0].Left != 2 {
			t.Errorf("%+v", outs)
		}
		h := &testworld.Seen{}
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, 2, 2)
		for _, task := range h.Order {
			if string(task.Key) != "a" || task.N != 0 && task.N != 2 {
				t.Errorf("%+v", task)
			}
		}
		tasks, err := listed(w, quarantine.Filter{})[0].Open()
		if err != nil || len(tasks) != 2 || tasks[0].N != 1 || tasks[1].N != 4 {
			t.Errorf("%v, %v", tasks, err)
		}
	})
}

// P4.4, window 17: put, then delete. A crash between the two, and every request that is
// lost or whose answer is, leaves tasks in both places and never in none; in delivery mode
// once each is still done once.
func TestP44ACrashOrALostRequestBetweenTheStepsLosesNothing(t *testing.T) {
	proof.Only(t)
	for _, mode := range []pump.Delivery{pump.AtLeastOnce, pump.Once} {
		for _, fault := range []azsim.FaultKind{azsim.FailBefore, azsim.AnswerLost} {
			for _, op := range []string{"PutMessage", "DeleteMessage", "UpdateMessage", "GetMessages"} {
				for _, first := range []int{1, 100} { // once, or until the command gives up
					t.Run(fmt.Sprintf("%s, %s %s %d", mode, fault, op, first), func(t *testing.T) {
						testworld.In(t, workload.Spec{Delivery: string(mode)}, 1, 2, nil, func(t *testing.T, w *testworld.World) {
							var good atomic.Bool
							effects := map[string]int{}
							h := pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
								if !good.Load() {
									return pump.Reject(testworld.ErrFlop)
								}
								effects[testworld.Identity(task)]++
								return nil
							})
							p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 1})
							w.PutHome([]uint32{9}, 3)
							time.Sleep(time.Minute)
							good.Store(true)
							hit := w.Sim.Inject(azsim.Rule{Instance: "operator", Service: "queue", Operations: []string{op}, Fault: fault, First: first})
							_ = quarantineOf(w).Redrive(t.Context(), quarantine.Filter{}, quarantine.Options{}, func(quarantine.Outcome) bool { return true })
							if op != "UpdateMessage" && hit.Hits() == 0 {
								t.Error("the fault was not met")
							}
							hit.Remove()
							time.Sleep(quarantine.Lease + time.Minute) // what was hidden is back
							redrive(w, quarantine.Filter{}, quarantine.Options{})
							time.Sleep(time.Minute)
							p.End()
							if len(effects) != 3 || len(w.Condemned()) != 0 || w.Left() != 0 {
								t.Errorf("%d of 3 done, %d in quarantine, %d left", len(effects), len(w.Condemned()), w.Left())
							}
							for id, n := range effects {
								if n != 1 && mode == pump.Once {
									t.Errorf("%s was done %d times", id, n)
								}
							}
						})
					})
				}
			}
		}
	}
}

// P4.4: the owner is told before the message is deleted. Whatever is lost between the
// two, dropping again ends with every task recorded as done, and none in quarantine for ever.
func TestP44ADropThatIsCutShortIsMadeGoodByTheNext(t *testing.T) {
	proof.Only(t)
	for _, fault := range []azsim.FaultKind{azsim.FailBefore, azsim.AnswerLost} {
		for _, op := range []string{"PutMessage", "DeleteMessage", "UpdateMessage"} {
			t.Run(fmt.Sprintf("%s %s", fault, op), func(t *testing.T) {
				testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
					h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return pump.Reject(testworld.ErrFlop) }}
					p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
					w.PutHome([]uint32{9}, 3)
					time.Sleep(time.Minute)
					hit := w.Sim.Inject(azsim.Rule{Instance: "operator", Service: "queue", Operations: []string{op}, Fault: fault, First: 100})
					_ = quarantineOf(w).Drop(t.Context(), quarantine.Filter{}, quarantine.Options{}, func(quarantine.Outcome) bool { return true })
					hit.Remove()
					// Nothing is nowhere: in quarantine still, or recorded as done soon.
					time.Sleep(quarantine.Lease + time.Minute)
					done, quarantined := recorded(w)
					if done+quarantined != 3 || quarantined > 0 && len(w.Condemned()) == 0 {
						t.Errorf("in between: %d done, %d quarantined, %d in the queue", done, quarantined, len(w.Condemned()))
					}
					drop(w, quarantine.Filter{})
					time.Sleep(time.Minute)
					p.End()
					if done, quarantined = recorded(w); done != 3 || quarantined != 0 || len(w.Condemned()) != 0 || w.Left() != 0 {
						t.Errorf("%d done, %d quarantined, %d in the queue", done, quarantined, len(w.Condemned()))
					}
					h.Expect(t, 3, 3)
				})
			})
		}
	}
}

// P4.4: a dropped task is recorded as done by its segment's owner, and what the owner
// has recorded as done is not done when somebody redrives it after all.
func TestP44ADroppedTaskCountsAsDoneInDeliveryModeOnce(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var good atomic.Bool
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if !good.Load() {
				return pump.Reject(testworld.ErrFlop)
			}
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.PutHome([]uint32{3, 11}, 5)
		time.Sleep(time.Minute)
		if d, q := recorded(w); d != 0 || q != 10 {
			t.Fatalf("%d done, %d quarantined", d, q)
		}
		copies := map[string][]byte{}
		for _, m := range listed(w, quarantine.Filter{}) {
			copies[m.Account] = m.Text()
		}
		outs := drop(w, quarantine.Filter{})
		if len(outs) != 2 || outs[0].Outcome != quarantine.Dropped {
			t.Errorf("%+v", outs)
		}
		time.Sleep(time.Minute)
		if d, q := recorded(w); d != 10 || q != 0 || len(w.Condemned()) != 0 || w.Left() != 0 {
			t.Errorf("after the drop: %d done, %d quarantined, %d messages left", d, q, w.Left())
		}
		h.Expect(t, 10, 10)
		// A copy that was left behind by a crash.
		good.Store(true)
		for account, text := range copies {
			w.PutText(account, workload.PoisonQueue("work"), text)
		}
		redrive(w, quarantine.Filter{}, quarantine.Options{})
		time.Sleep(time.Minute)
		s := p.End()
		h.Expect(t, 10, 10)
		if d, q := recorded(w); d != 10 || q != 0 || s.Duplicates != 10 || w.Left() != 0 {
			t.Errorf("after the redrive: %d done, %d quarantined, %+v", d, q, s)
		}
	})
}
