// This file draws tables of texts in the width of a screen: columns are aligned, made narrower and
// left out, and rows without room are summed up. It also makes the texts in tables: texts that are
// cut to a width, and texts for values that may be empty or unknown.

package operate

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Column is a column of a table. If the screen is too narrow, spare columns go first. Then the
// columns that may shrink do, the widest first. Then columns with a rank go, the highest first. A
// column without a text in any row is left out.
type Column struct {
	Title  string
	Right  bool
	Shrink int  // how narrow the column may be made, 0 not at all
	Middle bool // a text loses its middle where it is cut, else its end
	Spare  bool
	Rank   int // 0: the column stays
}

// Columns are those of a table.
func Columns(all ...Column) []Column { return all }

// Left is a column with its texts at the left, Right with its texts at the right.
func Left(title string) Column { return Column{Title: title} }

// Right is described with Left.
func Right(title string) Column { return Column{Title: title, Right: true} }

// Short is a column that may be made so narrow.
func Short(title string, least int) Column { return Column{Title: title, Shrink: least} }

// Middle is a column that may be made so narrow; its texts then lose their middles.
func Middle(title string, least int) Column {
	return Column{Title: title, Shrink: least, Middle: true}
}

// Ranked is the column with a rank.
func (c Column) Ranked(rank int) Column {
	c.Rank = rank
	return c
}

// Table is rows of texts.
type Table struct {
	Columns []Column
	Rows    [][]string
	Sorted  int  // the column that the rows are sorted by, from 1; 0: none is marked
	Strict  bool // in the end also columns that may not shrink are cut
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write prints the table unless it has no rows.
func (t *Table) Write(w io.Writer, limit int) {
	if len(t.Rows) == 0 {
		return
	}
	titles, line := t.Fit(limit)
	fmt.Fprintln(w, titles)
	for _, row := range t.Rows {
		fmt.Fprintln(w, line(row))
	}
}

// gap is what stands between two columns.
const gap = "  "

// Fit gives the line of titles, and what makes a line of a row.
func (t *Table) Fit(limit int) (titles string, line func(row []string) string) {
	widths := t.widths(limit)
	line = func(row []string) string {
		var out []string
		for i, to := range widths {
			if to == 0 {
				continue
			}
			c, cell := t.Columns[i], Cut(row[i], to)
			if c.Middle {
				cell = CutMiddle(row[i], to)
			}
			pad := strings.Repeat(" ", max(to-Width(cell), 0))
			if c.Right {
				cell = pad + cell
			} else {
				cell += pad
			}
			out = append(out, cell)
		}
		return strings.TrimRight(strings.Join(out, gap), " ")
	}
	top := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		top[i] = c.Title
		if t.Sorted == i+1 && c.Title != "" && widths[i] > Width(c.Title) {
			top[i] += "▾"
		}
	}
	return line(top), line
}

// widths says how wide each column is, 0 where it is left out.
func (t *Table) widths(limit int) []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		for _, row := range t.Rows {
			if row[i] != "" {
				widths[i] = max(widths[i], Width(row[i]), Width(c.Title))
			}
		}
	}
	for i, c := range t.Columns {
		if c.Spare && total(widths) > limit {
			widths[i] = 0
		}
	}
	for total(widths) > limit {
		shrinks, goes, widest := -1, -1, 0
		for i, c := range t.Columns {
			if c.Shrink > 0 && widths[i] > c.Shrink && (shrinks < 0 || widths[i] > widths[shrinks]) {
				shrinks = i
			}
			if widths[i] > 0 && c.Rank > 0 && (goes < 0 || c.Rank > t.Columns[goes].Rank) {
				goes = i
			}
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		switch {
		case shrinks >= 0:
			widths[shrinks]--
		case goes >= 0:
			widths[goes] = 0
		case !t.Strict || widths[widest] <= 1:
			return widths
		default:
			widths[widest]--
		}
	}
	return widths
}

func total(widths []int) int {
	sum := -len(gap)
	for _, w := range widths {
		if w > 0 {
			sum += w + len(gap)
		}
	}
	return sum
}

// Fold is how many of n rows are shown: all, or one less than there is room for, because the last
// line sums up the others.
func Fold(n, room int) int {
	if n <= room {
		return n
	}
	return max(room-1, 1)
}

// Width is how many columns of a terminal a text takes.
func Width(s string) int { return ansi.StringWidth(s) }

// Cut shortens a text to a width, with an ellipsis at its end.
func Cut(s string, to int) string { return ansi.Truncate(s, to, "…") }

// CutMiddle shortens a name to a width, with an ellipsis in it: names of instances differ in their
// ends, those of hosts in their beginnings.
func CutMiddle(s string, to int) string {
	all, end := Width(s), (to-1)*3/5
	if all <= to {
		return s
	}
	tail := ansi.TruncateLeft(s, all-end, "")
	if Width(tail) > end { // half of a wide character has no room
		tail = ansi.TruncateLeft(s, all-end+1, "")
	}
	return ansi.Truncate(s, to-1-Width(tail), "") + "…" + tail
}

// Wrap prints a text, if there is one, in lines that fit, those after the first indented. Words
// that are too long are cut.
func Wrap(w io.Writer, limit int, prefix, text string) {
	line, empty := prefix, true
	for word := range strings.FieldsSeq(text) {
		if !empty && Width(line)+1+Width(word) > limit {
			fmt.Fprintln(w, line)
			line, empty = "  ", true
		}
		if !empty {
			line += " "
		}
		line, empty = line+Cut(word, limit-Width(line)), false
	}
	if line != "" {
		fmt.Fprintln(w, line)
	}
}

// Facts gives a function that prints a line of a name and a value, if there is a value.
func Facts(w io.Writer, names int) func(name, value string) {
	return func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-*s %s\n", names, name, value)
		}
	}
}

// Join joins the texts that are not empty.
func Join(between string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), between)
}

// If is text if the condition holds, else empty.
func If(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// Known is the text of a value if it is known.
func Known[T, R any](value *T, say func(T) R, unknown R) R {
	if value == nil {
		return unknown
	}
	return say(*value)
}
