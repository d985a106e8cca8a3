package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// figure is a plot with what it shows in words.
type figure struct {
	Title, Text string
	Plot        plot
}

// plot is what the page's script draws of a chart, without the curves that have no value.
type plot struct {
	X, Y   string // what the axes are of
	Lines  []line
	Events []float64 // of X, each a dotted line
	Times  bool      // as a chart has it
}

// line is a curve whose values a script can read. Its name stands above the plot, where it hides no
// line.
type line struct {
	Name           string
	Colour         int // the place of its colour
	Dashed, Points bool
	X              []float64
	Y              []*float64
}

// curve is one line of a plot. Where a value is null there is a gap.
type curve struct {
	name   string
	xs     []float64
	ys     []*float64
	dashed bool
	points bool
}

// chart is what is to be drawn.
type chart struct {
	title, text string
	x, y        string
	curves      []curve
	events      []Event
	times       bool // the values are times, on a logarithmic scale; others begin at 0
}

// colours of lines, on a light and on a dark page, can be told apart by the colour-blind (Okabe and
// Ito).
var colours = [][2]string{
	{"#0072b2", "#5aa9e6"},
	{"#d55e00", "#ff8a3d"},
	{"#009e73", "#2ec99a"},
	{"#cc79a7", "#e29ac2"},
	{"#e69f00", "#f0b93a"},
	{"#56b4e9", "#9ad4f7"},
	{"#6e6e6e", "#a5a5a5"},
	{"#000000", "#e6edf3"},
}

// lineStyles define what the lines of plots look like, and those of their keys. They follow the
// reader's choice of light or dark.
func lineStyles() template.CSS {
	var b strings.Builder
	b.WriteString(":root {\n")
	for i, c := range colours {
		fmt.Fprintf(&b, "  --line-%d: light-dark(%s, %s);\n", i, c[0], c[1])
	}
	b.WriteString("}\n")
	for i := range colours {
		fmt.Fprintf(&b, ".line%d { stroke: var(--line-%d); }\n", i, i)
	}
	return template.CSS(b.String()) //nolint:gosec // it is of constants
}

// figure makes the figure; it reports whether there is anything to be drawn.
func (c *chart) figure() (figure, bool) {
	p := plot{X: plain(c.x), Y: plain(c.y), Times: c.times}
	for i := range c.curves {
		if l, ok := c.curves[i].line(); ok {
			l.Colour = i % len(colours)
			p.Lines = append(p.Lines, l)
		}
	}
	for _, e := range c.events {
		p.Events = append(p.Events, e.At)
	}
	return figure{c.title, c.text, p}, len(p.Lines) > 0
}

// line is a curve with what can be drawn of it; it reports whether there is a value.
func (u *curve) line() (l line, some bool) {
	l = line{Name: plain(u.name), Dashed: u.dashed, Points: u.points}
	for i, y := range u.ys[:min(len(u.xs), len(u.ys))] {
		if !drawable(u.xs[i]) {
			continue
		}
		if y != nil && !drawable(*y) {
			y = nil
		}
		some = some || y != nil
		l.X, l.Y = append(l.X, u.xs[i]), append(l.Y, y)
	}
	return l, some
}

// drawable reports whether a value has a place on an axis: a file may come from anywhere.
func drawable(v float64) bool { return math.Abs(v) < 1e30 }
