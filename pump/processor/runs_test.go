package processor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// darkRuns is a control plane that answers or hangs.
type darkRuns struct {
	dark  bool
	state workload.RunState
	err   error
	reads int
}

func (r *darkRuns) Get(ctx context.Context, _ pump.RunID) (workload.Run, error) {
	r.reads++
	if r.dark {
		<-ctx.Done()
		return workload.Run{}, ctx.Err()
	}
	return workload.Run{State: r.state}, r.err
}

func TestP56ARunThatMayGoOnIsAskedAboutAgainInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &darkRuns{}
		c := base.NewRunCache(rows, slog.New(slog.DiscardHandler))
		id := codec.RunID{1}
		look := func(want closing.Verdict, at time.Duration) {
			t.Helper()
			began := time.Now()
			if got := c.Look(t.Context(), id); got != want || time.Since(began) != at {
				t.Errorf("verdict %v after %v, want %v after %v", got, time.Since(began), want, at)
			}
		}
		look(closing.GoOn, 0)
		time.Sleep(base.RunKnownFor)
		rows.dark = true
		for range 1000 { // an hour of darkness, in which no worker waits
			look(closing.GoOn, 0)
			time.Sleep(3600 * time.Millisecond)
		}
		if rows.reads < 100 || rows.reads > 400 {
			t.Errorf("%d reads in an hour, want one about every %v", rows.reads, base.RunUnknownFor)
		}
		rows.dark, rows.state = false, workload.RunClosed
		for range 2 * base.RunUnknownFor / time.Second {
			c.Look(t.Context(), id)
			time.Sleep(time.Second)
		}
		look(closing.Closed, 0)
	})
}

func TestP13BeforeAMessageIsQuarantinedItsRunIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &darkRuns{err: pump.ErrNoRun}
		c := base.NewRunCache(rows, slog.New(slog.DiscardHandler))
		proof.Same(t, c.Look(t.Context(), codec.RunID{1}), closing.Absent, "verdict")
		time.Sleep(base.RunUnknownFor)
		rows.err = nil
		if got := c.Look(t.Context(), codec.RunID{1}); got != closing.GoOn || rows.reads != 2 {
			t.Errorf("verdict %v after %d reads", got, rows.reads)
		}
	})
}

func TestP13AnUnreadableRunRowQuarantinesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{errors.New("no table"), context.DeadlineExceeded} {
			c := base.NewRunCache(&darkRuns{err: err}, slog.New(slog.DiscardHandler))
			proof.Same(t, c.Look(t.Context(), codec.RunID{1}), closing.GoOn, err, "verdict")
		}
	})
}

// In mode once a row is read anew for a segment that was fenced after it was read. A message of
// another segment that has its verdict by then was put back for two seconds, and a processor that
// leaves once it was idle for one left without it.
func TestP13AMessageWaitsForItsRunsRowThatIsReadAnewInTheSameMoment(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Begun(w, New, "p", &testworld.Seen{}, Options{})
		w.Settled(1)
		r := p.Of.running.Load()
		w.Sim.Inject(azsim.Rule{Operations: []string{"GetEntity"}, Fault: azsim.DelayBefore, Delay: time.Second})
		hold, _ := r.segments.hold(0)
		d := &message.Delivery{Count: 3, Header: codec.Header{Run: w.Run, Tasks: codec.MakeNSet(0, 1, 2)}, Epoch: hold.Epoch}
		since, ok := r.recorder.FencedAt(d.Header.Segment, d.Epoch)
		if !ok {
			t.Fatal("segment 0 is not fenced")
		}
		verdict := r.recorder.Look(t.Context(), w.Run, since)
		time.Sleep(time.Second)
		var other sync.WaitGroup
		other.Go(func() { r.recorder.Look(t.Context(), w.Run, time.Now()) })
		synctest.Wait() // the row is being read
		b, ok, err := r.recorder.BeginStanding(t.Context(), d, verdict, since)
		if err != nil || !ok || b.Fresh.Len() != 3 {
			t.Errorf("%+v, %v, %v, want three fresh tasks", b, ok, err)
		}
		r.recorder.End(d, b.Fresh)
		other.Wait()
		p.End()
	})
}
