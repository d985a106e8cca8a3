package configfile

import "github.com/goccy/go-yaml/ast"

// readPage reads what the page may do. It does not read the token's file: other commands have no
// use for the token, and a new token counts at once.
func (d *decoder) readPage(path string, n ast.Node) {
	d.mapping(path, n, []field{
		{"tokenFile", func(path string, n ast.Node) {
			if s, ok := d.text(path, n); ok {
				d.page.TokenFile = besideCredentials(s)
			}
		}},
		{"onAdminPort", func(path string, n ast.Node) {
			if on, ok := d.boolean(path, n); ok {
				d.page.ByCommand = !on
			}
		}},
	})
}
