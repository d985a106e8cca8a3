package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// oneSignal is the time within which two signals count as one: `timeout` and some supervisors
// signal a process and then its group.
const oneSignal = 250 * time.Millisecond

// withSignals makes a context that the first SIGINT or SIGTERM ends, with an [*Interrupted] as the
// cause. The second ends the process at once: a user who asks twice has a reason, and the tasks in
// hand come back when their leases end.
func withSignals(parent context.Context, atOnce func()) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case s := <-signals:
				i := &Interrupted{s.(syscall.Signal)}
				if !first.IsZero() {
					if time.Since(first) < oneSignal {
						continue
					}
					fmt.Fprintf(os.Stderr, "second signal: ending at once\n")
					atOnce()
					os.Exit(exitCode(i))
				}
				first = time.Now()
				cancel(i)
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// own says that the process is the program's, and not one of tests, which goes on after a command.
var own bool

// AtOnce gives a function that ends a process in which something hangs, perhaps its log.
func (c *Console) AtOnce(kill func()) func() {
	return func() {
		if !own {
			return
		}
		go c.Log.Error("the process has not ended in its time: something in it hangs; it ends at once")
		time.Sleep(time.Second) // for that line
		kill()
		os.Exit(exitFailure)
	}
}

// WasInterrupted is the signal that ended ctx, as an error, or nil.
func WasInterrupted(ctx context.Context) error {
	if i, ok := context.Cause(ctx).(*Interrupted); ok {
		return i
	}
	return nil
}
