package processor

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// stuck names the loops that are not seen to go round within their time while so long passes.
func stuck(p *Processor, during time.Duration) (names []string) {
	type seen struct {
		rounds uint64
		at     time.Time
	}
	last := map[string]seen{}
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(time.Second) {
		for _, l := range p.Loops() {
			s := last[l.Name]
			if s.at.IsZero() || s.rounds != l.Rounds || l.Most == 0 {
				last[l.Name] = seen{l.Rounds, time.Now()}
			} else if time.Since(s.at) > l.Most && !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}

func TestLoopsGoRoundWhateverHappens(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
		p := w.processor(h, Options{Concurrency: 1})
		if loops := p.Loops(); len(loops) > 0 {
			t.Errorf("outside of Run there are %v", loops)
		}
		run := w.start(p)
		fine := func(when string, during time.Duration) {
			t.Helper()
			if names := stuck(p, during); len(names) > 0 {
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
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
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
		run := w.start(p)
		if names := stuck(p, 5*time.Minute); len(names) > 0 {
			t.Errorf("%q are stuck", names)
		}
		planted.Store(true)
		if names := stuck(p, 5*time.Minute); !slices.Equal(names, []string{"poller"}) {
			t.Errorf("%q are stuck, want the poller", names)
		}
		planted.Store(false)
		close(release)
		run.End()
	})
}

// TestAProcessorThatWaitsForItsWorkloadSaysSo: who supervises it need not wait.
func TestAProcessorThatWaitsForItsWorkloadSaysSo(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		cfg := w.Config("p", 2)
		cfg.Workload = "none-yet"
		p, err := New(cfg, &testworld.Seen{}, Options{})
		must(t, err)
		run := w.start(p)
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
