package azure

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"
)

// lines are connections to servers that are reached directly. net/http gives each of
// its connections two goroutines, so that a request wakes the one that writes, which wakes
// the one that reads, which wakes the caller: half of what a small request costs a
// client. Here the caller writes its request and reads the answer itself. What
// is left out is what Storage does not do: HTTP/2, pipelining, trailers,
// upgrades, compression. Proxies are net/http's matter.
type lines struct {
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	proxy     func(*http.Request) (*url.URL, error)
	tls       *tls.Config
	handshake time.Duration
	idleFor   time.Duration
	mostIdle  int // of one host

	mu      sync.Mutex // guards what follows
	hosts   map[hostKey]*lineHost
	reaping bool
}

type hostKey struct{ scheme, host string }

// lineHost is one server.
type lineHost struct {
	direct bool    // no proxy is in the way
	idle   []*line // the one used last at the end
}

// line is one connection. It is used by one request at a time.
type line struct {
	lines *lines
	host  *lineHost
	raw   net.Conn      // what was dialled
	conn  net.Conn      // that, or TLS over it
	r     *bufio.Reader // borrowed while a request uses the connection
	w     *bufio.Writer
	left  int64     // bytes that may be read before a header has ended
	since time.Time // idle
}

// newLines makes the pool beside t, with the same measures.
func newLines(t *http.Transport) *lines {
	return &lines{
		dial: t.DialContext, proxy: t.Proxy, tls: t.TLSClientConfig, handshake: t.TLSHandshakeTimeout,
		idleFor: t.IdleConnTimeout, mostIdle: t.MaxIdleConnsPerHost, hosts: map[hostKey]*lineHost{},
	}
}

// host gives the server of an address; nil: it is not reached directly.
func (l *lines) host(req *http.Request) (*lineHost, error) {
	key := hostKey{req.URL.Scheme, req.URL.Host}
	l.mu.Lock()
	h := l.hosts[key]
	l.mu.Unlock()
	if h == nil {
		proxy, err := l.proxy(req)
		if err != nil {
			return nil, err
		}
		h = &lineHost{direct: proxy == nil}
		l.mu.Lock()
		if first := l.hosts[key]; first != nil {
			h = first
		} else {
			l.hosts[key] = h
		}
		l.mu.Unlock()
	}
	if !h.direct {
		return nil, nil
	}
	return h, nil
}

// roundTrip sends the request once. It is the host's.
func (l *lines) roundTrip(h *lineHost, req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := l.take(h)
	if c == nil {
		var err error
		if c, err = l.open(ctx, h, req.URL); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, ended(ctx, err)
		}
	}
	c.borrow()
	deadline, _ := ctx.Deadline() // zero: none
	_ = c.conn.SetDeadline(deadline)
	// A context that ends early breaks whatever the connection is at.
	stop := context.AfterFunc(ctx, func() { _ = c.raw.SetDeadline(time.Unix(1, 0)) })
	resp, err := c.exchange(req)
	if err != nil {
		stop()
		c.giveBack()
		_ = c.conn.Close()
		return nil, ended(ctx, err)
	}
	b := &lineBody{ReadCloser: resp.Body, line: c, stop: stop, ctx: ctx, keep: !resp.Close && !req.Close}
	if resp.Body == http.NoBody {
		b.whole = true
		_ = b.Close()
		return resp, nil
	}
	resp.Body = b
	return resp, nil
}

// ended says that a context ended if that is why something failed.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The connection's deadline is the context's, and may be noticed first.
	if _, ok := ctx.Deadline(); ok && errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

var errInterim = errors.New("the server says that it goes on, and never answers")

// exchange writes the request and reads the head of its answer.
func (c *line) exchange(req *http.Request) (*http.Response, error) {
	err := req.Write(together{c.w}) // closes the body in any case
	if err == nil {
		err = c.w.Flush()
	}
	resp, readErr := (*http.Response)(nil), err
	if _, network := errors.AsType[*net.OpError](err); err == nil || network {
		// Who does not want to read all of a request may have answered it all the same.
		resp, readErr = c.readHead(req)
	}
	switch {
	case readErr == nil && err != nil:
		resp.Close = true
		return resp, nil
	case err != nil:
		return nil, err
	}
	return resp, readErr
}

// together is a buffered writer that net/http does not know: one that it knows it empties
// between a request's head and its body, which are then two writes to the connection.
type together struct{ *bufio.Writer }

