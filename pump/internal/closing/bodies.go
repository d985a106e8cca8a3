package closing

import (
	"context"
	"errors"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// fate is what becomes of the bodies of a run in a sweep.
type fate uint8

const (
	bodyKept fate = iota // a task may need it
	bodyDone             // all tasks are done, and none is in quarantine
	// bodyForgot: no ledger tells of the run any more. A quarantine may have tasks of it.
	bodyForgot
)

// staleBody reports whether no task needs a body any more (P3.10).
func (c *Closer) staleBody(ctx context.Context, b *storage.Blob) (bool, error) {
	s := &c.swept
	run, told := bodies.RunOf(b.Name)
	if !told {
		return false, nil
	}
	is, known := s.fates[run]
	if !known {
		var err error
		if is, err = c.fateOf(ctx, run); err != nil {
			return false, err
		}
		s.fates[run] = is
	}
	return is == bodyDone || is == bodyForgot && b.Modified.Before(s.before), nil
}

func (c *Closer) fateOf(ctx context.Context, id codec.RunID) (fate, error) {
	s := &c.swept
	run, err := c.Runs.Get(ctx, id)
	forgot := errors.Is(err, pump.ErrNoRun)
	switch {
	case forgot:
	case errors.Is(err, row.ErrCorrupt):
		return bodyKept, nil
	case err != nil:
		return bodyKept, err
	case run.Over:
		if forgot = run.Changed.Before(s.before); !forgot {
			return bodyKept, nil
		}
	case run.State != workload.RunClosed, !run.Changed.Before(s.began):
		return bodyKept, nil // what is read below may be older than its end
	case run.Rest == 0:
		return bodyDone, nil
	}
	if !forgot {
		if s.sums == nil {
			sums, err := ledger.ReadSums(ctx, c.queues.Control, c.workload, c.segments)
			if err != nil || sums == nil {
				return bodyKept, err
			}
			s.sums = sums
		}
		if s.sums.Rests[id] == 0 && s.sums.Runs[id].Quarantined == 0 {
			return bodyDone, nil
		}
		return bodyKept, nil
	}
	if s.held == nil {
		if s.held, err = c.lookQuarantined(ctx); err != nil {
			return bodyKept, err
		}
	}
	if s.held.unseen || s.held.runs[id] {
		return bodyKept, nil
	}
	return bodyForgot, nil
}

// quarantined is what was seen of the quarantine of all accounts.
type quarantined struct {
	unseen bool // of some account not all was
	runs   map[codec.RunID]bool
}

// lookQuarantined looks into the quarantine of each account. A peek shows the visible ones of the
// first messages: all, if they are as many as the count, which is never too low.
func (c *Closer) lookQuarantined(ctx context.Context) (*quarantined, error) {
	held := &quarantined{runs: map[codec.RunID]bool{}}
	for _, name := range c.queues.Names() {
		poison := c.queues.Account(name).Poison
		count, err := poison.Count(ctx, row.RequestTimeout)
		if err == nil && count > 0 {
			var seen []storage.Message
			seen, err = poison.Peek(ctx, row.RequestTimeout, storage.MaxGet)
			if int64(len(seen)) < count {
				held.unseen = true
				c.log.Info("bodies of tasks whose runs are over stay while their quarantine is not seen "+
					"whole: redrive or drop what is in it", "account", name, "messages", count)
			}
			for _, m := range seen {
				if h, err := codec.ReadHeader(m.Text); err == nil {
					held.runs[h.Run] = true
				}
			}
		}
		if err != nil && !queues.NotThere(err) {
			return nil, err
		}
	}
	return held, nil
}
