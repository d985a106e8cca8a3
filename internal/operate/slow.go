package operate

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// controlSlow is the time after which a waiting user is told what the wait is for.
	controlSlow = 2500 * time.Millisecond
	// slowAgain is the time between the lines after that.
	slowAgain = 30 * time.Second
)

// controlTable is the name of the table that has a workload's rows.
const controlTable = "queuepump"

// trouble remembers why the control account does not answer; the hook of all requests tells it.
type trouble struct {
	mu      sync.Mutex // guards what follows
	account string
	last    error
}

// watch has the requests of a configuration noted.
func (t *trouble) watch(cfg *pump.Config) {
	before := cfg.Hooks.Request
	cfg.Hooks.Request = func(account, object, operation string, took time.Duration, err error) {
		if object == controlTable && !storage.Is(err, storage.Canceled) {
			t.mu.Lock()
			t.account, t.last = account, err
			t.mu.Unlock()
		}
		if before != nil {
			before(account, object, operation, took, err)
		}
	}
}

// now says why the control account did not answer the last request; nil if it did, or was not
// asked.
func (t *trouble) now() (account string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if storage.Ambiguous(t.last) {
		return t.account, t.last
	}
	return t.account, nil
}

// endHopeless gives a context that ends after controlSlow if the control account does not exist.
// Commands wait a minute for an account that does not answer; waiting for this one is of no use.
// The function that it gives tells whether the context ended for that reason.
func (t *trouble) endHopeless(ctx context.Context) (context.Context, func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(controlSlow, func() {
		if account, err := t.now(); storage.Hopeless(err) {
			cancel(fmt.Errorf("account %s cannot be reached: %w", account, err))
		}
	})
	return ctx, func() error {
		timer.Stop()
		cause := context.Cause(ctx)
		cancel(nil)
		if storage.Hopeless(cause) {
			return cause
		}
		return nil
	}
}

// saySlow tells that the control account does not answer, why, and what mends it, until stop is
// called. It says nothing as long as the account answers: other work may take its time.
func (o *operation) saySlow(log *slog.Logger) (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for pause := controlSlow; ; pause = slowAgain {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if account, err := o.trouble.now(); err != nil {
				log.Warn("waiting for the control account to answer", "account", account, "error", err,
					"fix", storage.Fix(err))
			}
		}
	}()
	return stop
}
