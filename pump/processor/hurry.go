package processor

import "time"

// Hurry shortens Options.Grace, for a stop that comes: the machine has no more time. It may be called
// from any goroutine.
func (p *Processor) Hurry(grace time.Duration) { p.hurry.Store(int64(max(grace, 1))) }

// grace is for how long handlers may go on.
func (r *run) grace() time.Duration {
	if most := time.Duration(r.hurry.Load()); most > 0 {
		return min(max(r.o.Grace, 0), most)
	}
	return max(r.o.Grace, 0)
}
