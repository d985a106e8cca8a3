package configfile

import (
	"net/netip"
	"net/url"

	"github.com/goccy/go-yaml/ast"

	"github.com/queuepump/queuepump/internal/redact"
)

// readEvents reads where scheduled events are asked for. Only this machine may answer: who
// answers can end the process.
func (d *decoder) readEvents(path string, n ast.Node) {
	s, ok := d.text(path, n)
	switch {
	case !ok || s == "off":
		return
	case s == "azure":
		d.events = "http://169.254.169.254" // where Azure tells a machine
		return
	}
	u, err := url.Parse(s)
	if err == nil && u.Scheme == "http" && u.User == nil && u.RawQuery == "" &&
		(u.Path == "" || u.Path == "/") {
		if at, err := netip.ParseAddr(u.Hostname()); err == nil &&
			(at.IsLoopback() || at.IsLinkLocalUnicast()) {
			d.events = s
			return
		}
	}
	d.fail(line(n), path, redact.Quoted(s)+" is no address of this machine",
		"use off, azure, or an address such as http://127.0.0.1:8080")
}
