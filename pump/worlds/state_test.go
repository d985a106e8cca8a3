package worlds

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// TestReadinessSaysTheTruth: a processor is ready while it holds its share and
// every account answers, and says why when it is not.
func TestReadinessSaysTheTruth(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 20*time.Second) }}
		p := w.processor(h, processor.Options{Concurrency: 1})
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
		run := w.start(p)
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
		if s := p.State(); s.Messages != 1 {
			t.Errorf("%d messages in hand", s.Messages)
		}
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
	inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		a, b := w.processorOf("a", &testworld.Seen{}, processor.Options{}), w.processorOf("b", &testworld.Seen{}, processor.Options{})
		first := w.start(a)
		time.Sleep(30 * time.Second)
		second := w.start(b)
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
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "p", N: 50, Pace: 100 * time.Millisecond, Bad: map[int]bool{7: true}}
		d := w.distributor("d", source, distributor.Options{Every: 10 * time.Second, OnBadLine: distributor.BadLineSkip})
		if s := d.State(); s.Ready || s.Phase != "stopped" {
			t.Errorf("before Run: %+v", s)
		}
		run := w.startDistributor(d)
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
			if (s.Phase == "distributing") != (s.Run != "") {
				t.Errorf("%s of run %q", s.Phase, s.Run)
			}
			if s.Phase == "standby" && !s.Ready {
				t.Errorf("standing by: %q", s.Reasons)
			}
		}
		run.cancel()
		<-run.done
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
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		twin := w.owner("d")
		defer twin.Leave(context.Background())
		d := w.distributor("d", &testworld.ListSource{Print: "p", N: 100, Pace: 100 * time.Millisecond}, distributor.Options{})
		run := w.startDistributor(d)
		time.Sleep(7 * time.Second)
		if s := d.State(); s.Phase != "distributing" || !s.Ready || s.Reasons == nil || s.Cluster.Members != 0 {
			t.Errorf("%s, ready %v, %q, %+v", s.Phase, s.Ready, s.Reasons, s.Cluster)
		}
		run.cancel()
		<-run.done
	})
}
