package processor

import (
	"errors"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
)

// errNotRunning says that no Run is there to take a configuration.
var errNotRunning = errors.New("the processor does not run")

// Reload takes from a configuration, while Run goes on, the accounts that are new in it, the limits
// of budgets, the cap on what a day costs and prices. A new account can be added to the workload
// from then on (package accounts). Everything else stays as it was when Run began. A change of what
// cannot change is a [*pump.ConfigError], and then nothing has changed. It may be called from any
// goroutine.
func (p *Processor) Reload(cfg pump.Config) error {
	r := p.running.Load()
	if r == nil {
		return errNotRunning
	}
	changed, err := setup.Reload(r.Queues, r.Cfg, cfg)
	if err != nil || !changed {
		return err
	}
	if m := r.Member.Load(); m != nil {
		m.Reloaded()
		r.follow() // queues that could not be read may be by now
	}
	return nil
}
