package closing

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// staleBody reports whether no task needs a body any more (P3.10).
func (c *Closer) staleBody(ctx context.Context, b *storage.Blob) (bool, error) {
	s := &c.swept
	run, told := bodies.RunOf(b.Name)
	if !told {
		return false, nil
	}
	until, known := s.until[run]
	if !known {
		var err error
		if until, err = c.goUntil(ctx, run); err != nil {
			return false, err
		}
		s.until[run] = until
	}
	return b.Modified.Before(until), nil
}

// always is after each body was put.
var always = time.Unix(1<<40, 0)

// goUntil says which bodies of a run go: those that were put before a time. Never means none: a
// task may need them.
func (c *Closer) goUntil(ctx context.Context, id codec.RunID) (never time.Time, err error) {
	s := &c.swept
	run, err := c.Runs.Get(ctx, id)
	switch {
	case errors.Is(err, pump.ErrNoRun), err == nil && run.Over && run.Changed.Before(s.before):
		return c.goForgotten(ctx, id)
	case errors.Is(err, row.ErrCorrupt):
		return never, nil
	case err != nil:
		return never, err
	case run.Over, run.State != workload.RunClosed, !run.Changed.Before(s.began):
		return never, nil // what is read below may be older than its end
	case run.Rest == 0:
		return always, nil
	}
	if s.sums == nil {
		sums, err := ledger.ReadSums(ctx, c.queues.Control, c.workload, c.segments)
		if err != nil {
			return never, err
		}
		s.sums = sums
	}
	// Until the owner of a segment has made a rest of it, the run counts there as before.
	if s.sums.Rests[id] == 0 && s.sums.Runs[id].Quarantined == 0 {
		return always, nil
	}
	return never, nil
}

// goForgotten is goUntil for a run of which no ledger tells any more. A quarantine may have tasks
// of it.
func (c *Closer) goForgotten(ctx context.Context, id codec.RunID) (never time.Time, err error) {
	s := &c.swept
	if s.held == nil {
		s.held, err = c.lookQuarantined(ctx)
	}
	if err != nil || s.held.unseen || s.held.runs[id] {
		return never, err
	}
	// A task that was redriven may wait in a queue for as long as that is not read. Processors note
	// each message of it that they put off, and until when. They have an hour for that.
	until := s.before.Add(-time.Since(s.far))
	noted, err := workload.LastNoted(ctx, c.queues.Control, c.workload, id)
	if errors.Is(err, row.ErrCorrupt) {
		return never, nil
	}
	if err != nil || !noted.Before(until) {
		return never, err
	}
	return until, nil
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
