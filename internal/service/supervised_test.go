package service

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// half stands in for a distributor or a processor whose stop takes as long as it may.
type half struct {
	stops   func() // called when the stop begins
	hurries chan time.Duration
}

func (h *half) Hurry(most time.Duration) { h.hurries <- most }

func (h *half) Run(ctx context.Context) (most time.Duration, err error) {
	<-ctx.Done()
	h.stops()
	return <-h.hurries, nil
}

func TestAMachineThatEndsStopsAProcessAndEndsAStopThatTakesLong(t *testing.T) {
	for name, already := range map[string]bool{"at work": false, "it stops already": true} {
		t.Run(name, func(t *testing.T) {
			m := newMetadata(t)
			events := NewEvents(m.URL, slog.New(slog.DiscardHandler))
			events.every, events.settle = time.Millisecond, 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var stopped atomic.Bool
			s := &Supervised{Keys: NewKeys(slog.New(slog.DiscardHandler), nil), Events: events, Stop: func() {
				stopped.Store(true)
				cancel()
			}}
			h := &half{hurries: make(chan time.Duration, 1), stops: func() {
				if already {
					m.announce("mine", "Preempt", "vm1")
				}
			}}
			if already {
				cancel()
			} else {
				m.announce("mine", "Preempt", "vm1")
			}
			most, err := Run(ctx, s, func() Look { return Look{} }, h)
			if err != nil || most != EventGrace || !stopped.Load() {
				t.Errorf("its grace was %v, %v", most, err)
			}
			if len(m.started) != 1 || m.started[0] != "mine" {
				t.Errorf("%q were acknowledged", m.started)
			}
		})
	}
}

func TestRequestsAreCountedBesideOtherHooks(t *testing.T) {
	var s Supervised
	heard := 0
	h := s.Hooks(pump.Hooks{Request: func(string, string, string, time.Duration, error) { heard++ }})
	h.Request("alpha", "work-00", "get", time.Second, nil)
	s.Hooks(pump.Hooks{}).Request("alpha", "work-00", "get", time.Second, context.DeadlineExceeded)
	if n := s.requests.Load(); n != 2 || heard != 1 {
		t.Errorf("%d were counted, %d heard", n, heard)
	}
}

// hung is half of a process that hangs.
type hung struct{ thaw chan struct{} }

func (h hung) Hurry(time.Duration) {}

func (h hung) Run(context.Context) (int, error) {
	<-h.thaw
	return 0, nil
}

// TestAProcessInWhichSomethingHangsIsEndedAfterItsTime, and not sooner.
func TestAProcessInWhichSomethingHangsIsEndedAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan time.Time, 1)
		s := &Supervised{
			Keys: NewKeys(slog.New(slog.DiscardHandler), nil), Grace: 20 * time.Second,
			AtOnce: func() { ended <- time.Now() },
		}
		h := hung{make(chan struct{})}
		done := make(chan error)
		go func() {
			_, err := Run(ctx, s, func() Look { return Look{} }, h)
			done <- err
		}()
		time.Sleep(time.Hour)
		proof.Same(t, len(ended), 0, "it was ended before it was told to")
		cancel()
		told := time.Now()
		proof.Same(t, (<-ended).Sub(told), 60*time.Second, "it was ended after")
		close(h.thaw)
		must(t, <-done)
	})
}
