package nudging

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/nudge"
)

// FuzzNudge: what is taken for a nudge is about one thing at most, and comes back as it was sent.
func FuzzNudge(f *testing.F) {
	f.Add("instance=p1&queue=alpha/work-00")
	f.Add("instance=p1&gate=morning")
	f.Add("instance=p1&traffic=1")
	f.Add("instance=p1&instance=p2;queue=%00")
	f.Fuzz(func(t *testing.T, query string) {
		n, err := nudge.Parse(query)
		if err != nil {
			if n != (pump.Nudge{}) {
				t.Fatalf("%+v with %v", n, err)
			}
			return
		}
		if n.Instance == "" || n.Queue != "" && n.Gate != "" || n.Traffic && n.Queue+n.Gate != "" ||
			n.Gate != "" && coordination.CheckGate(n.Gate) != nil ||
			strings.ContainsAny(n.Queue, "\r\n\x00 ") ||
			len(query) > nudge.MaxQuery {
			t.Fatalf("%q is %+v", query, n)
		}
		values := url.Values{"instance": {n.Instance}}
		if n.Queue != "" {
			values.Set("queue", n.Queue)
		}
		if n.Gate != "" {
			values.Set("gate", n.Gate)
		}
		if n.Traffic {
			values.Set("traffic", "1")
		}
		again := values.Encode()
		if got, err := nudge.Parse(again); len(again) <= nudge.MaxQuery && (err != nil || got != n) {
			t.Fatalf("%q: %+v, then %+v, %v", query, n, got, err)
		}
	})
}

// FuzzNudgeAddress: an address from a row leads to the host and port that it names and
// to nothing else, and never to what only this machine calls so.
func FuzzNudgeAddress(f *testing.F) {
	for _, address := range []string{"host:80", "[::1]:80", "user@host:80", "host:80/path", "169.254.169.254:80", "[fe80::1%25eth0]:80", "0x7f.1:80", "[::ffff:127.0.0.1]:1"} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if CheckAddress(address) == nil {
			u, err := url.Parse("http://" + address + nudge.Path)
			if err != nil || u.Host != address || u.User != nil || u.Path != nudge.Path || u.RawQuery != "" {
				t.Fatalf("%q leads to %v, %v", address, u, err)
			}
		}
		if mayDial(address, false) == nil {
			host, _, err := net.SplitHostPort(address)
			ip, perr := netip.ParseAddr(host)
			if err != nil || perr != nil || ip.Unmap().IsLoopback() || ip.Unmap().IsLinkLocalUnicast() ||
				ip.IsUnspecified() ||
				ip.IsMulticast() {
				t.Fatalf("%q may be dialled", address)
			}
		}
	})
}
