package testworld

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
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

// Stuck names the loops of a process that are not seen to go round within their time while so long
// passes, as a service manager's watchdog does.
func Stuck(p interface{ Loops() []pump.LoopState }, during time.Duration) (names []string) {
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
