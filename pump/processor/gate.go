package processor

import (
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// gateWaiter is the gate that a processor waits at before it takes anything: it has started, is a
// member of the cluster and holds nothing (origins T3). The gate's row is the truth; a nudge makes
// it look at once (origins T4).
type gateWaiter struct {
	name string // empty: there is none
	gate *coordination.Gate
	look chan struct{} // has room for one hint
}

func (r *run) newGateWaiter() *gateWaiter {
	e := &gateWaiter{name: r.o.Gate, look: make(chan struct{}, 1)}
	if e.name != "" {
		e.gate = coordination.NewGate(r.Queues.Control, r.Cfg.Workload, e.name)
		e.gate.Log = r.Log
	}
	return e
}

// hint makes the waiting goroutine look at the gate.
func (e *gateWaiter) hint(gate string) {
	if gate == e.name && gate != "" {
		waits.Signal(e.look)
	}
}

// passGate waits until the gate is open. It fails with the error of ctx, or if waiting cannot help.
func (r *run) passGate(ctx context.Context) error {
	if r.gate.name == "" {
		return nil
	}
	r.Log.Info("waiting at the gate", "gate", r.gate.name)
	r.setPhase(phaseWaiting)
	reporting, end := context.WithCancel(ctx)
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		r.reportProgress(reporting)
	}()
	began := time.Now()
	err := r.gate.gate.Wait(ctx, r.gate.look)
	end()
	<-reported // Progress is called by one goroutine at a time
	if err != nil {
		return err
	}
	r.setPhase(phaseStarting)
	// The wait was not idle time and must not count in any rate.
	r.Messages.Restart()
	r.opened.Store(time.Now().UnixNano())
	r.Log.Info("the gate is open", "gate", r.gate.name,
		"waited", time.Since(began).Round(time.Millisecond))
	return nil
}

// waitingAt is the gate that the processor waits at, empty if it does not.
func (r *run) waitingAt() string {
	if phase(r.phase.Load()) != phaseWaiting {
		return ""
	}
	return r.gate.name
}

// working is for how long the processor has been at it, without its wait at the gate.
func (r *run) working() time.Duration {
	if opened := r.opened.Load(); opened != 0 {
		return time.Since(time.Unix(0, opened))
	}
	return time.Since(r.Began)
}

func checkGate(name string) error {
	if name == "" {
		return nil
	}
	if err := coordination.CheckGate(name); err != nil {
		return &pump.ConfigError{
			Field: "gate", Problem: fmt.Sprintf("%.80q is not the name of a gate", name),
			Fix: "use 1 to 63 of letters, digits, _ . ~ and -", Err: err,
		}
	}
	return nil
}
