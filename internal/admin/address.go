package admin

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/queuepump/queuepump/internal/logs"
)

// Off as Options.Listen means: no admin port.
const Off = "off"

// freePort is the default: any free port of loopback.
const freePort = "127.0.0.1:0"

// Check tells before anything is opened if the addresses of a port cannot be used; empty ones can.
func Check(listen, advertise string) error {
	if listen == Off {
		return nil
	}
	if advertise != "" {
		if err := checkAddress("admin.advertise", advertise); err != nil {
			return err
		}
	}
	return checkAddress("--admin", cmp.Or(listen, freePort))
}

// checkAddress tells before anything is opened if an address cannot be used.
func checkAddress(what, s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return &AddressError{fmt.Errorf("%s: %s is not an address; write host:port, "+
			"as in 127.0.0.1:9090, or %s",
			what, logs.Quoted(s), Off)}
	}
	return nil
}

// AddressError says why a text cannot be an address.
type AddressError struct{ err error }

func (e *AddressError) Error() string { return e.err.Error() }

// published is the address where others reach a listener. It is the advertised one, with the
// listener's port in the place of port 0; without that it is where the listener listens, with the
// machine's name in the place of "everywhere".
func published(advertise string, at net.Addr) string {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return advertise
	}
	if advertise != "" {
		h, p, err := net.SplitHostPort(advertise)
		if err != nil || p != "0" {
			return advertise
		}
		return net.JoinHostPort(h, port)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = hostname()
	}
	return net.JoinHostPort(host, port)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return cmp.Or(name, "localhost")
}

// names are the host names under which a port may be asked, besides any address in numbers. A page
// can make a browser send such a name here only if the page was loaded from there. An attacker can
// let a name of his own point to this machine, but that name is not among these.
func names(address string) map[string]bool {
	known := map[string]bool{"localhost": true, strings.ToLower(hostname()): true}
	if host, _, err := net.SplitHostPort(address); err == nil {
		known[strings.ToLower(host)] = true
	}
	return known
}

// asked reports whether a Host header names one of the hosts known.
func asked(known map[string]bool, header string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return known[strings.ToLower(strings.TrimSuffix(host, "."))]
}
