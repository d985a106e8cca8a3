//go:build unix

package azure

import (
	"net"
	"net/http"
	"syscall"
)

// directLines gives the pool beside t.
func directLines(t *http.Transport) *lines { return newLines(t) }

// closing is the most bytes that a connection's end over TLS consists of: one alert, of 31
// bytes at most. A session ticket, which a server may send at any time, is longer.
const closing = 40

// quiet reports whether nothing has come on an idle connection, neither its end nor, on
// a plain one, something that nobody asked for.
func quiet(conn net.Conn, secure bool) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	still := false
	err = rc.Read(func(fd uintptr) bool {
		var p [closing + 1]byte
		n, _, err := syscall.Recvfrom(int(fd), p[:], syscall.MSG_PEEK)
		still = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == nil && secure && n > closing
		return true // do not wait
	})
	return err == nil && still
}
