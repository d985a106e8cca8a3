package quarantine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// redriveKnown is how long after an interrupted redrive the ledger still has the name of a done
// task without a living run ("Names" in package ledger). Names go 15 minutes after that time at the
// earliest, and a processor must meet the last copy before. An interrupted redrive leaves its
// message hidden for [Lease].
const redriveKnown = 2 * Lease

// redrives notes in the control table which redrives were begun, so that no later one of the same
// message does its tasks twice. It is of delivery mode once.
type redrives struct {
	q     *Quarantine
	again bool            // what may be done already is redriven too
	begun map[string]bool // as it was read when a drop began

	mu    sync.Mutex // guards what follows
	ended []string   // their rows are to be removed
}

// redrives gives nil where nothing is recorded.
func (q *Quarantine) redrives(ctx context.Context, outcome string, again bool) (*redrives, error) {
	if pump.Delivery(q.of.Workload.Delivery) != pump.Once {
		return nil, nil
	}
	r := &redrives{q: q, again: again}
	if outcome == Redriven {
		return r, nil
	}
	err := waits.Within(ctx, func(ctx context.Context) (err error) {
		r.begun, err = workload.RedrivesBegun(ctx, q.of.Queues.Control, q.of.Cfg.Workload)
		return err
	})
	return r, err
}

// begin notes that a message is about to be put home, and says whether that is the first time. It
// refuses if the message may have been put home before and its outcome is not known any more.
func (r *redrives) begin(ctx context.Context, m *Message) (first bool, err error) {
	if r == nil {
		return false, nil
	}
	q := r.q
	var state runSeen
	if !m.header.Run.IsZero() {
		if state = q.runState(ctx, m.header.Run); state.err != nil {
			return false, state.err
		}
	}
	keeps := state.keeps()
	before, err := workload.BeginRedrive(ctx, q.of.Queues.Control, q.of.Cfg.Workload, r.key(m), keeps)
	if err != nil {
		return false, fmt.Errorf("that its redrive begins could not be noted: %w", err)
	}
	if before == nil || r.again {
		return before == nil, nil
	}
	known := !m.foreign && before.Keeps == workload.KeepsAll && keeps == workload.KeepsAll
	// Numbers go when the run is over, names by age.
	if !known && !m.foreign &&
		(before.Keeps == workload.KeepsNothing || keeps != workload.KeepsNothing) {
		server, local, err := workload.ServerTime(ctx, q.of.Queues.Control, q.of.Cfg.Workload)
		if err != nil {
			return false, err
		}
		known = server.Add(time.Since(local)).Sub(before.Begun) < redriveKnown
	}
	if known {
		return false, nil // what is done of it is recognised
	}
	return false, fmt.Errorf("%w at %s", errInterrupted, before.Begun.UTC().Format(time.RFC3339))
}

var errInterrupted = errors.New("a redrive of it was interrupted, and " +
	"whether it was done since is not known any more; drop it if it was, else redrive it with " +
	"--again; that redrive began")

// end notes that a message is not in quarantine any more, or that nothing of it was put.
func (r *redrives) end(ctx context.Context, m *Message) {
	if r == nil || r.begun != nil && !r.begun[r.key(m)] {
		return
	}
	r.mu.Lock()
	r.ended = append(r.ended, r.key(m))
	many := len(r.ended) >= storage.MaxBatch
	r.mu.Unlock()
	if many {
		r.flush(ctx)
	}
}

// flush removes the rows of what has ended. A row that stays concerns its own message only: what is
// left of that if the filter meant only some of its tasks.
func (r *redrives) flush(ctx context.Context) {
	if r == nil {
		return
	}
	r.mu.Lock()
	ended := r.ended
	r.ended = nil
	r.mu.Unlock()
	if len(ended) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putBackWithin)
	defer cancel()
	for batch := range slices.Chunk(ended, storage.MaxBatch) {
		of := r.q.of
		if err := workload.EndRedrives(ctx, of.Queues.Control, of.Cfg.Workload, batch...); err != nil {
			of.Cfg.Log.Warn("rows that say which redrives were begun could not be removed; they do no harm",
				"rows", len(batch), "error", err)
		}
	}
}

func (r *redrives) key(m *Message) string { return workload.RedriveKey(m.Account, m.ID) }
