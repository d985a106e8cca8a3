// Package look holds the colours that all pages share: the page of a workload and the reports of
// load tests. They follow the reader's choice of light or dark.
package look

import _ "embed"

// Tokens are the colours as properties of CSS, for a style sheet to begin with.
//
//go:embed tokens.css
var Tokens string
