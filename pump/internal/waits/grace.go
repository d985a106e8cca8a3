// This file is about the time that a process has for its tasks at work, once it was told to
// stop.

package waits

import (
	"context"
	"sync"
	"time"
)

// Grace may be shortened while it passes, and before it begins. The zero value is ready; many
// goroutines may use it at once.
type Grace struct {
	mu      sync.Mutex
	asked   bool // Hurry was called
	most    time.Duration
	cancels []func()
}

// Hurry lets tasks at work go on for most from now on, or from when the period begins, unless they
// had less time anyway. The first call counts.
func (p *Grace) Hurry(most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked {
		return
	}
	p.asked, p.most = true, max(most, 0)
	for _, cancel := range p.cancels {
		time.AfterFunc(p.most, cancel)
	}
	p.cancels = nil
}

// Begin gives a context that ends when the period is over; usual is its usual length.
func (p *Grace) Begin(
	parent context.Context, usual time.Duration,
) (context.Context, context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(parent, p.of(usual))
	if !p.asked {
		p.cancels = append(p.cancels, cancel)
	}
	return ctx, cancel
}

// Of is how long the period is, as far as that is known.
func (p *Grace) Of(usual time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(usual)
}

func (p *Grace) of(usual time.Duration) time.Duration {
	if p.asked {
		return min(usual, p.most)
	}
	return usual
}
