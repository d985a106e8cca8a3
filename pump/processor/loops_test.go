package processor

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/workloads"
)

func TestLoopsGoRoundWhateverHappens(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
		p := testworld.Made(w, New, "p", h, Options{Concurrency: 1})
		if loops := p.Loops(); len(loops) > 0 {
			t.Errorf("outside of Run there are %v", loops)
		}
		run := testworld.Start(w.T, p)
		fine := func(when string, during time.Duration) {
			t.Helper()
			if names := testworld.Stuck(p, during); len(names) > 0 {
				t.Errorf("%s: %q are stuck", when, names)
			}
		}
		fine("at its start, and idle", 10*time.Minute)
		if loops := p.Loops(); len(loops) != 3 || slices.ContainsFunc(loops, func(l pump.LoopState) bool { return l.Most == 0 }) {
			t.Errorf("at work there are %v", loops)
		}
		for _, f := range []azsim.Rule{
			{Account: "accountb", Fault: azsim.HangBefore},
			{Account: "accountb", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"},
			{Service: "table", Fault: azsim.HangBefore},
			{Fault: azsim.FailBefore},
		} {
			f := w.Fault(f)
			fine(w.Sim.Faults(), 10*time.Minute)
			f.Remove()
		}
		for n := range 40 {
			w.Put("accounta", "work-00", 10*n, 10*n+1)
		}
		fine("with a slow handler", 20*time.Minute)
		dark := w.Fault(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
		fine("with a slow handler and nothing that wakes the poller", 10*time.Minute)
		dark.Remove()
		run.End()
	})
}

func TestAPollerThatIsStuckDoesNotGoRound(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var planted atomic.Bool
		release := make(chan struct{})
		cfg := w.Config("p", 2)
		sim.In(&cfg).Seeding.Turn = func(operation, _ string) {
			if operation == "poll" && planted.Load() {
				<-release
			}
		}
		p, err := New(cfg, &testworld.Seen{}, Options{})
		must(t, err)
		run := testworld.Start(w.T, p)
		if names := testworld.Stuck(p, 5*time.Minute); len(names) > 0 {
			t.Errorf("%q are stuck", names)
		}
		planted.Store(true)
		proof.Alike(t, testworld.Stuck(p, 5*time.Minute), []string{"poller"}, "are stuck")
		planted.Store(false)
		close(release)
		run.End()
	})
}

// TestAProcessorThatWaitsForItsWorkloadSaysSo: who supervises it need not wait.
func TestAProcessorThatWaitsForItsWorkloadSaysSo(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("p", 2)
		cfg.Workload = "none-yet"
		p, err := New(cfg, &testworld.Seen{}, Options{})
		must(t, err)
		run := testworld.Start(w.T, p)
		time.Sleep(time.Minute)
		if s := p.State(); !s.NoWorkload || s.Phase != "starting" || len(s.Reasons) != 2 {
			t.Errorf("%+v", s)
		}
		dark := w.Fault(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
		time.Sleep(time.Minute)
		if s := p.State(); s.NoWorkload || s.Phase != "starting" {
			t.Errorf("without an answer: %+v", s)
		}
		dark.Remove()
		run.End()
	})
}

// An account that is dark when the workload is paused is seen to answer again, though processors
// get nothing, and no loop stands still.
func TestAPausedProcessorSeesThatAnAccountAnswersAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Made(w, New, "p", &testworld.Seen{}, Options{})
		run := testworld.Start(w.T, p)
		time.Sleep(time.Minute)
		w.Sim.Hang("accountb", true)
		time.Sleep(time.Minute)
		must(t, proof.ErrOf(workloads.Pause(t.Context(), w.Operator(), "me", workloads.PauseOptions{})))
		time.Sleep(time.Minute)
		gets := w.Requests("GetMessages")
		if s := p.State(); s.Ready || s.Accounts[1].DownSeconds == 0 {
			t.Errorf("a dark account is not seen: %+v", s.Accounts)
		}
		w.Sim.Hang("accountb", false)
		w.Within(3*time.Minute, "the account is seen to answer", func() bool {
			s := p.State()
			return s.Ready && s.Accounts[1].DownSeconds == 0
		})
		if names := testworld.Stuck(p, 15*time.Minute); len(names) > 0 {
			t.Errorf("%q are stuck", names)
		}
		if n := w.Requests("GetMessages") - gets; n > 0 {
			t.Errorf("%d gets while it is paused", n)
		}
		run.End()
	})
}
