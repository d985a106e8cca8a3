package setup

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// slowAfter is after how long an operator is told that a start is waiting, and for what: long
	// enough for any answer that comes at all.
	slowAfter = 2500 * time.Millisecond
	// sayAgain is when it is said again, then after twice the time, but once an hour at least.
	sayAgain = 30 * time.Second
)

// Waits says which accounts a start waits for, what they said last, and what mends that. It says so
// during the wait, because the error comes only when a minute of trying is over. It may be used by
// many goroutines at once.
type Waits struct {
	log   *slog.Logger
	what  string
	key   string // of the attribute that names the accounts
	timer *time.Timer

	mu     sync.Mutex // guards what follows
	asked  map[string]func() error
	again  time.Duration           // when it is said again
	giveUp context.CancelCauseFunc // nil: waits on, for any error
}

// NewWaits makes Waits without an account yet.
func NewWaits(log *slog.Logger, what, key string) *Waits {
	w := &Waits{log: log, what: what, key: key, asked: map[string]func() error{}, again: sayAgain}
	w.mu.Lock() // the timer may fire before it is known
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(slowAfter, w.say)
	return w
}

// Begin is called when an account is asked. trouble gives its last failure, or nil.
func (w *Waits) Begin(account string, trouble func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) == 0 {
		w.timer.Reset(slowAfter)
	}
	w.asked[account] = trouble
}

// End is called when the account has answered, or is no longer asked.
func (w *Waits) End(account string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.asked, account)
}

// Stop ends the messages.
func (w *Waits) Stop() {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.asked)
}

// GiveUp gives a context that ends, if it may, once no awaited account can answer
// ([storage.Hopeless]), and a function for the error that ended it; nil if none did.
func (w *Waits) GiveUp(ctx context.Context, may bool) (context.Context, func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if may {
		w.giveUp = cancel
	}
	return ctx, func() error {
		cause := context.Cause(ctx)
		cancel(nil)
		if storage.Hopeless(cause) {
			return cause
		}
		return nil
	}
}

func (w *Waits) say() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) == 0 {
		return
	}
	names, hopeless := slices.Sorted(maps.Keys(w.asked)), true
	var first error
	for _, name := range names {
		err := w.asked[name]()
		hopeless = hopeless && storage.Hopeless(err)
		if first == nil && err != nil {
			if first = err; storage.Hopeless(err) {
				first = fmt.Errorf("account %s cannot be reached: %w", name, err)
			}
		}
	}
	if hopeless && w.giveUp != nil {
		w.giveUp(first)
		return
	}
	w.timer.Reset(w.again)
	w.again = min(2*w.again, time.Hour)
	attrs := []any{w.key, SomeOf(names, 10)}
	if first != nil {
		attrs = append(attrs, "error", first)
	}
	if fix := storage.Fix(first); fix != "" {
		attrs = append(attrs, "fix", fix)
	}
	w.log.Warn(w.what, attrs...)
}

// watchedTable remembers why its account did not answer the last read, or that it is disabled.
type watchedTable struct {
	storage.Table
	account string

	mu        sync.Mutex
	last, off error
}

func (t *watchedTable) Read(ctx context.Context, partition, key string) (storage.Entity, error) {
	e, err := t.Table.Read(ctx, partition, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last, t.off = nil, nil; storage.Ambiguous(err) {
		t.last = err
	} else if failure.KindOf(err) == failure.Disabled { // not a missing table, but a refusal
		t.off = &storage.Error{Code: storage.Auth, Op: "read", Account: t.account, Index: -1, Err: err}
	}
	return e, err
}

// Create makes no table in an account that is disabled: that would be tried for long.
func (t *watchedTable) Create(ctx context.Context) error {
	if off := t.disabled(); off != nil {
		return off
	}
	return t.Table.Create(ctx)
}

func (t *watchedTable) disabled() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.off
}

func (t *watchedTable) trouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
