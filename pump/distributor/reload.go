package distributor

import (
	"errors"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/setup"
)

// errNotRunning says that no Run is there to take a configuration.
var errNotRunning = errors.New("the distributor does not run")

// Reload takes from a configuration, while Run goes on, the accounts that are new in it, the limits
// of budgets, the cap on what a day costs and prices. A new account can be added to the workload
// from then on (package accounts). Everything else stays as it was when Run began. A change of what
// cannot change is a [*pump.ConfigError], and then nothing has changed. It may be called from any
// goroutine.
func (d *Distributor) Reload(cfg pump.Config) error {
	s := d.running.Load()
	if s == nil && closing.OfClient(d.mode) { // a sender without a task
		_, err := setup.Reload(d.fleet, &d.cfg, cfg)
		return err
	}
	if s == nil {
		return errNotRunning
	}
	changed, err := setup.Reload(d.fleet, &d.cfg, cfg)
	if err != nil || !changed {
		return err
	}
	d.router.Reachable()
	s.member.Load().Reloaded()
	return nil
}
