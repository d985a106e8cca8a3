package member_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// TestReadinessSaysTheTruth: a processor is ready while it holds its share and
// every account answers, and says why when it is not.
func TestReadinessSaysTheTruth(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 20*time.Second) }}
		p := testworld.Made(w, processor.New, "p", h, processor.Options{Concurrency: 1})
		is := func(when, phase string, reasons ...string) {
			t.Helper()
			s := p.State()
			if s.Phase != phase || s.Ready != (len(reasons) == 0) || len(s.Reasons) != len(reasons) {
				t.Errorf("%s: %s, ready %v, %q", when, s.Phase, s.Ready, s.Reasons)
				return
			}
			for i, want := range reasons {
				if !strings.Contains(s.Reasons[i], want) {
					t.Errorf("%s: %q, want %q", when, s.Reasons[i], want)
				}
			}
			if text, err := json.Marshal(s); err != nil || strings.Contains(string(text), `s":null`) {
				t.Errorf("%s: a list that is none: %s (%v)", when, text, err)
			}
		}
		is("before Run", "stopped", "it is not running")
		run := testworld.Start(w.T, p)
		time.Sleep(time.Millisecond)
		is("without an answer yet", "starting", "it is starting")
		time.Sleep(10 * time.Second)
		is("at work", "working")
		s := p.State()
		if c := s.Cluster; c.Members != 1 || c.Rank != 0 || c.Held != c.Segments || c.Planned != c.Segments || c.Segments == 0 || c.Missing+c.Unowned != 0 || s.Queues != 4 {
			t.Errorf("%+v, %d queues", c, s.Queues)
		}

		dark := w.Fault(azsim.Rule{Account: "accountb", Fault: azsim.FailBefore})
		time.Sleep(40 * time.Second)
		is("an account is dark", "working", "account accountb has not answered for")
		dark.Remove()
		time.Sleep(20 * time.Second)
		is("it is back", "working")
		refused := w.Fault(azsim.Rule{Account: "accountb", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		time.Sleep(40 * time.Second)
		is("it refuses", "working", "account accountb refuses the credential")
		refused.Remove()
		time.Sleep(2 * time.Minute)
		is("it does not any more", "working")
		control := w.Fault(azsim.Rule{Service: "table", Fault: azsim.HangBefore})
		time.Sleep(time.Minute)
		if s := p.State(); s.Ready || s.Cluster.DarkSeconds < 30 || !slices.ContainsFunc(s.Reasons, func(r string) bool { return strings.Contains(r, "the control account has not answered") }) {
			t.Errorf("without its control account: %q, dark for %v s", s.Reasons, s.Cluster.DarkSeconds)
		}
		control.Remove()
		time.Sleep(2 * time.Minute)
		is("it is back", "working")

		w.Put("accounta", "work-00", 1, 2)
		time.Sleep(15 * time.Second)
		proof.Same(t, p.State().Messages, 1, "messages in hand")
		run.Stop()
		time.Sleep(time.Second)
		is("told to stop", "draining", "it is stopping")
		<-run.Done
		is("after Run", "stopped", "it is not running")
		if s := p.State(); s.Done.Handled != run.Summary.Handled || s.Done.Handled != 1 {
			t.Errorf("the counts are not kept: %+v", s.Done)
		}
	})
}

// TestWhoLacksSegmentsIsNotReady, until they are handed over; and no other process is
// the less ready for it.
func TestWhoLacksSegmentsIsNotReady(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		a, b := testworld.Made(w, processor.New, "a", &testworld.Seen{}, processor.Options{}), testworld.Made(w, processor.New, "b", &testworld.Seen{}, processor.Options{})
		first := testworld.Start(w.T, a)
		time.Sleep(30 * time.Second)
		second := testworld.Start(w.T, b)
		lacked := false
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			s := b.State()
			if s.Cluster.Missing > 0 {
				lacked = true
				if s.Ready || !slices.ContainsFunc(s.Reasons, func(r string) bool { return strings.HasPrefix(r, "it lacks ") }) {
					t.Errorf("it lacks %d and says %q", s.Cluster.Missing, s.Reasons)
				}
			}
		}
		sa, sb := a.State(), b.State()
		if !lacked || !sa.Ready || !sb.Ready || sa.Cluster.Held+sb.Cluster.Held != sa.Cluster.Segments || sa.Cluster.Rank+sb.Cluster.Rank != 1 || sb.Cluster.Members != 2 {
			t.Errorf("in the end: lacked %v, %+v %q and %+v %q", lacked, sa.Cluster, sa.Reasons, sb.Cluster, sb.Reasons)
		}
		first.End()
		second.End()
	})
}

