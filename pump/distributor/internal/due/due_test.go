package due

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/election"
)

func parsed(t *testing.T, text, zone string) (*election.Schedule, *time.Location) {
	t.Helper()
	s, err := Parse(text, zone)
	proof.Must(t, err)
	loc, err := time.LoadLocation(zone)
	proof.Must(t, err)
	return s, loc
}

func TestDueTimesOnTheNightsOfTheChange(t *testing.T) {
	for name, c := range map[string]struct{ cron, zone, from, want string }{
		"a time that does not exist is when the clock has changed": {
			"30 2 * * *", "Europe/Oslo", "2026-03-28 00:00",
			"28 02:30 +0100, 29 03:00 +0200, 30 02:30 +0200",
		},
		"two that do not exist, and the one after them, are one": {
			"0,30 2,3 * * *", "Europe/Oslo", "2026-03-29 00:00",
			"29 03:00 +0200, 29 03:30 +0200",
		},
		"a time that comes twice is the first": {
			"30 2 * * *", "Europe/Oslo", "2026-10-24 12:00",
			"25 02:30 +0200, 26 02:30 +0100",
		},
		"an hour that comes twice, of some hours": {
			"0 1,2,3 * * *", "Europe/Oslo", "2026-10-25 00:00",
			"25 01:00 +0200, 25 02:00 +0200, 25 03:00 +0100",
		},
		"all hours follow the time that passes, forward": {
			"30 * * * *", "Europe/Oslo", "2026-03-29 00:00",
			"29 00:30 +0100, 29 01:30 +0100, 29 03:30 +0200, 29 04:30 +0200",
		},
		"all hours follow the time that passes, back": {
			"30 * * * *", "Europe/Oslo", "2026-10-25 01:00",
			"25 01:30 +0200, 25 02:30 +0200, 25 02:30 +0100, 25 03:30 +0100",
		},
		"a zone whose midnight does not exist": {
			"0 0 * * *", "Africa/Cairo", "2026-04-23 12:00",
			"24 01:00 +0300, 25 00:00 +0300",
		},
		"a zone that changes by half an hour": {
			"45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00",
			"05 01:45 +1100, 06 01:45 +1030",
		},
		"a yearly one of all hours, over two changes": {
			"0 * 1 1 *", "Europe/Oslo", "2026-02-01 00:00",
			"01 00:00 +0100, 01 01:00 +0100",
		},
		"weekdays": {
			"0 6 * * 1-5", "Europe/Oslo", "2026-11-26 12:00",
			"27 06:00 +0100, 30 06:00 +0100, 01 06:00 +0100",
		},
		"UTC has no change": {"30 2 * * *", "", "2026-03-28 12:00", "29 02:30 +0000"},
		"a short form":      {"@daily", "", "2026-03-28 12:00", "29 00:00 +0000"},
	} {
		t.Run(name, func(t *testing.T) {
			s, zone := parsed(t, c.cron, c.zone)
			from, err := time.ParseInLocation("2006-01-02 15:04", c.from, zone)
			proof.Must(t, err)
			var got []string
			for at := s.Next(from); len(got) < strings.Count(c.want, ",")+1; at = s.Next(at) {
				got = append(got, at.In(zone).Format("02 15:04 -0700"))
			}
			proof.Same(t, strings.Join(got, ", "), c.want, got)
		})
	}
}

// Any schedule of some hours has each time of the clock once, in order, in a year of any zone.
func TestAYearOfDueTimesInOrder(t *testing.T) {
	for _, zone := range []string{"", "Europe/Oslo", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "America/Santiago", "Pacific/Chatham"} {
		for text, want := range map[string]int{
			"30 2 * * *": 365, "0 0 * * *": 365, "15 1,2,3,23 * * *": 4 * 365, "0 6 * * 1-5": 261, "30 * * * *": 8760, "*/20 * * * 0": 52 * 72,
		} {
			s, loc := parsed(t, text, zone)
			n, last := 0, time.Date(2026, 1, 1, 0, 0, 0, 0, loc).Add(-1)
			for at := s.Next(last); at.Before(time.Date(2027, 1, 1, 0, 0, 0, 0, loc)); at = s.Next(at) {
				if !at.After(last) || at.Second() != 0 {
					t.Fatalf("%s in %s: %v follows %v", text, zone, at, last)
				}
				n, last = n+1, at
			}
			if n < want-4 || n > want+4 || strings.HasPrefix(text, "30 2") && n != want {
				t.Errorf("%s in %s: %d due times, want %d", text, zone, n, want)
			}
		}
	}
}

func TestABadScheduleIsNamedWithTheFix(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "0 fields",
		"61 * * * *":               `"61" is not possible as the minute`,
		"0 6 * * 7":                `"7" is not possible as the day of the week`,
		"0 x * * *":                `"x" is not possible as the hour`,
		"0 0 6 * * *":              "no seconds",
		"0 6 * *":                  "4 fields",
		"0 0 30 2 *":               "no day has such a time",
		", * * * *":                "no day has such a time",
		"@every 5m":                "use every",
		"@nightly":                 "@nightly",
		"TZ=Europe/Oslo 0 6 * * *": "6 fields",
		strings.Repeat("1,", 100):  "bytes",
		"0 6 * * 1-5/0":            "day of the week",
		"0 6 1-2-3 * *":            "day of the month",
		"0 6 * jun-18446744073 * ": "month",
		"@daily 0 6 * * ":          "minute",
		"CRON_TZ=UTC * * * *":      `"CRON_TZ=UTC" is not possible`,
	} {
		_, err := Parse(text, "")
		proof.Says(t, err, want, text)
	}
	for _, zone := range []string{"Europe/Olso", "Local", "../etc/passwd", "+01:00"} {
		proof.Says(t, proof.ErrOf(Parse("0 6 * * *", zone)), "Europe/Oslo", "zone", zone)
	}
}
