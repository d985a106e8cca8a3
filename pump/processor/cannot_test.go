package processor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// A processor whose SAS of one account ran out owns no segment that has messages there: others
// read the account. No task stands for longer than two leases of a segment, and when the account
// can be read again its segments are shared as before.
func TestAProcessorThatAloneCannotReadAnAccountOwnsNothingThere(t *testing.T) {
	const leases = 2 * 20 * time.Second
	for _, c := range []struct {
		delivery pump.Delivery
		code     string
		names    string
		alone    string
	}{
		{pump.AtLeastOnce, "AuthenticationFailed", "pqr", "q"},
		{pump.Once, "AuthenticationFailed", "pqr", "q"},
		{pump.Once, "AuthorizationFailure", "pqr", "q"},    // the account's firewall
		{pump.Once, "AuthenticationFailed", "pqrstu", "s"}, // it is none of the first, which vouch
	} {
		t.Run(fmt.Sprint(c.delivery, " ", c.code, " ", c.names), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 3, 2, func(o *azsim.Config) { o.Seed = 7 }, func(t *testing.T, w *testworld.World) {
				w.Cfg.Delivery = c.delivery
				var hs testworld.Handlings
				var all []*started
				for _, name := range strings.Split(c.names, "") {
					o := processor.Options{Concurrency: 16}
					all = append(all, testworld.Begun(w, processor.New, name, hs.Handler(name, 100*time.Millisecond), o))
				}
				w.Settled(len(all))
				owns := func() (all, there int) {
					m := w.ShardMap()
					segments := testworld.Owns(w.View(), c.alone)
					for _, s := range segments {
						if m.Shards[m.Home(s)].Account == "accountb" {
							there++
						}
					}
					return len(segments), there
				}
				if _, there := owns(); there == 0 {
					t.Fatalf("%s owned nothing in accountb before", c.alone)
				}
				tasks := 0
				round := func() {
					t.Helper()
					tasks += w.PutHome(w.EverySegment(), 1)
					time.Sleep(leases)
					proof.Same(t, hs.Tasks(), tasks, "tasks were handled within", leases)
				}
				round()
				rule := w.Fault(azsim.Rule{
					Instance: c.alone, Account: "accountb", Service: "queue",
					Fault: azsim.Answer, Status: 403, Code: c.code,
				})
				for range 10 {
					round()
					for _, m := range w.View().Members { // though it polls none of its queues any more
						if says := fmt.Sprint(m.Cannot); m.Instance == c.alone && says != "[accountb]" {
							t.Errorf("%s says that it cannot read %s", c.alone, says)
						}
					}
					if n, there := owns(); there > 0 || n < w.ShardMap().Segments/(2*len(all)) {
						t.Errorf("%s owns %d segments, %d of them in accountb", c.alone, n, there)
					}
				}
				rule.Remove()
				for range 4 {
					round()
				}
				for _, member := range w.View().Members {
					if len(member.Cannot) > 0 {
						t.Errorf("%s says that it cannot read %v", member.Instance, member.Cannot)
					}
				}
				endEach(all)
			})
		})
	}
}

// An account that refuses all processors moves no segment: none of them would do better.
func TestAnAccountThatNoProcessorCanReadMovesNoSegment(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		var all []*started
		for _, name := range []string{"p", "q", "r"} {
			all = append(all, testworld.Begun(w, processor.New, name, &testworld.Seen{}, processor.Options{}))
		}
		before := w.Settled(3)
		w.Sim.Inject(azsim.Rule{
			Account: "accountb", Service: "queue", Operations: []string{"GetMessages"},
			Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed",
		})
		time.Sleep(5 * time.Minute)
		after, moved := w.Settled(3), 0
		for s, owner := range before.Owners {
			if after.Owners[s].Instance != owner.Instance {
				moved++
			}
		}
		if moved > 0 {
			t.Errorf("%d segments moved", moved)
		}
		epochs := w.View().Owners
		time.Sleep(10 * time.Minute)
		for s, owner := range w.View().Owners {
			proof.Same(t, owner, epochs[s], "segment", s, "moved from … to")
		}
		endEach(all)
	})
}

