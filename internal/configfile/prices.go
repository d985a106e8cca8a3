package configfile

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"github.com/queuepump/queuepump/pump/prices"
)

// prices reads what requests cost. A price that is left out is as published, but not in another
// currency.
func (d *decoder) prices(path string, n ast.Node) (l prices.List) {
	price := func(to *float64) func(string, ast.Node) {
		return func(path string, n ast.Node) {
			if v, ok := d.number(path, n); ok && !(v > 0 && v <= 1e4) {
				d.fail(line(n), path, fmt.Sprintf("%v is out of range", v),
					"use what 10,000 requests cost, up to 10000, or leave it out for the published price")
			} else {
				*to = v
			}
		}
	}
	text := func(to *string) func(string, ast.Node) {
		return func(path string, n ast.Node) { *to, _ = d.text(path, n) }
	}
	d.mapping(path, n, []field{
		{"currency", text(&l.Currency)},
		{"queue", price(&l.Queue)},
		{"table", price(&l.Table)},
		{"source", text(&l.Source)},
		{"date", text(&l.Date)},
	})
	if problem, fix, mixed := l.Mixed(); mixed {
		d.fail(d.lines[path+".currency"], path+".currency", problem, fix)
	}
	return l
}
