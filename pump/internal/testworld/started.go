package testworld

import (
	"context"
	"testing"
)

// Started is a process at work.
type Started[P interface {
	Run(ctx context.Context) (S, error)
}, S any] struct {
	t       *testing.T
	Of      P
	Stop    context.CancelFunc
	Done    chan struct{}
	Summary S
	Err     error
}

// Start runs a process until it is told to stop.
func Start[P interface {
	Run(ctx context.Context) (S, error)
}, S any](t *testing.T, p P,
) *Started[P, S] {
	ctx, cancel := context.WithCancel(t.Context())
	s := &Started[P, S]{t: t, Of: p, Stop: cancel, Done: make(chan struct{})}
	go func() {
		defer close(s.Done)
		s.Summary, s.Err = p.Run(ctx)
	}()
	return s
}

// End stops the process and waits for it.
func (s *Started[P, S]) End() S {
	s.t.Helper()
	s.Stop()
	<-s.Done
	if s.Err != nil {
		s.t.Fatal(s.Err)
	}
	return s.Summary
}

// Wait waits until the process ends by itself.
func (s *Started[P, S]) Wait() error {
	<-s.Done
	return s.Err
}
