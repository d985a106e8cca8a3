package source

import (
	"context"
	"log/slog"
	"time"
)

// overdue is the time after which a call of the system counts as hanging.
const overdue = 5 * time.Second

// await makes a call of the system about a file. The call may never return, for example for a pipe
// without a writer, a device, or a frozen disk. The log says so once the call is overdue. When ctx
// ends the call is left behind, because its goroutine cannot be freed; its result then goes to
// late.
func await[T any](
	ctx context.Context, log *slog.Logger, name string, call func() (T, error), late func(T),
) (got T, err error) {
	type answer struct {
		got T
		err error
	}
	answers, left := make(chan answer), make(chan struct{})
	defer close(left)
	go func() {
		got, err := call()
		select {
		case answers <- answer{got, err}:
		case <-left:
			if err == nil {
				late(got)
			}
		}
	}()
	clock := time.NewTimer(overdue)
	defer clock.Stop()
	for said := false; ; {
		select {
		case a := <-answers:
			if said {
				log.Info("opening a file of the source has returned", "file", name)
			}
			return a.got, a.err
		case <-clock.C:
			said = true
			log.Warn("opening a file of the source has not returned; nothing is read until it does",
				"file", name, "for", overdue,
				"fix", "a named pipe needs a program that writes; else see what its disk waits for")
		case <-ctx.Done():
			return got, context.Cause(ctx)
		}
	}
}
