package engine

import (
	"context"
	"testing"
)

// baseStarted is a process at work.
type baseStarted[P interface {
	Run(ctx context.Context) (S, error)
}, S any] struct {
	t       *testing.T
	of      P
	stop    context.CancelFunc
	done    chan struct{}
	summary S
	err     error
}

// baseStart runs a process until it is told to stop.
func baseStart[P interface {
	Run(ctx context.Context) (S, error)
}, S any](t *testing.T, p P,
) *baseStarted[P, S] {
	ctx, cancel := context.WithCancel(t.Context())
	s := &baseStarted[P, S]{t: t, of: p, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.summary, s.err = p.Run(ctx)
	}()
	return s
}

// end stops the process and waits for it.
func (s *baseStarted[P, S]) end() S {
	s.t.Helper()
	s.stop()
	<-s.done
	if s.err != nil {
		s.t.Fatal(s.err)
	}
	return s.summary
}

// wait waits until the process ends by itself.
func (s *baseStarted[P, S]) wait() error {
	<-s.done
	return s.err
}
