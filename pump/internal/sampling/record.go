package sampling

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

const (
	// recordEvery is how often the sampler adds up the beats. It makes no request except for the row
	// of a minute. The day's cost is known as of this time, a beat and a look before.
	recordEvery = 15 * time.Second
	// lastRow is what a process that stops takes to write the last row.
	lastRow = 2 * time.Second
)

// recording is what the loop knows that keeps the history.
type recording struct {
	books   *books
	minute  time.Time    // that goes on
	failing logs.Limited // rows are not written
}

// Day is what this process says of the day's cost in its beats: nil if it does not sample, or does
// not know yet.
func (s *Sampler) Day() *cluster.Day {
	if s == nil {
		return nil
	}
	return s.day.Load()
}

// Money is what this process says of a day's cost.
func (s *Sampler) Money() pump.CostOfDay {
	d := s.Day()
	if d == nil {
		return pump.CostOfDay{}
	}
	return pump.CostOfDay{
		Date: midnight(d.Number).Format(time.DateOnly), Currency: s.queues.Allowance.Prices().Currency,
		Cost: new(d.Cost), PerDay: d.PerDay(),
	}
}

// record keeps the history until ctx ends, beside the looks at queues: a look at a thousand queues
// takes longer than a minute.
func (s *Sampler) record(ctx context.Context) {
	defer s.day.Store(nil)
	for n := uint64(0); waits.Wait(ctx,
		s.jitter.Around(recordEvery, "history", s.cfg.Workload, n)); n++ {
		v := s.view()
		if v == nil {
			continue
		}
		s.mu.Lock()
		switch by := chosen(v); {
		case s.cutOff(v): // its rows and sums end here: another one goes on from them
			s.day.Store(nil)
			s.recording = recording{}
		case by == s.cfg.Instance:
			if s.observe(ctx, v) {
				s.day.Store(s.recording.books.published())
				s.write(ctx, v, false)
			}
		case by == "": // this process stops, and says at the end what it knows
			s.day.Store(nil)
		default:
			s.day.Store(nil)
			s.recording = recording{}
		}
		s.mu.Unlock()
	}
}

// cutOff reports whether a look is so old that the other members may have taken this process for
// dead since.
func (s *Sampler) cutOff(v *cluster.View) bool {
	for i := range v.Members {
		if m := &v.Members[i]; m.Instance == s.cfg.Instance && m.Dead > 0 {
			return time.Since(v.Read) > m.Dead
		}
	}
	return false
}

// Last writes what is known when this process leaves, unless another process goes on: otherwise a
// process that lives for a minute would never write a row. Last takes no longer than lastRow, and
// gives way to a row that is being written.
func (s *Sampler) Last(ctx context.Context) {
	if s == nil {
		return
	}
	v := s.view()
	if v == nil {
		return
	}
	if by := chosen(v); by != "" && by != s.cfg.Instance || s.cutOff(v) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastRow)
	defer cancel()
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.observe(ctx, v) {
		asked, packed := s.asked()
		s.recording.books.own(v, s.cfg.Instance, asked, packed, v.ServerTime(time.Now()))
		s.write(ctx, v, true)
	}
}

// observe adds up a view. A process that has just been chosen goes on from the newest row. While it
// cannot read that row it does not say the day's cost, so that no process takes a part of the day
// for all of it. The lock is held.
func (s *Sampler) observe(ctx context.Context, v *cluster.View) bool {
	r := &s.recording
	now := v.ServerTime(time.Now())
	if r.books == nil {
		last, marks, err := NewestPoint(ctx, s.queues.Control, s.cfg.Workload)
		if err != nil {
			s.log.Warn("the newest row of the history cannot be read", "error", err)
			if row.MayRetry(err) || ctx.Err() != nil {
				return false
			}
		}
		r.books, r.minute = newBooks(s.queues.Allowance.Prices(), s.cfg.Budget.Account, last, marks),
			Minute(now)
	}
	r.books.prices = s.queues.Allowance.Prices() // a reload may have brought others
	r.books.observe(v, now)
	return true
}

// write writes the row of a finished minute, or the last row of a minute that is not finished. The
// lock is held.
func (s *Sampler) write(ctx context.Context, v *cluster.View, last bool) {
	r := &s.recording
	minute := Minute(v.ServerTime(time.Now()))
	if !minute.After(r.minute) && !last {
		return
	}
	p, marks := r.books.row(r.minute, v, s.latest.Load())
	r.minute = minute
	r.failing.Tell(ctx, s.log, WriteHistory(ctx, s.queues.Control, s.cfg.Workload, p, marks),
		"the history cannot be written: it has a gap", "the history is written again")
}
