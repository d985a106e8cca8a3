package operate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/cli"
)

func plain(s string) string { return cli.Plain(s) }

func printJSON(w io.Writer, v any) error { return cli.PlainJSON(w, v) }

// wholeLines is the width without a terminal: a pipe gets everything.
const wholeLines = 1 << 20

// screenWidth is how wide a table that is printed once may be.
func screenWidth(out io.Writer) int {
	if width, _, terminal := size(out); terminal {
		return max(width, 80)
	}
	return wholeLines
}

// number writes a count in at most six characters.
func number[T int | int64 | uint64](n T) string {
	f := float64(n)
	if f < 100_000 {
		return humanize.Comma(int64(n))
	}
	for _, unit := range []string{"k", "M", "G", "T", "P"} {
		if f /= 1000; f < 999.5 {
			return strings.TrimSuffix(fmt.Sprintf("%#.3g", f), ".") + unit
		}
	}
	return fmt.Sprintf("%.0fE", f/1000)
}

// rateText is a number a second.
func rateText(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0/s"
	case perSecond < 10:
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return number(int64(perSecond)) + "/s"
}

// ageText is a span of seconds, rounded for people.
func ageText(seconds float64) string {
	switch s := max(seconds, 0); {
	case s < 100:
		return fmt.Sprintf("%.0fs", s)
	case s < 100*60:
		return fmt.Sprintf("%.0fm", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%.0fh", s/3600)
	default:
		return fmt.Sprintf("%.0fd", s/86400)
	}
}

// timeText is a time as people read it today: on another day of this year with the date instead of
// the seconds, in another year the date alone.
func timeText(t, now time.Time) string {
	t = t.In(now.Location())
	switch {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format(time.TimeOnly)
	case t.Year() == now.Year():
		return t.Format("Jan _2 15:04")
	}
	return t.Format(time.DateOnly)
}

// section prints a table with an empty line before it.
func (c screen) section(w io.Writer, t *Table) {
	if len(t.Rows) > 0 {
		fmt.Fprintln(w)
		limit := c.width
		if c.whole {
			limit = wholeLines
		}
		t.Write(w, limit)
	}
}

// list prints as many rows as there is room for, and a line that sums up the others.
func list[T any](
	c screen, w io.Writer, columns []Column, all []T, cells func(T) []string,
	thing string, sum func(rest []T) string,
) {
	t := Table{Columns: columns}
	shown := Fold(len(all), c.rows)
	for _, one := range all[:shown] {
		t.Add(cells(one)...)
	}
	c.section(w, &t)
	if rest := all[shown:]; len(rest) > 0 && sum != nil {
		c.wrap(w, "", "and "+cli.Plural(int64(len(rest)), thing)+" more"+sum(rest))
	}
}

func (c screen) wrap(w io.Writer, prefix, text string) {
	Wrap(w, c.width, prefix, text)
}
