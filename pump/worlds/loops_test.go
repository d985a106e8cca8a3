package worlds

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// stuckLoops watches the loops of a process as a service manager's watchdog does.
type stuckLoops struct {
	of    interface{ Loops() []pump.LoopState }
	last  map[string]roundsSeen
	moved map[string]bool
}

type roundsSeen struct {
	rounds uint64
	at     time.Time
}

func watchLoops(d interface{ Loops() []pump.LoopState }) *stuckLoops {
	return &stuckLoops{d, map[string]roundsSeen{}, map[string]bool{}}
}

// during names the loops that stand still for too long while so much time passes.
func (w *stuckLoops) during(d time.Duration) (stuck []string) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		for _, l := range w.of.Loops() {
			s := w.last[l.Name]
			if s.rounds != l.Rounds || l.Most == 0 || s.at.IsZero() {
				w.moved[l.Name] = w.moved[l.Name] || s.rounds < l.Rounds
				w.last[l.Name] = roundsSeen{l.Rounds, time.Now()}
			} else if time.Since(s.at) > l.Most && !slices.Contains(stuck, l.Name) {
				stuck = append(stuck, l.Name)
			}
		}
	}
	return stuck
}

// TestADistributorsLoopsGoRoundWhateverHappens: who supervises it ends a distributor whose loops
// stand still, and must not end one whose accounts do.
func TestADistributorsLoopsGoRoundWhateverHappens(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "p", N: 20_000, Pace: 100 * time.Millisecond}
		d := w.distributor("d", source, distributor.Options{Every: time.Second})
		run := w.startDistributor(d)
		loops := watchLoops(d)
		watch := func(when string, during time.Duration) {
			if stuck := loops.during(during); len(stuck) > 0 {
				t.Errorf("%s: %q are stuck", when, stuck)
			}
		}
		watch("at work", 3*time.Minute)
		for _, f := range []azsim.Rule{
			{Service: "queue", Fault: azsim.HangBefore},
			{Service: "queue", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"},
			{Service: "table", Fault: azsim.HangBefore},
			{Fault: azsim.FailBefore},
		} {
			f := w.Fault(f)
			watch(w.Sim.Faults(), 15*time.Minute)
			f.Remove()
		}
		for _, name := range []string{"sinks", "map", "member", "puts", "election"} {
			if !loops.moved[name] {
				t.Errorf("%s never went round: %v", name, d.Loops())
			}
		}
		run.cancel()
		<-run.done
	})
}

// stopsAt is a log whose reader stands still once a line is written.
type stopsAt struct {
	slog.Handler
	message string
	goOn    chan struct{}
}

func (h *stopsAt) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		<-h.goOn
	}
	return h.Handler.Handle(ctx, r)
}

func (h *stopsAt) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(attrs)
	return &next
}

// TestADistributorThatCannotBeElectedAnyMoreIsSeen: alone, nothing would be distributed again.
func TestADistributorThatCannotBeElectedAnyMoreIsSeen(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		goOn := make(chan struct{})
		cfg := w.Config("d", 2)
		cfg.Log = slog.New(&stopsAt{cfg.Log.Handler(), "leading", goOn})
		d, err := distributor.New(cfg, &testworld.ListSource{Print: "p", N: 10}, distributor.Options{Every: time.Minute})
		must(t, err)
		run := w.startDistributor(d)
		loops := watchLoops(d)
		if stuck := loops.during(10 * time.Minute); !slices.Equal(stuck, []string{"election"}) {
			t.Errorf("%q are stuck, want the election", stuck)
		}
		close(goOn)
		time.Sleep(time.Minute)
		if stuck := loops.during(10 * time.Minute); len(stuck) > 0 {
			t.Errorf("then %q are stuck", stuck)
		}
		run.cancel()
		<-run.done
	})
}