// The others pass the messages of an owner that died on and on, with growing delays,
// until one of them has its segments; from then on each must soon come to the new owner, though it
// has been delivered many times and there are many others to get it first.
func TestP7WhatADeadOwnerLeavesInASharedQueueIsDoneSoonAfterItsLease(t *testing.T) {
	for _, processors := range []int{4, 16} {
		t.Run(fmt.Sprintf("%d processors", processors), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				var hs testworld.Handlings
				var all []*started
				for i := range processors {
					name := fmt.Sprintf("p%02d", i)
					all = append(all, testworld.Begun(w, processor.New, name, hs.Handler(name, 0), processor.Options{}))
				}
				v := w.Settled(processors)
				time.Sleep(10 * time.Second)
				dead := testworld.Owns(v, "p01")
				w.Fault(azsim.Rule{Instance: "p01", Fault: azsim.FailBefore})
				began := time.Now()
				tasks := 0
				for range 200 / len(dead) {
					tasks += w.PutHome(dead, 1)
				}
				for hs.Tasks() < tasks && time.Since(began) < 20*time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				var delays delays
				for _, h := range hs.Get() {
					delays = append(delays, h.Began.Sub(began))
				}
				slices.Sort(delays)
				t.Logf("done after its last sign of life: %v", delays)
				hs.Check(t)
				// Lease and margin, a beat until somebody looks and one until the others know,
				// and the longest that a message is hidden. Without nudges a delivery is to the
				// owner by one chance in n, so the last of 200 may be passed on for minutes.
				soon := 23*time.Second + 2*member.DefaultBeat*5/4 + passMost + 2*time.Second
				most := delays.percentile(95)
				if hs.Tasks() != tasks || most > soon || delays.percentile(100) > 5*time.Minute {
					t.Errorf("%d of %d tasks, 95%% after %v, all after %v", hs.Tasks(), tasks, most, delays.percentile(100))
				}
				testworld.StopAll(all)
			})
		})
	}
}

// One partition of the ledger that does not answer, or only throttles, is the matter of its
// segments: runs elsewhere end and are forgotten as if it were well, and what waits in its segments
// is done when it answers again.
func TestADarkLedgerPartitionKeepsNoRunElsewhereFromItsEnd(t *testing.T) {
	for _, fault := range []azsim.Rule{{Fault: azsim.Answer}, {Fault: azsim.HangBefore}} {
		t.Run(string(fault.Fault), func(t *testing.T) {
			testworld.In(t, testworld.Once, 2, 4, nil, func(t *testing.T, w *testworld.World) { // 256 segments
				h := &testworld.Seen{}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				q := testworld.Begun(w, processor.New, "q", h, processor.Options{})
				w.Settled(2)
				time.Sleep(time.Minute)
				fault.Service, fault.Partition = "table", "work.ledger.01"
				rule := w.Sim.Inject(fault)
				time.Sleep(time.Minute)
				closed := func(ids ...pump.RunID) func() bool {
					return func() bool {
						for _, id := range ids {
							if w.RunRow(id).State != workload.RunClosed {
								return false
							}
						}
						return true
					}
				}
				waits := w.OneTask(64)
				elsewhere := []pump.RunID{w.OneTask(0), w.OneTask(63), w.OneTask(128), w.OneTask(200), w.OneTask(255)}
				w.Within(2*time.Minute, "runs elsewhere are closed", closed(elsewhere...))
				w.Within(2*time.Minute, "and forgotten", func() bool {
					live, err := w.AllRuns().Live(t.Context())
					return err == nil && !slices.ContainsFunc(live, func(l workload.LiveRun) bool {
						return slices.Contains(elsewhere, l.ID)
					})
				})
				time.Sleep(time.Hour)
				if run := w.RunRow(waits); run.State != workload.RunSealed || run.Over {
					t.Errorf("the run that waits for the partition is %s, over: %v", run.State, run.Over)
				}
				if n := w.Logged("could not all be ended"); n < 1 || n > 70 {
					t.Errorf("it is said %d times in an hour", n)
				}
				rule.Remove()
				w.Within(5*time.Minute, "what waited is done", closed(waits))
				if h.Tasks() != len(elsewhere)+1 || w.Left() != 0 {
					t.Errorf("%d tasks are handled, %d messages are left", h.Tasks(), w.Left())
				}
				p.End()
				q.End()
			})
		})
	}
}
