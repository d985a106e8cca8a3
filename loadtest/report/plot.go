package report

import (
	"bytes"
	"fmt"
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
)

// figure is a plot with what it shows in words.
type figure struct {
	Title, Text string
	Key         []keyEntry
	SVG         template.HTML
}

// keyEntry says which line is what. It stands above the plot, where it hides no line.
type keyEntry struct {
	Name, Colour string
	Dashed       bool
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

// colours can be told apart by the colour-blind (Okabe and Ito).
var colours = []color.RGBA{
	{0, 114, 178, 255},
	{213, 94, 0, 255},
	{0, 158, 115, 255},
	{204, 121, 167, 255},
	{230, 159, 0, 255},
	{86, 180, 233, 255},
	{110, 110, 110, 255},
	{0, 0, 0, 255},
}

// least is the smallest value on a logarithmic scale: a microsecond.
const least = 1e-6

// draw makes the figure.
func (c *chart) draw() (figure, error) {
	f := figure{Title: c.title, Text: c.text}
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = plain(c.x), plain(c.y)
	p.Y.Tick.Marker = labelled{plot.DefaultTicks{}, c.seconds}
	p.X.Tick.Marker = labelled{plot.DefaultTicks{}, false}
	if c.log {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, labelled{plot.LogTicks{Prec: -1}, c.seconds}
	}
	style(p)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{240}
	p.Add(grid)
	drawn := false
	for i := range c.curves {
		ok, err := c.add(p, i)
		if err != nil {
			return f, err
		}
		if ok {
			k := colours[i%len(colours)]
			f.Key = append(f.Key, keyEntry{c.curves[i].name, fmt.Sprintf("#%02x%02x%02x", k.R, k.G, k.B), c.curves[i].dashed})
			drawn = true
		}
	}
	if !drawn {
		return f, nil
	}
	p.X.Min = 0
	if c.atZero {
		p.Y.Min = 0
	}
	if p.Y.Max <= p.Y.Min { // one and the same value all the time
		p.Y.Max = p.Y.Min + max(math.Abs(p.Y.Min), 1)
	}
	if !c.log {
		p.Y.Max += (p.Y.Max - p.Y.Min) * 0.04 // so that the top line is seen
	} else { // whole decades
		p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, math.Ceil(math.Log10(p.Y.Max)))
	}
	if err := c.mark(p); err != nil {
		return f, err
	}
	var err error
	f.SVG, err = render(p)
	return f, err
}

func style(p *plot.Plot) {
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	for _, t := range []*font.Font{
		&p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font,
	} {
		*t = sans
	}
}

// add draws the i-th curve, piece by piece between the gaps.
func (c *chart) add(p *plot.Plot, i int) (drawn bool, err error) {
	u := &c.curves[i]
	var run plotter.XYs
	flush := func() error {
		if len(run) == 0 {
			return nil
		}
		l, s, err := plotter.NewLinePoints(run)
		if err != nil {
			return err
		}
		l.Color, l.Width = colours[i%len(colours)], vg.Points(1.4)
		s.Color, s.Shape, s.Radius = l.Color, draw.CircleGlyph{}, vg.Points(2)
		if u.dashed {
			l.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(l)
		if u.points || len(run) == 1 {
			p.Add(s)
		}
		run, drawn = nil, true
		return nil
	}
	for k, y := range u.ys {
		if y == nil || math.IsNaN(*y) || math.IsInf(*y, 0) || k >= len(u.xs) {
			if err := flush(); err != nil {
				return drawn, err
			}
			continue
		}
		v := *y
		if c.log {
			v = max(v, least)
		}
		run = append(run, plotter.XY{X: u.xs[k], Y: v})
	}
	return drawn, flush()
}

// mark draws the events.
func (c *chart) mark(p *plot.Plot) error {
	for _, e := range c.events {
		l, err := plotter.NewLine(plotter.XYs{{X: e.At, Y: p.Y.Min}, {X: e.At, Y: p.Y.Max}})
		if err != nil {
			return err
		}
		l.Color, l.Width, l.Dashes = color.Gray{130}, vg.Points(0.7), []vg.Length{vg.Points(2), vg.Points(2)}
		p.Add(l)
	}
	return nil
}

// labelled writes the labels of an axis as the tables write numbers.
type labelled struct {
	plot.Ticker
	seconds bool
}

// Ticks implements [plot.Ticker].
func (t labelled) Ticks(lo, hi float64) []plot.Tick {
	ticks := t.Ticker.Ticks(lo, hi)
	for i := range ticks {
		switch {
		case ticks[i].Label == "":
		case t.seconds:
			ticks[i].Label = duration(ticks[i].Value)
		default:
			ticks[i].Label = number(ticks[i].Value)
		}
	}
	return ticks
}

// The size of a plot in points, as it is drawn; the page scales it.
const width, height = 760, 250

// edge is left free at the right, where half of the last label stands out, and half of it above.
const edge = 16

var namespaces = regexp.MustCompile(`\s+xmlns(:\w+)?="[^"]*"`)

// render draws the plot as an element of a page. What stands before the element, and
// its namespaces, are of no use in a page.
func render(p *plot.Plot) (template.HTML, error) {
	c := vgsvg.NewWith(vgsvg.UseWH(width, height))
	p.Draw(draw.Crop(draw.New(c), 0, -edge, 0, -edge/2))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	svg := b.Bytes()
	i := bytes.Index(svg, []byte("<svg"))
	if i < 0 {
		return "", fmt.Errorf("the plot has no svg element")
	}
	svg = svg[i:]
	end := bytes.IndexByte(svg, '>') + 1
	head := namespaces.ReplaceAll(svg[:end], nil)
	return template.HTML(head) + template.HTML(svg[end:]), nil //nolint:gosec // names in it were escaped by the canvas
}
