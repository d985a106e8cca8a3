// This file takes nudges in tests.

package testkit

import (
	"sync"

	"github.com/queuepump/queuepump/pump"
)

// List takes nudges in the order in which they come. Any goroutine may use it.
type List struct {
	mu   sync.Mutex
	list []pump.Nudge
}

// Nudged takes a nudge, as a process does.
func (l *List) Nudged(n pump.Nudge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, n)
}

// Take gives what came since it was called last.
func (l *List) Take() []pump.Nudge {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.list
	l.list = nil
	return taken
}
