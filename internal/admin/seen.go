package admin

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/status"
)

// Seer follows the readings and gathers what the page and the terminal show besides the status
// itself. It keeps the last minutes. The zero value works, for one goroutine at a time.
type Seer struct {
	past past
	pace pace
}

// Seen is what a Seer has gathered at one reading.
type Seen struct {
	Headline Headline
	Runs     []RunSeen

	point *Point // the point to draw; nil: it is too near to the last one
}

// RunSeen is a run with its speed in tasks a second and the seconds until it is over; nil if that
// is not known.
type RunSeen struct {
	status.Run
	PerSecond   *float64 `json:"perSecond"`
	SecondsLeft *float64 `json:"secondsLeft"`
}

// See takes a reading. The error is that of reading it; the status may be nil.
func (s *Seer) See(st *status.Status, err error) (seen Seen) {
	var now trend
	if st != nil {
		if err == nil {
			seen.point, now = s.past.see(st)
		}
		rates := s.pace.rates
		if !st.LocalClock { // the local clock would measure nothing
			rates = s.pace.see(st.Time, doneOf(st))
		}
		seen.Runs = runsOf(st, rates)
	}
	seen.Headline = headlineOf(st, now, err)
	return seen
}

// Every is the time from one reading to the next, by the cost of a reading.
func Every(w *status.Watcher, s *status.Status) time.Duration {
	return every(w.Read() + queuesIn(s))
}

// Causes are why messages are in quarantine.
type Causes struct {
	Messages int64 // in quarantine, by the counts of the queues
	Shown    int   // of those, the ones that were looked at: the first 32 of each account
	List     []CauseSeen
	Problem  string   // why they cannot be seen
	Dark     []string // accounts that do not answer
}

// CauseSeen is one cause among the messages that were looked at.
type CauseSeen struct {
	Cause           string
	Messages, Tasks int
	Stuck           int    // messages that cannot be redriven
	Detail          string // of one of them
}

// CausesOf looks at the first messages in quarantine and takes none; it calls pay before each
// request.
func CausesOf(
	ctx context.Context, cfg pump.Config, s *status.Status, pay func(context.Context) error,
) Causes {
	q := peekQuarantine(ctx, cfg, poisonOf(s), pay)
	c := Causes{Messages: q.Messages, Shown: q.Shown, Problem: q.Error, Dark: q.Dark}
	for _, g := range q.Groups {
		seen := CauseSeen{Cause: g.Cause, Messages: g.Messages, Tasks: g.Tasks, Stuck: g.Stuck}
		if len(g.Samples) > 0 {
			seen.Detail = g.Samples[0].Detail
		}
		c.List = append(c.List, seen)
	}
	return c
}
