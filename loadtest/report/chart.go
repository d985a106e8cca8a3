package report

import "math"

// chart is lines over two axes, as the page's script draws them, with their meaning in words.
type chart struct {
	Title, Text string `json:"-"`

	X, Y   string // what the axes show
	Lines  []trace
	Events []float64 // of X, each a dotted line
	Times  bool      // the values are times, on a logarithmic scale; others begin at 0
}

// trace is one line of a chart. Where a value is null there is a gap. Its name stands above the
// plot, where it hides no line.
type trace struct {
	Name           string
	X              []float64
	Y              []*float64
	Dashed, Points bool
	Colour         int // the place of its colour among those of the page's style
}

// colours is how many the page's style has.
const colours = 8

// drawn gives the charts with the lines that have a value, if there are any.
func drawn(charts ...*chart) (out []*chart) {
	for _, c := range charts {
		if c == nil {
			continue
		}
		lines := c.Lines
		c.Lines, c.X, c.Y = nil, plain(c.X), plain(c.Y)
		for _, l := range lines {
			if l, ok := l.drawn(); ok {
				l.Colour = len(c.Lines) % colours
				c.Lines = append(c.Lines, l)
			}
		}
		if len(c.Lines) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// drawn is a trace reduced to what can be drawn; it reports whether a value is left.
func (l trace) drawn() (_ trace, some bool) {
	xs, ys := l.X, l.Y
	l.Name, l.X, l.Y = plain(l.Name), nil, nil
	for i, y := range ys[:min(len(xs), len(ys))] {
		if !drawable(xs[i]) {
			continue
		}
		if y != nil && !drawable(*y) {
			y = nil
		}
		some = some || y != nil
		l.X, l.Y = append(l.X, xs[i]), append(l.Y, y)
	}
	return l, some
}

// drawable reports whether a value has a place on an axis: a file may come from anywhere.
func drawable(v float64) bool { return math.Abs(v) < 1e30 }