// readHead reads the head of the answer.
func (c *line) readHead(req *http.Request) (*http.Response, error) {
	for range 5 { // interim ones may come before it
		c.left = maxHeader
		resp, err := http.ReadResponse(c.r, req)
		if err != nil {
			if c.left <= 0 {
				return nil, errHeader
			}
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if resp.StatusCode >= 200 {
			c.left = 1<<63 - 1 // the answer's bounds are the wire's matter
			return resp, nil
		}
	}
	return nil, errInterim
}

var errHeader = errors.New("the answer's header is longer than any of the service can be")

// Read is what the buffered reader reads from.
func (c *line) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeader
	}
	n, err := c.conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// Write is what the buffered writer writes to. It hides that a TCP connection can read from a
// body by itself, which would send the header alone first.
func (c *line) Write(p []byte) (int, error) { return c.conn.Write(p) }

// lineBody is an answer's body; with its end the connection is free.
type lineBody struct {
	io.ReadCloser
	line  *line
	stop  func() bool
	ctx   context.Context
	keep  bool // the connection may be used again
	whole bool // it was read to its end
}

func (b *lineBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.whole = true
	case err != nil:
		err = ended(b.ctx, err)
	}
	return n, err
}

func (b *lineBody) Close() error {
	c := b.line
	if c == nil {
		return nil
	}
	b.line = nil
	// What comes unasked is no answer to what will be asked next.
	good := b.stop() && b.keep && b.whole && c.r.Buffered() == 0
	c.giveBack()
	if good {
		c.lines.put(c)
		return nil
	}
	return c.conn.Close()
}

// take gives an idle connection on which nothing has come since, the one used last
// first; nil if there is none.
func (l *lines) take(h *lineHost) *line {
	for {
		l.mu.Lock()
		last := len(h.idle) - 1
		if last < 0 {
			l.mu.Unlock()
			return nil
		}
		c := h.idle[last]
		h.idle[last] = nil
		h.idle = h.idle[:last]
		l.mu.Unlock()
		if time.Since(c.since) < l.idleFor && quiet(c.raw, c.raw != c.conn) {
			return c
		}
		_ = c.conn.Close() // the server has closed it, or said what nobody asked
	}
}

// put keeps a connection for the next request.
func (l *lines) put(c *line) {
	c.since = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(c.host.idle) >= l.mostIdle {
		_ = c.conn.Close()
		return
	}
	c.host.idle = append(c.host.idle, c)
	if !l.reaping {
		l.reaping = true
		time.AfterFunc(l.idleFor, l.reap)
	}
}

// reap closes what has been idle for too long, until nothing is idle.
func (l *lines) reap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reaping = false
	for _, h := range l.hosts {
		young := 0
		for young < len(h.idle) && time.Since(h.idle[young].since) >= l.idleFor {
			_ = h.idle[young].conn.Close()
			young++
		}
		h.idle = slices.Delete(h.idle, 0, young)
		l.reaping = l.reaping || len(h.idle) > 0
	}
	if l.reaping {
		time.AfterFunc(l.idleFor/4, l.reap)
	}
}

// closeIdle closes what no request uses.
func (l *lines) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hosts {
		for _, c := range h.idle {
			_ = c.conn.Close()
		}
		clear(h.idle)
		h.idle = h.idle[:0]
	}
}

// open makes a connection to the server of an address.
func (l *lines) open(ctx context.Context, h *lineHost, to *url.URL) (*line, error) {
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	raw, err := l.dial(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return nil, err
	}
	c := &line{lines: l, host: h, raw: raw, conn: raw}
	if to.Scheme == "https" {
		config := l.tls.Clone()
		config.ServerName = to.Hostname()
		secure := tls.Client(raw, config)
		shaking, cancel := context.WithTimeout(ctx, l.handshake)
		defer cancel()
		if err := secure.HandshakeContext(shaking); err != nil {
			_ = raw.Close()
			return nil, err
		}
		c.conn = secure
	}
	return c, nil
}

// The buffers of connections in use. An idle one has none: there may be a thousand.
var (
	readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}
)

func (c *line) borrow() {
	c.r, c.w = readers.Get().(*bufio.Reader), writers.Get().(*bufio.Writer)
	c.r.Reset(c)
	c.w.Reset(c)
}

// giveBack gives the buffers to the next request. Nothing is in them that counts.
func (c *line) giveBack() {
	c.r.Reset(nil)
	c.w.Reset(nil)
	readers.Put(c.r)
	writers.Put(c.w)
	c.r, c.w = nil, nil
}
