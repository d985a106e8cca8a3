// This file holds what all pages share: the page of a workload and the reports of load tests.
// The colours follow the reader's choice of light or dark; uPlot draws their lines.

package admin

import _ "embed"

var (
	// Tokens are the colours as properties of CSS, for the beginning of a style sheet.
	//
	//go:embed tokens.css
	Tokens string

	// Plot is uPlot, a script of others that draws lines. PlotStyle is its style sheet. A file that
	// holds the script must hold PlotLicence too.
	//
	//go:embed uPlot.iife.min.js
	Plot string
	//go:embed uPlot.min.css
	PlotStyle string
	//go:embed uPlot.LICENSE
	PlotLicence string
)
