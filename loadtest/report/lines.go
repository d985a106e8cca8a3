package report

import (
	"bytes"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plotted is values over time, or over anything else: of each X the Y.
type Plotted struct {
	Name string
	X, Y []float64
}

// DrawLines draws lines over axes that begin at 0, with their names, as an SVG document of its own.
func DrawLines(x, y string, lines ...Plotted) ([]byte, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = plain(x), plain(y)
	p.X.Tick.Marker, p.Y.Tick.Marker = labelled{plot.DefaultTicks{}, false}, labelled{plot.DefaultTicks{}, false}
	style(p)
	p.Legend.Top, p.Legend.Left = false, false
	p.Legend.TextStyle.Font = p.X.Label.TextStyle.Font
	p.Add(plotter.NewGrid())
	for i, l := range lines {
		var xys plotter.XYs
		for k := range min(len(l.X), len(l.Y)) {
			xys = append(xys, plotter.XY{X: l.X[k], Y: l.Y[k]})
		}
		drawn, err := plotter.NewLine(xys)
		if err != nil {
			return nil, err
		}
		drawn.Color, drawn.Width = colours[i%len(colours)], vg.Points(1.4)
		p.Add(drawn)
		p.Legend.Add(plain(l.Name), drawn)
	}
	p.X.Min, p.Y.Min = 0, 0
	c := vgsvg.NewWith(vgsvg.UseWH(width, height))
	p.Draw(draw.Crop(draw.New(c), 0, -edge, 0, -edge/2))
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return b.Bytes(), err
}
