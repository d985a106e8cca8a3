package processor

import "time"

// Hurry shortens Options.Grace to most from now on, for a stop that comes or is under way: the
// machine has no more time. It may be called from any goroutine.
func (p *Processor) Hurry(most time.Duration) { p.grace.Hurry(most) }
