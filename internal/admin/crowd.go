package admin

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// crowd bounds the connections, in all and of one address. A new connection takes the place of the
// idlest one, so that a client that opens many and says little cannot keep others out.
type crowd struct {
	mu     sync.Mutex
	guests map[net.Conn]*guest
}

type guest struct {
	from   string // its address, without port
	active bool   // it asks or is answered
	since  time.Time
}

// note is [http.Server]'s ConnState.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.guests[conn]
	switch {
	case state == http.StateClosed || state == http.StateHijacked:
		delete(c.guests, conn)
		return
	case state == http.StateNew:
		from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		c.makeRoom(from, maxOfOne)
		c.makeRoom("", maxConnections)
		g = &guest{from: from}
		c.guests[conn] = g
	case g == nil: // it was closed to make room
		return
	}
	g.active, g.since = state == http.StateActive, time.Now()
}

// makeRoom closes the idlest connection of an address, or of all, if there are too many.
func (c *crowd) makeRoom(from string, most int) {
	var idlest net.Conn
	n := 0
	for conn, g := range c.guests {
		if from != "" && g.from != from {
			continue
		}
		n++
		than := c.guests[idlest]
		if than == nil || than.active && !g.active ||
			than.active == g.active && g.since.Before(than.since) {
			idlest = conn
		}
	}
	if n >= most {
		delete(c.guests, idlest)
		_ = idlest.Close()
	}
}
