package distributor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// A sender with a name sends a named run: what its program sends again after a death has the same
// identities. The program says the same tasks in the same order, so its cursor is their number.

// errNotAsked is a Send of a named run before the program knows how far the run has come.
var errNotAsked = errors.New("nothing was sent: ask Acknowledged first, and send from that task on")

// Acknowledged begins the run of SenderOptions.Name, or takes it over, and says how many of its
// tasks are in queues, with those that were refused: send the others, in the same order. Ask before
// the first Send, and again after a Send whose error may concern all of its tasks. A run that was
// sent to its end is [pump.ErrRunState], with the number of its tasks; while another process sends
// it, the error is a [*TakenError].
func (s *Sender) Acknowledged(ctx context.Context) (int64, error) {
	if s.d.opts.Name == "" {
		return 0, pump.Invalid("name", "a sender without one does not go on with a run", "give it a name")
	}
	in := s.current()
	if in == nil {
		return 0, ErrSenderClosed
	}
	select {
	case <-in.begun:
		in.asked.Store(true)
		return in.from, nil
	case <-in.over:
		if in.err == nil {
			return in.summary.Tasks, s.sentErr()
		}
		return 0, in.err
	case <-ctx.Done():
		return 0, in.late(s.d.cfg.Control, context.Cause(ctx))
	}
}

func (s *Sender) sentErr() error {
	return fmt.Errorf("%w: the run of the name %q was sent to its end", pump.ErrRunState,
		s.d.opts.Name)
}

func (i *intake) named() bool { return i.sender.d.opts.Name != "" }

// Fingerprint is empty without a name: no caller can hand the same in again.
func (i *intake) Fingerprint(context.Context) (string, error) {
	if i.named() {
		return "sender", nil
	}
	return "", nil
}

// begins notes how far the run had come.
func (i *intake) begins(cursor []byte) error {
	if from, n := binary.Uvarint(cursor); len(cursor) > 0 {
		if n != len(cursor) || from > math.MaxInt64 {
			return errors.New("the saved position is not that of a sender")
		}
		i.from = int64(from)
	}
	close(i.begun)
	return nil
}

// idleAfter is after how long without a task the run is sealed. That of a name is sealed by Close
// alone.
func (i *intake) idleAfter() time.Duration {
	if i.named() {
		return math.MaxInt64
	}
	return i.sender.d.cfg.Sim.SenderIdle
}

func (r *intakeReader) AppendCursor(dst []byte) []byte {
	if r.named() && r.read > 0 {
		return binary.AppendUvarint(dst, uint64(r.read))
	}
	return dst
}
