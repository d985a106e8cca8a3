package admin

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// conn is a connection from somewhere.
type conn struct {
	net.Conn
	from   *net.TCPAddr
	closed bool
}

func (c *conn) RemoteAddr() net.Addr { return c.from }
func (c *conn) Close() error         { c.closed = true; return nil }

// Who opens hundreds of connections and says little keeps nobody out, and the idlest go first.
func TestANewConnectionHasThePlaceOfTheIdlest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{guests: map[net.Conn]*guest{}}
		open := func(host byte, state http.ConnState) *conn {
			time.Sleep(time.Millisecond)
			n := &conn{from: &net.TCPAddr{IP: net.IPv4(10, 0, 0, host), Port: 1024 + len(c.guests)}}
			c.note(n, http.StateNew)
			c.note(n, state)
			return n
		}
		first, idle := open(1, http.StateActive), open(1, http.StateIdle)
		for range 2 * maxConnections {
			open(1, http.StateActive)
		}
		if !first.closed || !idle.closed || len(c.guests) != maxOfOne {
			t.Errorf("%d connections of one address are open", len(c.guests))
		}
		kubelet := open(2, http.StateActive)
		for host := range byte(200) {
			for range 4 {
				open(3+host, http.StateIdle)
			}
		}
		if kubelet.closed || len(c.guests) != maxConnections {
			t.Errorf("%d connections are open, that of a probe: %v", len(c.guests), !kubelet.closed)
		}
		c.note(kubelet, http.StateClosed)
		c.note(first, http.StateIdle) // is gone already
		proof.Same(t, len(c.guests), maxConnections-1, "connections are open")
	})
}
