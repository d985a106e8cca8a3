package operate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/rivo/uniseg"

	"github.com/queuepump/queuepump/internal/cli"
)

func plain(s string) string { return cli.Plain(s) }

func printJSON(w io.Writer, v any) error { return cli.PlainJSON(w, v) }

// wholeLines is the width where no terminal cuts: a pipe gets everything.
const wholeLines = 1 << 20

// screenWidth is how wide a table may be that is printed once.
func screenWidth(out io.Writer) int {
	if width, _, terminal := size(out); terminal {
		return max(width, 80)
	}
	return wholeLines
}

func width(s string) int { return uniseg.StringWidth(s) }

// cut shortens a text to a width, with an ellipsis at its end.
func cut(s string, to int) string {
	if width(s) <= to {
		return s
	}
	return head(s, to-1) + "…"
}

// cutMiddle shortens a name to a width, with an ellipsis in it: names of
// instances differ in their ends, those of hosts in their beginnings.
func cutMiddle(s string, to int) string {
	if width(s) <= to {
		return s
	}
	end := (to - 1) * 3 / 5
	var tail string
	for rest := s; rest != "" && width(rest) > end; {
		_, rest, _, _ = uniseg.FirstGraphemeClusterInString(rest, -1)
		tail = rest
	}
	return head(s, to-1-width(tail)) + "…" + tail
}

// head is the beginning of a text, at most that wide.
func head(s string, to int) string {
	at := 0
	for rest, state := s, -1; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if to -= w; to < 0 {
			break
		}
		at += len(cluster)
	}
	return s[:at]
}

// column is a column of a table.
type column struct {
	title string
	right bool
	// shrink is how narrow the column may be made, 0 not at all.
	shrink int
	cut    func(string, int) string // default: cut
}

// table aligns rows of texts and keeps them within a width.
type table struct {
	columns []column
	rows    [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table unless it has no rows. Columns that have nothing in any
// row are left out.
func (t *table) write(w io.Writer, limit int) {
	if len(t.rows) == 0 {
		return
	}
	widths := make([]int, len(t.columns))
	for _, row := range t.rows {
		for i, cell := range row {
			if cell != "" {
				widths[i] = max(widths[i], width(cell), width(t.columns[i].title))
			}
		}
	}
	t.shrink(widths, limit)
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	for _, row := range append([][]string{titles}, t.rows...) {
		t.line(w, widths, row)
	}
}

// shrink takes from the widest of the columns that may shrink, until all fit.
func (t *table) shrink(widths []int, limit int) {
	total := -2
	for _, w := range widths {
		if w > 0 {
			total += w + 2
		}
	}
	for ; total > limit; total-- {
		widest := -1
		for i, c := range t.columns {
			if c.shrink > 0 && widths[i] > c.shrink && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func (t *table) line(w io.Writer, widths []int, row []string) {
	var b strings.Builder
	for i, cell := range row {
		if widths[i] == 0 {
			continue
		}
		c := t.columns[i]
		if c.cut != nil {
			cell = c.cut(cell, widths[i])
		} else {
			cell = cut(cell, widths[i])
		}
		if b.Len() > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", widths[i]-width(cell))
		if c.right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
}

// number writes a count in at most six characters.
func number[T int | int64 | uint64](n T) string {
	f := float64(n)
	if f < 100_000 {
		return humanize.Comma(int64(n))
	}
	for _, unit := range []string{"k", "M", "G", "T", "P"} {
		f /= 1000
		switch {
		case f < 9.995:
			return fmt.Sprintf("%.2f%s", f, unit)
		case f < 99.95:
			return fmt.Sprintf("%.1f%s", f, unit)
		case f < 999.5:
			return fmt.Sprintf("%.0f%s", f, unit)
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

// ageText is a span of seconds, as far as it matters to the eye.
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

// timeText is a time as one reads it today: with the date instead of the seconds
// if it is another day, and with the year alone if it is another one.
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
func (c screen) section(w io.Writer, t *table) {
	if len(t.rows) > 0 {
		fmt.Fprintln(w)
		limit := c.width
		if c.whole {
			limit = wholeLines
		}
		t.write(w, limit)
	}
}

// fold is how many of n rows are shown: all, or one less than there is room for,
// as the last line sums up the others.
func fold(n, room int) int {
	if n <= room {
		return n
	}
	return max(room-1, 1)
}

// wrap prints a text in lines that fit, those after the first indented. Words
// that are too long are cut.
func (c screen) wrap(w io.Writer, prefix, text string) {
	line := prefix
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && width(line)+1+width(word) > c.width {
			fmt.Fprintln(w, line)
			line, empty = "  ", true
		}
		if !empty {
			line += " "
		}
		line, empty = line+cut(word, c.width-width(line)), false
	}
	fmt.Fprintln(w, line)
}
