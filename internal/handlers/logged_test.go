package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// TestFailuresAreLogged: the first at once, then every ten seconds the last one
// with their number, and the rest at the end.
func TestFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		calls := 0
		n := NewLogged(workerFunc(func(context.Context, *pump.Task) (json.RawMessage, error) {
			calls++
			return nil, fmt.Errorf("failure %d", calls)
		}), slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		for range 25 {
			if _, err := n.Work(t.Context(), task("a secret body")); err == nil {
				t.Error("the failure is lost")
			}
			time.Sleep(time.Second)
		}
		proof.Same(t, cmp.Diff([]string{"failure 1", "failure 2", "failure 3"}, n.First()), "")
		must(t, n.Close())
		want := `level=WARN msg="tasks fail" failures=1 last="failure 1"
level=WARN msg="tasks fail" failures=10 last="failure 11"
level=WARN msg="tasks fail" failures=10 last="failure 21"
level=WARN msg="tasks fail" failures=4 last="failure 25"
`
		proof.Same(t, out.String(), want)
	})
}

func TestWhatIsNoFailureIsNotLogged(t *testing.T) {
	var out bytes.Buffer
	var err error
	n := NewLogged(workerFunc(func(context.Context, *pump.Task) (json.RawMessage, error) { return nil, err }), slog.New(slog.NewTextHandler(&out, nil)))
	_, _ = n.Work(t.Context(), task(""))
	err = pump.Release(errUntried)
	_, _ = n.Work(t.Context(), task(""))
	err = errors.New("stopped")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = n.Work(ended, task(""))
	_ = n.Close()
	if out.Len() != 0 {
		t.Errorf("got %s", out.String())
	}
	err = pump.Reject(errors.New("too " + strings.Repeat("long", 1000)))
	_, _ = n.Work(t.Context(), task(""))
	if out.Len() == 0 || out.Len() > 2*maxCause {
		t.Errorf("%d bytes of log for one failure", out.Len())
	}
}

// TestTasksOfABrokenCommandAreGivenBackAtOnce, not when the processor's grace
// period ends, and not before it has stopped starting more.
func TestTasksOfABrokenCommandAreGivenBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(func(error) {})
		for range unusableStarts + 1 {
			must(t, h.wait(t.Context()))
			h.doesNotStart(errors.New("no"))
		}
		began := time.Now()
		err := h.wait(t.Context())
		sameError(t, err, pump.Release(fmt.Errorf("%w: %w", errUntried, errBrokenCommand)))
		proof.Same(t, time.Since(began), handBack, "held")
	})
}
