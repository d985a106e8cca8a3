package send

import (
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// makeError is a queue that could not be made.
type makeError struct{ err error }

func (e *makeError) Error() string { return e.err.Error() }
func (e *makeError) Unwrap() error { return e.err }

// Back-off of puts: full jitter, so that what failed together does not come back
// together. A throttle also lowers the budget, which does most of the slowing down.
const (
	putThrottledBase = 100 * time.Millisecond
	putBase          = 250 * time.Millisecond
	putLimit         = 15 * time.Second
	putStoppedBase   = 5 * time.Second
	putStoppedLimit  = time.Minute
)

// judge decides what follows from a failed request: wait and try again, or, with
// an error, give the distribution up. Made: the queue was known to be there when
// the put was sent.
func (p *Putter) judge(m *message, err error, made bool) (time.Duration, error) {
	s, attempt := m.sink, m.attempt
	j, object := p.Jitter, fmt.Sprintf("%s %d/%d", s.name, m.Segment, m.First)
	_, making := errors.AsType[*makeError](err)
	if making && !storage.Is(err, storage.Auth) {
		if err := s.creation.Failed(s.name, err, time.Now()); err != nil {
			return 0, err
		}
	}
	switch storage.CodeOf(err) {
	case storage.Throttled:
		p.observe(s, (*health).refused)
		m.refused++
		// A 503 was refused before it was looked at. A 500 OperationTimedOut,
		// which an overloaded partition answers too, may have been done.
		var asked time.Duration
		if e, ok := errors.AsType[*storage.Error](err); ok {
			asked = min(e.RetryAfter, putLimit)
			if e.Status != 503 && !making {
				p.Count.Resent.Add(1)
			}
		}
		return asked + j.Full(putThrottledBase, putLimit, "put", object, attempt), nil
	case storage.MaybeDone:
		// A timeout, a 5xx, a broken connection: it may be in the queue. A second
		// copy is harmless, a missing one is a lost task.
		p.observe(s, (*health).lost)
		if !making {
			p.Count.Resent.Add(1)
		}
		s.alarm(p.Log, err)
		return j.Full(putBase, putLimit, "put", object, attempt), nil
	case storage.Missing, storage.Auth:
		p.observe(s, (*health).answered)
		switch {
		case storage.Is(err, storage.Auth) && !s.accepted.Load():
			if err := s.refuses(err, time.Now(), p.Patience); err != nil {
				return 0, err
			}
		case making: // an older queue of that name is being deleted
			s.alarm(p.Log, err)
			return j.Full(putBase, putLimit/3, "put", object, attempt), nil
		case !made && storage.Is(err, storage.Missing):
			s.missing()
			return 0, nil
		case !s.accepted.Load():
			return 0, fmt.Errorf("queue %s takes no messages: %w", s.name, err)
		}
		s.alarm(p.Log, err)
		return j.Full(putStoppedBase, putStoppedLimit, "put", object, attempt), nil
	case storage.Canceled:
		// Not by our own context, or deliver would not have asked. Nothing was sent.
		return j.Full(putBase, putLimit, "put", object, attempt), nil
	default:
		// Invalid, TooLarge, or an answer that a put cannot have: the same bytes
		// would fail every time.
		return 0, fmt.Errorf("an envelope of %d characters was refused: %w", len(m.Text), err)
	}
}
