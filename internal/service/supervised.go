package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// Supervised is what surrounds a distributor or a processor that runs.
type Supervised struct {
	Manager *Manager
	Keys    *Keys
	Events  *Events // of the machine; nil: do not ask for them
	Grace   time.Duration
	Stop    func() // does what SIGTERM does
	// AtOnce ends a process that has not ended by itself long after every stop is over: something in
	// it hangs. Nil: it may take for ever.
	AtOnce func()

	requests atomic.Int64
}

// Hooks adds to hooks a count of the process's requests, whatever their outcome.
func (s *Supervised) Hooks(h pump.Hooks) pump.Hooks {
	request := h.Request
	h.Request = func(account, object, operation string, took time.Duration, err error) {
		s.requests.Add(1)
		if request != nil {
			request(account, object, operation, took, err)
		}
	}
	return h
}

// Run runs a distributor or a processor: under its service manager, with keys that are read again,
// and no longer than its machine lasts. All that goes on while it stops: a key may change then, and
// the machine may end before the grace does.
func Run[S any](ctx context.Context, s *Supervised, look func() Look, p interface {
	Run(ctx context.Context) (S, error)
	Hurry(most time.Duration)
},
) (S, error) {
	if s.AtOnce != nil {
		context.AfterFunc(ctx, func() { time.AfterFunc(s.Grace+stopsLonger+extendEvery, s.AtOnce) })
	}
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g sync.WaitGroup
	g.Go(func() { s.Keys.Run(beside) })
	g.Go(func() {
		s.Events.Watch(beside, func() {
			p.Hurry(EventGrace)
			s.Stop()
		})
	})
	end := s.Manager.Watch(ctx, Process{Look: look, Grace: s.Grace, Requests: &s.requests})
	summary, err := p.Run(ctx)
	end(err)
	stop()
	g.Wait()
	s.Events.Done()
	return summary, err
}
