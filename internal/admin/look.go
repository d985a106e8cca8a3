// This file holds what all pages share: the page of a workload and the reports of load tests.
// The colours follow the reader's choice of light or dark; uPlot draws their lines.

package admin

import _ "embed"

var (
	// Tokens are the colours as properties of CSS, for a style sheet to begin with.
	//
	//go:embed tokens.css
	Tokens string

	// Plot is uPlot, a script that draws lines, which others have made. PlotStyle is its style sheet,
	// and PlotLicence what a file must hold that holds the script.
	//
	//go:embed uPlot.iife.min.js
	Plot string
	//go:embed uPlot.min.css
	PlotStyle string
	//go:embed uPlot.LICENSE
	PlotLicence string
)
