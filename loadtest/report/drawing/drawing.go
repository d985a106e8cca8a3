// Package drawing draws what a load test found out, as SVG. It stands apart from package report
// because gonum's plot is large: who only measures does not build it.
package drawing

import (
	"bytes"
	"errors"
	"html/template"
	"image/color"
	"math"
	"regexp"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/queuepump/queuepump/loadtest/report"
)

// least is the smallest value on a logarithmic scale: a microsecond.
const least = 1e-6

// Element draws a chart as an element of a page. A page has no use for the lines before the element
// and its namespaces. The chart's colours are properties of the page's style, so that they follow
// it.
func Element(c *report.Chart) (template.HTML, error) {
	svg, err := document(c, false)
	if err != nil {
		return "", err
	}
	i := bytes.Index(svg, []byte("<svg"))
	if i < 0 {
		return "", errors.New("the plot has no svg element")
	}
	svg = svg[i:]
	end := bytes.IndexByte(svg, '>') + 1
	head := namespaces.ReplaceAll(svg[:end], nil)
	svg = append(head, styles.ReplaceAllFunc(svg[end:], func(style []byte) []byte {
		return hex.ReplaceAllFunc(style, property)
	})...)
	end = len(head)
	// The canvas has escaped the names in it.
	return template.HTML(head) + template.HTML(svg[end:]), nil //nolint:gosec // see above
}

// Document draws a chart as a file of its own, with the names of its lines.
func Document(c *report.Chart) ([]byte, error) { return document(c, true) }

var (
	styles = regexp.MustCompile(`\sstyle="[^"]*"`)
	hex    = regexp.MustCompile(`#[0-9A-Fa-f]{6}`)
)

// ground, ink and what is drawn under and over the lines.
var (
	ground   = color.RGBA{255, 255, 255, 255}
	ink      = color.RGBA{0, 0, 0, 255}
	grid     = color.RGBA{225, 225, 225, 255}
	fineGrid = color.RGBA{240, 240, 240, 255}
	event    = color.RGBA{130, 130, 130, 255}
)

// properties are what the page's style calls these colours. Where a line is as the ink, it is ink.
var properties = func() map[string]string {
	of := map[string]string{}
	for i, c := range report.Colours {
		of[report.Hex(c)] = "var(" + report.LineProperty(i) + ")"
	}
	of[report.Hex(ground)], of[report.Hex(ink)] = "none", "var(--text)"
	of[report.Hex(grid)], of[report.Hex(fineGrid)] = "var(--grid)", "var(--grid-fine)"
	of[report.Hex(event)] = "var(--mark)"
	return of
}()

// property is a colour as the page's style has it; one that is not known stays as it is.
func property(hex []byte) []byte {
	if p, ok := properties[string(bytes.ToLower(hex))]; ok {
		return []byte(p)
	}
	return hex
}

var namespaces = regexp.MustCompile(`\s+xmlns(:\w+)?="[^"]*"`)

// The size of a plot in points, as it is drawn; the page scales it.
const width, height = 760, 250

// edge is left free at the right, where half of the last label stands out, and half of it above.
const edge = 16

func document(c *report.Chart, names bool) ([]byte, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = c.X, c.Y
	p.X.Tick.Marker, p.Y.Tick.Marker = labelled{plot.DefaultTicks{}, c.LabelX},
		labelled{plot.DefaultTicks{}, c.LabelY}
	if c.Log {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, labelled{plot.LogTicks{Prec: -1}, c.LabelY}
	}
	style(p)
	lattice := plotter.NewGrid()
	lattice.Horizontal.Color, lattice.Vertical.Color = grid, fineGrid
	p.Add(lattice)
	for i := range c.Traces {
		line, err := add(p, &c.Traces[i], c.Log)
		if err != nil {
			return nil, err
		}
		if names && line != nil {
			p.Legend.Add(c.Traces[i].Name, line)
		}
	}
	scale(p, c)
	if err := mark(p, c.Events); err != nil {
		return nil, err
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, height))
	p.Draw(draw.Crop(draw.New(canvas), 0, -edge, 0, -edge/2))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

func style(p *plot.Plot) {
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	for _, t := range []*font.Font{
		&p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		*t = sans
	}
}

// scale sets where the axes begin and end.
func scale(p *plot.Plot, c *report.Chart) {
	p.X.Min = 0
	if c.AtZero {
		p.Y.Min = 0
	}
	if p.Y.Max <= p.Y.Min { // one and the same value all the time
		p.Y.Max = p.Y.Min + max(math.Abs(p.Y.Min), 1)
	}
	if !c.Log {
		p.Y.Max += (p.Y.Max - p.Y.Min) * 0.04 // so that the top line is seen
	} else { // whole decades
		p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))),
			math.Pow(10, math.Ceil(math.Log10(p.Y.Max)))
	}
}

// add draws a line, piece by piece between the gaps, and gives the last piece.
func add(p *plot.Plot, t *report.Trace, log bool) (last *plotter.Line, err error) {
	var run plotter.XYs
	flush := func() error {
		if len(run) == 0 {
			return nil
		}
		l, s, err := plotter.NewLinePoints(run)
		if err != nil {
			return err
		}
		l.Color, l.Width = t.Colour, vg.Points(1.4)
		s.Color, s.Shape, s.Radius = l.Color, draw.CircleGlyph{}, vg.Points(2)
		if t.Dashed {
			l.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(l)
		if t.Points || len(run) == 1 {
			p.Add(s)
		}
		run, last = nil, l
		return nil
	}
	for k, y := range t.Y {
		if y == nil || math.IsNaN(*y) || math.IsInf(*y, 0) || k >= len(t.X) {
			if err := flush(); err != nil {
				return last, err
			}
			continue
		}
		v := *y
		if log {
			v = max(v, least)
		}
		run = append(run, plotter.XY{X: t.X[k], Y: v})
	}
	return last, flush()
}

// mark draws the events.
func mark(p *plot.Plot, events []float64) error {
	for _, at := range events {
		l, err := plotter.NewLine(plotter.XYs{{X: at, Y: p.Y.Min}, {X: at, Y: p.Y.Max}})
		if err != nil {
			return err
		}
		l.Color, l.Width, l.Dashes = event, vg.Points(0.7), []vg.Length{vg.Points(2), vg.Points(2)}
		p.Add(l)
	}
	return nil
}

// labelled writes the labels of an axis.
type labelled struct {
	plot.Ticker
	write func(float64) string
}

// Ticks implements [plot.Ticker].
func (t labelled) Ticks(lo, hi float64) []plot.Tick {
	ticks := t.Ticker.Ticks(lo, hi)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = t.write(ticks[i].Value)
		}
	}
	return ticks
}
