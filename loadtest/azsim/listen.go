package azsim

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// QueueHandler serves the queue service of every account: path style
// (/account/queue/...) and host style (account.queue.localhost).
func (s *Sim) QueueHandler() http.Handler { return handler{s, queueService} }

// TableHandler serves the table service of every account, like QueueHandler.
func (s *Sim) TableHandler() http.Handler { return handler{s, tableService} }

// handler serves one service over net/http.
type handler struct {
	sim     *Sim
	service service
}

func (h handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	out := h.sim.serve(req.Context(), h.call(req))
	switch out.delivery {
	case gaveUp, noConnect, noHost, lost:
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	// A body may be refused unread. Closed with more unread than net/http takes by itself, a
	// connection is reset, and a client that still sends loses the answer.
	_, _ = io.CopyN(io.Discard, req.Body, mostUnread)
	header := w.Header()
	for k, v := range out.header {
		header[k] = v
	}
	if len(out.body) > 0 && header.Get("Content-Length") == "" {
		header["Transfer-Encoding"] = chunked
	}
	w.WriteHeader(out.status)
	if req.Method == http.MethodHead {
		return
	}
	body := out.body
	if out.delivery == cutShort {
		body = body[:len(body)/2]
	}
	if _, err := w.Write(body); err != nil {
		return // the client is gone
	}
	if out.delivery == cutShort {
		_ = http.NewResponseController(w).Flush() // the half must arrive before the break
		panic(http.ErrAbortHandler)
	}
}

// mostUnread is how many bytes of a body that is refused are read and thrown away: four times the
// largest that is taken.
const mostUnread = 4 * maxTableBody

var chunked = []string{"chunked"}

func (h handler) call(req *http.Request) *call {
	path, _, _ := strings.Cut(req.RequestURI, "?") // as it was sent: signatures are over these bytes
	if !strings.HasPrefix(path, "/") {
		path = req.URL.EscapedPath()
	}
	from, _ := netip.ParseAddrPort(req.RemoteAddr)
	c := &call{
		service:  h.service,
		method:   req.Method,
		host:     req.Host,
		path:     path,
		rawQuery: req.URL.RawQuery,
		header:   req.Header,
		body:     req.Body,
		length:   req.ContentLength,
		from:     from.Addr().Unmap(),
		secure:   req.TLS != nil,
		instance: req.UserAgent(),
	}
	if c.length > 0 {
		c.header.Set("Content-Length", itoa(c.length))
	}
	return c
}

// Server is a Sim served on TCP.
type Server struct {
	sim                *Sim
	queue, table, blob net.Listener
	servers            []*http.Server
	done               sync.WaitGroup
}

// Listen serves the services for queues, tables and blobs on loopback TCP, at addresses in this
// order. They are like "127.0.0.1:0"; "" means that one, and so does one that is left out. Other
// addresses than loopback are refused unless Config.Public is set: anything may be put into the
// accounts, and their keys can be derived.
func (s *Sim) Listen(addrs ...string) (*Server, error) {
	srv := &Server{sim: s}
	addrs = append(addrs, "", "", "")
	for i, of := range []struct {
		service service
		at      *net.Listener
	}{{queueService, &srv.queue}, {tableService, &srv.table}, {blobService, &srv.blob}} {
		l, err := listen(addrs[i], s.config.Public)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s service: %w", of.service, err), srv.Close())
		}
		if s.config.TLS != nil {
			l = tls.NewListener(l, s.config.TLS)
		}
		*of.at = l
		srv.serve(l, handler{s, of.service})
	}
	return srv, nil
}

func listen(addr string, public bool) (net.Listener, error) {
	addr = cmp.Or(addr, "127.0.0.1:0")
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(host)
	if !public && host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("address %q is not loopback", addr)
	}
	return net.Listen("tcp", addr)
}

func (srv *Server) serve(l net.Listener, h http.Handler) {
	hs := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	srv.servers = append(srv.servers, hs)
	srv.done.Go(func() { _ = hs.Serve(l) }) // ends with ErrServerClosed
}

// QueueAddr is the address that the queue service listens on.
func (srv *Server) QueueAddr() string { return srv.queue.Addr().String() }

// TableAddr is the address that the table service listens on.
func (srv *Server) TableAddr() string { return srv.table.Addr().String() }

// QueueEndpoint is the URL of an account's queue service, path style.
func (srv *Server) QueueEndpoint(account string) string { return srv.at(srv.queue, "", account) }

// TableEndpoint is the URL of an account's table service, path style.
func (srv *Server) TableEndpoint(account string) string { return srv.at(srv.table, "", account) }

// BlobEndpoint is the URL of an account's blob service, path style.
func (srv *Server) BlobEndpoint(account string) string { return srv.at(srv.blob, "", account) }

// at is the URL of an account's service, on another host if one is given.
func (srv *Server) at(l net.Listener, host, account string) string {
	address := l.Addr().(*net.TCPAddr)
	if host == "" && address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	host = net.JoinHostPort(cmp.Or(host, address.IP.String()), strconv.Itoa(address.Port))
	return srv.scheme() + "://" + host + "/" + account
}

func (srv *Server) scheme() string {
	if srv.sim.config.TLS != nil {
		return "https"
	}
	return "http"
}

// ConnectionString returns the connection string of an account, "" if the account does not exist.
func (srv *Server) ConnectionString(account string) string {
	return srv.ConnectionStringAt("", account)
}

// ConnectionStringAt is ConnectionString for a client that reaches this machine as host: a name or
// an address, without a port.
func (srv *Server) ConnectionStringAt(host, account string) string {
	key := srv.sim.Key(account)
	if key == "" {
		return ""
	}
	return "DefaultEndpointsProtocol=" + srv.scheme() + ";AccountName=" + account +
		";AccountKey=" + key + ";QueueEndpoint=" + srv.at(srv.queue, host, account) +
		";TableEndpoint=" + srv.at(srv.table, host, account) +
		";BlobEndpoint=" + srv.at(srv.blob, host, account)
}

// Close stops serving and breaks the connections that are open. What the
// accounts hold stays: the Sim may be served again.
func (srv *Server) Close() error {
	var errs []error
	for _, hs := range srv.servers {
		errs = append(errs, hs.Close())
	}
	srv.done.Wait()
	return errors.Join(errs...)
}
