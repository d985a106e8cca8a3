package main

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/renew"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

// supervised is what a service manager, if there is one, is told of this process.
type supervised struct {
	manager  *service.Manager
	keys     *renew.Keys
	events   *service.Events // of the machine; nil: they are not asked for
	requests atomic.Int64
	grace    time.Duration
	stop     context.CancelCauseFunc // ends the context of run
}

// hooks adds what the service manager is to know to a processor's hooks.
func (s *supervised) hooks(h pump.Hooks) pump.Hooks { return service.Counted(h, &s.requests) }

// run runs a processor under the service manager.
func (s *supervised) run(ctx context.Context, p *processor.Processor) (processor.Summary, error) {
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	go s.keys.Run(keeping)
	var watching sync.WaitGroup
	watching.Go(func() {
		s.events.Watch(keeping, func() {
			p.Hurry(service.EventGrace)
			s.stop(&cli.Interrupted{Signal: syscall.SIGTERM})
		})
	})
	end := s.manager.Watch(ctx, service.Process{Look: service.Processor(p), Grace: s.grace, Requests: &s.requests})
	summary, err := p.Run(ctx)
	end(err)
	stop()
	watching.Wait()
	s.events.Done()
	return summary, err
}

// limitMemory sets what the garbage collector works towards.
func (f *runFlags) limitMemory(ctx context.Context, console *cli.Console) {
	goal := uint64(memoryGoal)
	if f.work.countBy != "" {
		goal = 0 // what is counted has no bound of ours
	}
	service.LimitMemory(ctx, goal, f.work.exec != "" || f.work.execEach != "", console.Log)
}
