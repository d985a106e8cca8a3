//go:build !unix

package azure

import (
	"net"
	"net/http"
)

// directLines gives no pool: whether an idle connection has ended is not known
// here without a goroutine that reads from it, which net/http has.
func directLines(*http.Transport) *lines { return nil }

func quiet(net.Conn, bool) bool { return true }
