// Package due says when a distribution by a schedule is due. The fields of a schedule are those of
// cron. The hour of the clock may be missing or come twice in a night: then it is as with the cron
// of Debian.
//
//   - A due time that does not exist, because the clock goes forward past it, is when the clock has
//     gone forward.
//   - A due time that comes twice, because the clock goes back, is the first of the two.
//   - A schedule of all hours, such as "30 * * * *", follows the time that passes: nothing is
//     moved, and nothing left out.
package due

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/election"
)

// schedule is when distributions are due.
type schedule struct {
	zone   *time.Location
	fields *cron.SpecSchedule // of no zone: the one of the time that it is asked for
}

// most bounds the text of a schedule.
const most = 120

var fields = []string{"minute", "hour", "day of the month", "month", "day of the week"}

// Parse reads a schedule. The zone is UTC if its name is empty.
func Parse(text, zone string) (*election.Schedule, error) {
	words := strings.Fields(text)
	invalid := func(format string, a ...any) error {
		return pump.Invalid("cron", fmt.Sprintf("%q: "+format, append([]any{text}, a...)...),
			"use five fields (minute, hour, day of the month, month, day of the week; no seconds), for "+
				"example '0 6 * * 1-5', or @daily")
	}
	switch short := strings.HasPrefix(text, "@"); {
	case strings.HasPrefix(text, "@every"):
		return nil, pump.Invalid("cron", "@every has no due times", "use every")
	case len(text) > most:
		return nil, invalid("it has %d bytes, at most %d are possible", len(text), most)
	case len(words) != len(fields) && !(short && len(words) == 1):
		return nil, invalid("it has %d fields", len(words))
	case !short:
		for i, word := range words {
			one := slices.Repeat([]string{"*"}, len(fields))
			one[i] = word
			if _, err := cron.ParseStandard(strings.Join(one, " ")); err != nil {
				why, _, _ := strings.Cut(err.Error(), ": strconv")
				return nil, invalid("%q is not possible as the %s: %s", word, fields[i], why)
			}
		}
	}
	parsed, err := cron.ParseStandard(strings.Join(words, " "))
	if err != nil {
		return nil, invalid("%v", err)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || loc == time.Local { // machines differ in the latter
		return nil, pump.Invalid("timezone", fmt.Sprintf("%q is not a known zone", zone),
			"use a name such as Europe/Oslo; a program in Go on a machine without the zones' files "+
				"imports time/tzdata")
	}
	s := &schedule{loc, parsed.(*cron.SpecSchedule)}
	if s.next(time.Date(2024, 1, 1, 0, 0, 0, 0, loc)).IsZero() {
		return nil, invalid("no day has such a time")
	}
	text = strings.Join(words, " ") + " " + loc.String()
	return &election.Schedule{Text: text, Next: s.next}, nil
}

// next is the first due time after t; zero: there is none for years.
func (s *schedule) next(t time.Time) time.Time {
	t = t.In(s.zone)
	if every := uint64(1<<24 - 1); s.fields.Hour&every == every {
		return s.fields.Next(t)
	}
	// The schedule of a clock that is never changed, and then what it is in the zone.
	_, offset := t.Zone()
	for wall := t.Add(time.Duration(offset) * time.Second).UTC(); ; {
		if wall = s.fields.Next(wall); wall.IsZero() {
			return wall
		}
		if next := s.at(wall); next.After(t) {
			return next
		}
	}
}

// at is when the clocks of the zone show what a clock in UTC shows at wall: the first time, or the
// next moment at which they show more.
func (s *schedule) at(wall time.Time) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, s.zone)
	start, end := t.ZoneBounds()
	_, offset := t.Zone()
	_, before := start.Add(-1).Zone()
	shown, back := t.Add(time.Duration(offset)*time.Second), time.Duration(before-offset)*time.Second
	switch {
	case shown.After(wall): // there is no such time, and t is as long after the change
		return start
	case shown.Before(wall):
		return end
	case t.Sub(start) < back:
		return t.Add(-back) // the second time that they show it
	}
	return t
}
