package setup

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Operator is who runs this program, for the rows that say who did something: user@host.
func Operator() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// Logged makes a change by an operator with an entry in the workload's log: written as begun before
// the change, and after it as done or failed. Without an entry nothing is changed.
func (o *Session) Logged(ctx context.Context, by, what string, change func() error) error {
	e := workload.LogEntry{Time: time.Now(), By: by, Version: logs.Revision(), What: what}
	end, err := e.Begin(ctx, o.Queues.Control, o.Cfg.Workload)
	if err != nil {
		return fmt.Errorf("%s: nothing was changed, because the log of the workload could not be "+
			"written; try again: %w", what, o.Advise(ctx, err))
	}
	failed := change()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waits.RequestTimeout)
	defer cancel()
	if err := end(ctx, failed); err != nil {
		o.Cfg.Log.Warn("the log of the workload does not say how the change ended", "error", err)
	}
	return failed
}

// LoggedAnyway is Logged for an emergency: the change is made also if the log cannot be written.
func (o *Session) LoggedAnyway(ctx context.Context, by, what string, change func() error) error {
	began := false
	err := o.Logged(ctx, by, what, func() error { began = true; return change() })
	if err == nil || began {
		return err
	}
	o.Cfg.Log.Warn("the change is made without an entry in the log", "error", err)
	return change()
}

// heed puts the settings of the workload into the configuration of a command.
func (o *Session) heed() {
	c := &o.Cfg
	v, _, err := WithSettings(ValuesOf(&c.Config), o.Workload.Settings)
	if err != nil || len(o.Workload.Settings) == 0 {
		return
	}
	c.Retention, c.Budget.CostPerDay, c.Prices = v.Retention, v.CostPerDay, v.Prices
	o.Queues.SetValues(v)
}
