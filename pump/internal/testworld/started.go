package testworld

import (
	"context"
	"testing"
)

// runner is what [Start] starts.
type runner[S any] interface {
	Run(ctx context.Context) (S, error)
}

// Started is a process at work.
type Started[P runner[S], S any] struct {
	t       *testing.T
	Of      P
	Stop    context.CancelFunc
	Done    chan struct{}
	Summary S
	Err     error
}

// Start runs a process until it is told to stop.
func Start[P runner[S], S any](t *testing.T, p P) *Started[P, S] {
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

// StopAll stops processes together, and waits for them.
func StopAll[P runner[S], S any](all []*Started[P, S]) {
	for _, p := range all {
		p.Stop()
	}
	for _, p := range all {
		<-p.Done
	}
}