// TestADistributorsCountersOnlyGrow, over all its distributions, and State says
// whether it distributes or stands by.
func TestADistributorsCountersOnlyGrow(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		source := &testworld.ListSource{Print: "p", N: 50, Pace: 100 * time.Millisecond, Bad: map[int]bool{7: true}}
		d := testworld.Made(w, distributor.New, "d", source, distributor.Options{Every: 10 * time.Second, OnBadLine: distributor.BadLineSkip})
		if s := d.State(); s.Ready || s.Phase != "stopped" {
			t.Errorf("before Run: %+v", s)
		}
		run := testworld.Start(w.T, d)
		phases := map[string]int{}
		var before distributor.Counts
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			s := d.State()
			phases[s.Phase]++
			now := s.Done
			if now.Tasks < before.Tasks || now.Envelopes < before.Envelopes || now.BytesIn < before.BytesIn || now.Skipped < before.Skipped || now.Sent < before.Sent {
				t.Fatalf("%+v after %+v", now, before)
			}
			before = now
			proof.Same(t, (s.Phase == "distributing"), (s.Run != ""), s.Phase, "of run", s.Run)
			if s.Phase == "standby" && !s.Ready {
				t.Errorf("standing by: %q", s.Reasons)
			}
		}
		run.Stop()
		<-run.Done
		s := d.State()
		if phases["distributing"] < 100 || phases["standby"] < 100 || s.Done.Sent < 3 || s.Done.Tasks < s.Done.Sent*49 || s.Done.Skipped < s.Done.Sent || s.Done.Failed > 1 {
			t.Errorf("%v, %+v", phases, s.Done)
		}
		if s.Ready || s.Phase != "stopped" {
			t.Errorf("after Run: %+v", s)
		}
	})
}

// TestADistributorThatCannotJoinIsReady, because it does without the cluster:
// here another process has its name there.
func TestADistributorThatCannotJoinIsReady(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		twin := w.Owner("d")
		defer twin.Leave(context.Background())
		d := testworld.Made(w, distributor.New, "d", &testworld.ListSource{Print: "p", N: 100, Pace: 100 * time.Millisecond}, distributor.Options{})
		run := testworld.Start(w.T, d)
		time.Sleep(7 * time.Second)
		if s := d.State(); s.Phase != "distributing" || !s.Ready || s.Reasons == nil || s.Cluster.Members != 0 {
			t.Errorf("%s, ready %v, %q, %+v", s.Phase, s.Ready, s.Reasons, s.Cluster)
		}
		run.Stop()
		<-run.Done
	})
}

// P8.2: who puts tasks back into a queue that may have been idle for long tells their owner; also
// one that is given up is something to look at, in mode once. An owner that cannot be told holds
// nothing up.
func TestP82TheOwnerIsToldOfWhatComesBackFromQuarantine(t *testing.T) {
	for _, c := range []struct {
		name     string
		delivery string
		settle   func(*quarantine.Quarantine, context.Context, quarantine.Filter, quarantine.Options, func(quarantine.Outcome) bool) error
		dark     bool
		told     bool
	}{
		{"redriven", string(pump.AtLeastOnce), (*quarantine.Quarantine).Redrive, false, true},
		{"redriven, once", string(pump.Once), (*quarantine.Quarantine).Redrive, false, true},
		{"dropped", string(pump.AtLeastOnce), (*quarantine.Quarantine).Drop, false, false},
		{"dropped, once", string(pump.Once), (*quarantine.Quarantine).Drop, false, true},
		{"redriven while the cluster cannot be read", string(pump.AtLeastOnce), (*quarantine.Quarantine).Redrive, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			testworld.In(t, workload.Spec{Delivery: c.delivery}, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				p, _ := joiner(w, "p", "work", func(cfg *pump.Config, _ *member.Options) { cfg.Delivery = pump.Delivery(c.delivery) })
				defer p.Leave(t.Context())
				w.Within(time.Minute, "p owns the segment", func() bool { _, ok := p.Hold(testworld.SomeSegment); return ok })
				w.Poison("accounta", testworld.SomeSegment, codec.ReasonAttempts, time.Now(), "key")
				cfg := w.Config("operator", 2)
				sent := &testkit.List{}
				cfg.Nudge = func(_ context.Context, n pump.Nudge) error {
					sent.Nudged(n)
					return nil
				}
				q, err := quarantine.Open(t.Context(), cfg)
				proof.Must(t, err)
				if c.dark {
					w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.FailBefore, Partition: "work"}, "QueryEntities")
				}
				settled := 0
				if err := c.settle(q, t.Context(), quarantine.Filter{}, quarantine.Options{}, func(o quarantine.Outcome) bool {
					if o.Outcome != quarantine.Kept {
						settled++
					}
					return true
				}); err != nil || settled != 1 {
					t.Fatalf("%d messages settled: %v", settled, err)
				}
				account, queue := w.Home(testworld.SomeSegment)
				var want []pump.Nudge
				if c.told {
					want = []pump.Nudge{{Address: "p.example:80", Instance: "p", Queue: account + "/" + queue, Here: true}}
				}
				proof.Alike(t, sent.Take(), want, "told")
			})
		})
	}
}
