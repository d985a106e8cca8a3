package send

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

var must = proof.Must

// sending gives a putter into the world's queues, and what ends it.
func sending(t *testing.T, w *testworld.World, budget float64, change ...func(*pump.Config)) (*Putter, *errgroup.Group, context.CancelCauseFunc) {
	t.Helper()
	cfg := w.Config("d", w.Cfg.Accounts[0].Queues)
	if budget > 0 {
		cfg.Budget.Queue = budget
	}
	for _, c := range change {
		c(&cfg)
	}
	done, err := setup.Complete(cfg)
	must(t, err)
	r := NewRouter(queues.Open(&done.Config), slog.New(slog.DiscardHandler))
	r.Update(w.View().Workload)
	ctx, end := context.WithCancelCause(t.Context())
	stages, ctx := errgroup.WithContext(ctx)
	return NewPutter(Options{
		Proven: func(context.Context) error { return nil },
		Ctx:    ctx, Stages: stages, Log: slog.New(slog.DiscardHandler), Hooks: &pump.Hooks{}, Jitter: "d", Router: r, Count: &pack.Tally{},
		Acked: func(int) {}, Delivered: func(*Sink, *pack.Message) {}, Loops: &Loops{},
	}), stages, end
}

// envelope is the n-th message; nothing reads it.
func envelope(n int) *pack.Message {
	return &pack.Message{Text: fmt.Appendf(nil, "message %d", n), Segment: uint32(n % 16), First: uint64(n), Tasks: 1}
}

// A distribution that ends at once leaves nothing waiting, and no worker.
func TestWhatWaitsInASinkEndsWithItsDistribution(t *testing.T) {
	testworld.In(t, workload.Spec{}, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p, stages, end := sending(t, w, 100)
		for n := range 600 {
			must(t, p.Send(envelope(n)))
		}
		s := p.Router.Current().sinks[0]
		if n, busy := s.queued(); n < 300 || !busy {
			t.Fatalf("%d messages wait, busy %v", n, busy)
		}
		over := errors.New("over")
		end(over)
		p.Wait()
		must(t, stages.Wait())
		if n, _ := s.queued(); n > 0 || s.workers > 0 {
			t.Errorf("%d messages wait for %d workers", n, s.workers)
		}
		proof.Is(t, p.Send(envelope(600)), over, "a message that is sent after that")
		if !p.memory.TryAcquire(memoryBudget) {
			t.Error("not all memory is given back")
		}
	})
}

// A failure in one worker ends the distribution, whatever waits behind it.
func TestARefusedPutEndsWhatWaits(t *testing.T) {
	testworld.In(t, workload.Spec{}, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p, stages, _ := sending(t, w, 100)
		w.Fault(azsim.Rule{Fault: azsim.Answer, Status: 400, Code: "InvalidInput", Skip: 50, First: 1, Instance: "d"}, "PutMessage")
		for n := range 600 {
			if err := p.Send(envelope(n)); err != nil {
				break
			}
		}
		p.Wait()
		if err := stages.Wait(); err == nil {
			t.Error("a put that was refused for good is no failure")
		}
		if n, _ := p.Router.Current().sinks[0].queued(); n > 0 {
			t.Errorf("%d messages wait", n)
		}
	})
}

// A queue that is far away has as many messages in flight as its limit needs. A near one has no
// more than that.
func TestMessagesInFlightFitHowLongPutsTake(t *testing.T) {
	for name, c := range map[string]struct {
		latency     time.Duration
		least, most int
	}{
		"near": {time.Millisecond, inFlightLeast, inFlightLeast},
		"far":  {40 * time.Millisecond, 150, 230},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, workload.Spec{}, 1, 1, func(s *azsim.Config) { s.Latency = c.latency }, func(t *testing.T, w *testworld.World) {
				p, stages, _ := sending(t, w, 0)
				for n := range 5000 {
					must(t, p.Send(envelope(n)))
				}
				p.Wait()
				must(t, stages.Wait())
				if n := p.Router.Current().sinks[0].inFlight; n < c.least || n > c.most {
					t.Errorf("%d in flight, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

// What an earlier distribution left without an answer does not make a queue dark an hour later,
// when a burst finds it slow.
func TestPutsOfAnEarlierDistributionDoNotDarkenAQueue(t *testing.T) {
	testworld.In(t, workload.Spec{}, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p, stages, end := sending(t, w, 0)
		hangs := w.Fault(azsim.Rule{Instance: "d", Fault: azsim.HangBefore}, "PutMessage")
		must(t, p.Send(envelope(0)))
		time.Sleep(time.Second)
		end(nil)
		must(t, stages.Wait())
		hangs.Remove()
		time.Sleep(time.Hour)
		w.Fault(azsim.Rule{Instance: "d", Fault: azsim.DelayBefore, Delay: 3 * time.Second}, "PutMessage")
		p.Router.Update(w.View().Workload)
		next := p.Options
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		next.Stages, next.Ctx = errgroup.WithContext(ctx)
		p = NewPutter(next)
		go p.Watch()
		for n := range 100 {
			must(t, p.Send(envelope(n)))
		}
		for range 15 {
			time.Sleep(time.Second)
			if s := p.Router.Current().sinks[0]; s.state() == dark {
				t.Fatalf("%v is dark", s)
			}
		}
		proof.Same(t, p.Count.Envelopes.Load(), 100, "acknowledged")
	})
}
