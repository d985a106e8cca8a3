package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

func TestTheFirstFailuresAreNoted(t *testing.T) {
	var err error
	n := NewNoted(workerFunc(func(context.Context, *pump.Task) (json.RawMessage, error) { return nil, err }))
	work := func(ctx context.Context, with error) {
		err = with
		proof.Is(t, proof.ErrOf(n.Work(ctx, task("a secret body"))), with)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	work(ended, errors.New("stopped"))
	work(t.Context(), nil)
	work(t.Context(), pump.Release(errUntried))
	if got := n.First(); got != nil {
		t.Errorf("noted without a failure: %q", got)
	}
	work(t.Context(), pump.Reject(errors.New("too "+strings.Repeat("long", 1000))))
	if got := n.First(); len(got) != 1 || len(got[0]) > 2*maxCause {
		t.Errorf("got %q", got)
	}
	for i := range 9 {
		work(t.Context(), fmt.Errorf("failure %d", i/2))
	}
	proof.Same(t, cmp.Diff([]string{"failure 0", "failure 1"}, n.First()[1:]), "")
}

func TestAMistakeOfTheCommandLineNamesItsFix(t *testing.T) {
	script := filepath.Join(t.TempDir(), "worker.py")
	must(t, os.WriteFile(script, nil, 0o600))
	proof.Says(t, (&CommandOptions{Argv: []string{script}}).defaults(), "run `chmod +x "+script+"`, or put its interpreter")
	proof.Says(t, proof.ErrOf(OpenFile("nowhere/done.jsonl", FileOptions{})), "make its folder: mkdir -p nowhere")
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
