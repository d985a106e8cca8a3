package report

import (
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"
)

// Chart is lines over two axes. A curve without a value is not among its lines.
type Chart struct {
	X, Y   string // what the axes are of
	Traces []Trace
	Events []float64 // of X, each a dotted line
	Log    bool      // the scale is logarithmic
	AtZero bool      // the scale begins at 0

	seconds bool // the values are times
}

// Trace is one line of a chart. Where a value is null there is a gap.
type Trace struct {
	Name   string
	X      []float64
	Y      []*float64
	Colour color.RGBA
	Dashed bool
	Points bool
}

// LabelX writes a number of the axis of X as the tables write it.
func (c *Chart) LabelX(v float64) string { return number(v) }

// LabelY writes a value as the tables write it.
func (c *Chart) LabelY(v float64) string {
	if c.seconds {
		return duration(v)
	}
	return number(v)
}

// Draw makes an SVG element of a chart.
type Draw func(*Chart) (template.HTML, error)

// figure is a plot with what it shows in words.
type figure struct {
	Title, Text string
	Key         []keyEntry
	SVG         template.HTML
}

// keyEntry says which line is what. It stands above the plot, where it hides no line.
type keyEntry struct {
	Name   string
	Line   int // the place of its colour
	Dashed bool
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
	seconds     bool // the values are times
	log         bool // the scale is logarithmic
	atZero      bool // the scale begins at 0
}

// Colours can be told apart by the colour-blind (Okabe and Ito).
var Colours = []color.RGBA{
	{0, 114, 178, 255},
	{213, 94, 0, 255},
	{0, 158, 115, 255},
	{204, 121, 167, 255},
	{230, 159, 0, 255},
	{86, 180, 233, 255},
	{110, 110, 110, 255},
	{0, 0, 0, 255},
}

// atNight are the same by their places, for a dark page.
var atNight = []color.RGBA{
	{90, 169, 230, 255},
	{255, 138, 61, 255},
	{46, 201, 154, 255},
	{226, 154, 194, 255},
	{240, 185, 58, 255},
	{154, 212, 247, 255},
	{165, 165, 165, 255},
	{230, 237, 243, 255},
}

// Hex is a colour as style sheets write it.
func Hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// LineProperty is the property of the page's style with the colour of a line, by its place among
// [Colours]. It follows the reader's choice of light or dark.
func LineProperty(i int) string { return fmt.Sprintf("--line-%d", i) }

// lineStyles define what the lines of plots look like, and those of their keys.
func lineStyles() template.CSS {
	var b strings.Builder
	b.WriteString(":root {\n")
	for i := range Colours {
		fmt.Fprintf(&b, "  %s: light-dark(%s, %s);\n", LineProperty(i), Hex(Colours[i]), Hex(atNight[i]))
	}
	b.WriteString("}\n")
	for i := range Colours {
		fmt.Fprintf(&b, ".line%d { stroke: var(%s); }\n", i, LineProperty(i))
	}
	return template.CSS(b.String()) //nolint:gosec // it is of constants
}

// draw makes the figure; without SVG if there is nothing to be drawn.
func (c *chart) draw(draw Draw) (figure, error) {
	f := figure{Title: c.title, Text: c.text}
	out := Chart{X: plain(c.x), Y: plain(c.y), Log: c.log, AtZero: c.atZero, seconds: c.seconds}
	for i := range c.curves {
		u := &c.curves[i]
		if !u.hasValue() {
			continue
		}
		k := i % len(Colours)
		f.Key = append(f.Key, keyEntry{u.name, k, u.dashed})
		out.Traces = append(out.Traces, Trace{plain(u.name), u.xs, u.ys, Colours[k], u.dashed, u.points})
	}
	if len(out.Traces) == 0 {
		return f, nil
	}
	for _, e := range c.events {
		out.Events = append(out.Events, e.At)
	}
	svg, err := draw(&out)
	if err != nil {
		return f, fmt.Errorf("drawing %s: %w", plain(c.title), err)
	}
	f.SVG = svg
	return f, nil
}

func (u *curve) hasValue() bool {
	for _, y := range u.ys[:min(len(u.xs), len(u.ys))] {
		if y != nil && !math.IsNaN(*y) && !math.IsInf(*y, 0) {
			return true
		}
	}
	return false
}
