package azsim

import (
	"cmp"
	"net"
	"strings"
)

// locate finds which account and service a call is for:
//
//	host style: NAME.queue.core.windows.net, NAME.table.localhost:10002, ...
//	path style: http://127.0.0.1:10001/NAME/..., any host without a service in it
//
// and returns the path after the account and what absolute URLs begin with.
// Host style may be used on the same port as path style (AZURE.md Q85).
func locate(c *call) (account string, svc service, path, base string) {
	scheme := "http://"
	if c.secure {
		scheme = "https://"
	}
	svc, path = c.service, c.path
	path = cmp.Or(path, "/")
	if first, rest, ok := strings.Cut(c.host, "."); ok {
		label, _, _ := strings.Cut(rest, ".")
		if s := service(strings.ToLower(label)); s == queueService || s == tableService ||
			s == blobService {
			if svc == "" || svc == s {
				return strings.ToLower(first), s, path, scheme + c.host
			}
		}
	}
	svc = cmp.Or(svc, serviceByHost(c.host))
	account, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return account, svc, "/" + rest, scheme + c.host + "/" + account
}

// serviceByHost guesses the service of a path-style URL that reached a
// Transport, which serves all: by the emulators' customary ports or a host
// named after the service; else the queue service.
func serviceByHost(host string) service {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	switch {
	case port == "10002" || strings.HasPrefix(name, "table."):
		return tableService
	case port == "10000" || strings.HasPrefix(name, "blob."):
		return blobService
	}
	return queueService
}
