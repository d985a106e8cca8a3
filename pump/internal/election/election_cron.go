package election

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// Schedule says when distributions are due, in place of [Options.Every].
type Schedule struct {
	// Text names the schedule in the row. A candidate that knows of no due time, and finds the row
	// without this schedule, considers the due times after its look only.
	Text string
	// Next is the first due time after t; zero: there is none.
	Next func(t time.Time) time.Time
	// Skip leaves out the due times before the first look of this candidate, and those that came
	// during a distribution.
	Skip bool
	// Kept is how far back a due time may be.
	Kept time.Duration
}

// latest is the last due time after one moment and not after another; zero: there is none.
func (s *Schedule) latest(after, now time.Time) (last time.Time) {
	after = later(after, now.Add(-s.Kept))
	for d := time.Hour; ; d *= 2 {
		from := later(after, now.Add(-d))
		for next := s.Next(from); !next.IsZero() && !next.After(now); next = s.Next(next) {
			last = next
		}
		if !last.IsZero() || !from.After(after) {
			return last
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// now is a time that the server's clock has reached.
func (e *Election) now(ctx context.Context) (time.Time, error) {
	now, err := e.schedule.clock.AtLeast(ctx)
	if err == nil && now.IsZero() {
		err = errors.New("the table stamps no rows, and a schedule needs the server's time")
	}
	if err == nil && e.first.IsZero() {
		e.first = now
	}
	return now, err
}

// judgeDue says whether a due time of the schedule has come, while no process leads.
func (e *Election) judgeDue(
	ctx context.Context, r electionRow,
) (why string, wait time.Duration, err error) {
	now, err := e.now(ctx)
	s := e.options.Cron
	if err != nil || e.upTo.IsZero() {
		return "the row does not have the schedule " + s.Text, 0, err
	}
	if e.next = s.Next(e.upTo); r.cron == s.Text && r.upTo.Equal(e.upTo) {
		e.next = r.next
	}
	if wait = e.next.Sub(now); wait > 0 {
		return "", wait, nil
	}
	return "a distribution is due", 0, nil
}

// base is up to when due times are considered, as the next term sees it.
func (e *Election) base(r electionRow, left Left, now time.Time) time.Time {
	s, base := e.options.Cron, e.upTo
	switch {
	case base.IsZero() && left.Made:
		base = now.Add(-s.Kept) // the row is gone; the rows of runs tell what was made
	case base.IsZero():
		base = now
	}
	again := r.cron == s.Text && !r.next.Equal(s.Next(r.upTo)) // its run broke
	if s.Skip && r.phase != Running && !again && e.first.After(base) {
		e.options.leaveOut(s.latest(base, e.first), "no distributor lived then")
		base = e.first
	}
	return base
}

func (o *Options) leaveOut(due time.Time, because string) {
	if !due.IsZero() {
		o.Log.Warn("a due time is left out", "due", due, "because", because)
	}
}

// NextDue is when the next distribution of the schedule is due, as far as Try knows; zero: it does
// not know. It belongs to the caller of Try.
func (e *Election) NextDue() time.Time { return e.next }

// Due is the due time of the schedule that this term has to make, and the server's time; zero:
// none. Begin and Finish note it. Due belongs to one goroutine, with Begin, PutOff and Finish.
func (t *Term) Due(ctx context.Context) (due, now time.Time, err error) {
	if now, err = t.now(ctx); err != nil {
		return due, now, err
	}
	t.due = t.options.Cron.latest(t.base, now)
	return t.due, now, nil
}

// PutOff has Finish leave the due time to another term, after a pause.
func (t *Term) PutOff(pause time.Duration) { t.putOff = pause }

// considered is what Finish writes of the schedule.
func (t *Term) considered(ctx context.Context) (upTo, next time.Time, err error) {
	s := t.options.Cron
	if s == nil {
		return upTo, next, nil
	}
	now, err := t.now(ctx)
	if err != nil || t.putOff > 0 {
		return t.base, now.Add(t.putOff), err
	}
	if upTo = later(t.base, t.due); s.Skip {
		t.options.leaveOut(s.latest(upTo, now), "it came during a distribution")
		upTo = later(upTo, now)
	}
	return upTo, s.Next(upTo), nil
}

// schedule tells when an idle election row becomes due by the server's clock.
type schedule struct {
	clock row.ServerClock

	etag storage.ETag // what due is about
	due  time.Time    // local
	at   time.Time    // when it was worked out
}

// untilDue says how long until the idle row v is due: the time of its last write, by the server's
// clock, plus the shorter of its period and this candidate's. Zero or less is due.
func (s *schedule) untilDue(
	ctx context.Context, v row.Version[electionRow], every time.Duration,
) (time.Duration, error) {
	if v.ETag != s.etag || time.Since(s.at) > row.ClockAge {
		server, local, err := s.clock.Read(ctx)
		if err != nil {
			return 0, err
		}
		// A server that set its clock back must not make it longer than a period.
		var age time.Duration
		if !server.IsZero() && !v.Modified.IsZero() { // else: a whole period from now
			age = max(0, server.Sub(v.Modified))
		}
		s.etag, s.at, s.due = v.ETag, local, local.Add(min(every, v.Value.every)-age)
	}
	return time.Until(s.due), nil
}
