package pump

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/control"
)

// darkRuns is a control plane that answers or hangs.
type darkRuns struct {
	dark  bool
	state control.RunState
	err   error
	reads int
}

func (r *darkRuns) Get(ctx context.Context, _ RunID) (control.Run, error) {
	r.reads++
	if r.dark {
		<-ctx.Done()
		return control.Run{}, ctx.Err()
	}
	return control.Run{State: r.state}, r.err
}

func TestP56ARunThatMayGoOnIsAskedAboutAgainInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &darkRuns{}
		c := newRunCache(rows, slog.New(slog.DiscardHandler))
		id := codec.RunID{1}
		look := func(want runVerdict, at time.Duration) {
			t.Helper()
			began := time.Now()
			if got := c.look(t.Context(), id); got != want || time.Since(began) != at {
				t.Errorf("verdict %v after %v, want %v after %v", got, time.Since(began), want, at)
			}
		}
		look(runGoOn, 0)
		time.Sleep(runKnownFor)
		rows.dark = true
		for range 1000 { // an hour of darkness, in which nobody waits
			look(runGoOn, 0)
			time.Sleep(3600 * time.Millisecond)
		}
		if rows.reads < 100 || rows.reads > 400 {
			t.Errorf("%d reads in an hour, want one about every %v", rows.reads, runUnknownFor)
		}
		rows.dark, rows.state = false, control.RunClosed
		for range 2 * runUnknownFor / time.Second {
			c.look(t.Context(), id)
			time.Sleep(time.Second)
		}
		look(runClosed, 0)
	})
}

func TestP13BeforeAMessageIsQuarantinedItsRunIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &darkRuns{err: control.ErrNoRun}
		c := newRunCache(rows, slog.New(slog.DiscardHandler))
		if got := c.look(t.Context(), codec.RunID{1}); got != runAbsent {
			t.Errorf("verdict %v", got)
		}
		time.Sleep(runUnknownFor)
		rows.err = nil
		if got := c.look(t.Context(), codec.RunID{1}); got != runGoOn || rows.reads != 2 {
			t.Errorf("verdict %v after %d reads", got, rows.reads)
		}
	})
}

func TestP13AnUnreadableRunRowQuarantinesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{errors.New("no table"), context.DeadlineExceeded} {
			c := newRunCache(&darkRuns{err: err}, slog.New(slog.DiscardHandler))
			if got := c.look(t.Context(), codec.RunID{1}); got != runGoOn {
				t.Errorf("%v: verdict %v", err, got)
			}
		}
	})
}
