package azure

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/net/http/httpproxy"
)

// defaultConcurrency is how many connections the process-wide transport makes to one host: the most
// puts that a distributor has under way to one queue, and 64 more that a slow queue leaves to the
// others. At 10 ms a request those alone carry 6,400 requests a second.
const defaultConcurrency = 320

// NewTransport makes an HTTP client with up to concurrency requests under way to
// each host; further ones wait for a connection within their deadline. One client should serve
// all accounts of a process. Values below 1 count as 1. Every call needs a deadline in its
// context: the client itself bounds only the making of connections.
func NewTransport(concurrency int) *http.Client {
	concurrency = max(concurrency, 1)
	dialer := &net.Dialer{
		// A region answers a SYN in milliseconds; after 5 s the second and third
		// SYN (sent 1 s and 3 s after the first) have been lost as well. Longer
		// would eat the 30 s that a call has, shorter would fail on two lost packets.
		Timeout: 5 * time.Second,
		// Finds dead peers of idle connections within about 2 minutes (9 probes
		// missed), and keeps the path open through a NAT.
		KeepAlive: 15 * time.Second,
	}
	local := *dialer
	local.Control = onlyLoopback
	proxy := httpproxy.FromEnvironment().ProxyFunc()
	protocols := new(http.Protocols)
	// Storage speaks HTTP/1.1 only. Saying so spares the negotiation and keeps
	// one stuck stream from holding up others should that ever change.
	protocols.SetHTTP1(true)
	t := &http.Transport{
		Proxy: func(req *http.Request) (*url.URL, error) {
			if loopback(req.URL.Hostname()) { // also NAME.queue.localhost, which httpproxy does not know
				return nil, nil
			}
			return proxy(req.URL)
		},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, _, err := net.SplitHostPort(address); err == nil && loopback(host) {
				return local.DialContext(ctx, network, address)
			}
			return dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, // even if GODEBUG says otherwise
		// as the dial, for the two round trips after it
		TLSHandshakeTimeout: 5 * time.Second,
		Protocols:           protocols,
		// All connections may be idle at once: one that comes back to a full idle list is
		// closed, and 32 parallel deletes over the default's 10 opened 2,193 connections for
		// 3,200 requests instead of 32.
		MaxIdleConnsPerHost: concurrency,
		// Without a bound net/http dials for each request that finds none idle, also when one
		// comes free meanwhile: 1,024 puts at once opened 4,000 connections.
		MaxConnsPerHost: concurrency,
		MaxIdleConns:    0, // the default's 100 are shared by all accounts
		// Shorter than the 4 minutes after which Azure's load balancers drop
		// an idle flow and than the 2 minutes servers usually keep one, so
		// that this side closes first: a request that meets the other side's
		// close fails as "maybe done". Longer than the longest pause of polling.
		IdleConnTimeout: 60 * time.Second,
		// The services do not compress. Not asking means that what the bound
		// counts is what came over the wire.
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	return &http.Client{
		Transport: once{t},
		// A redirect would carry the signature to another host and turn a POST into a GET. Azure Storage
		// never redirects.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// onlyLoopback holds names that mean this machine to it: plain http is allowed to
// them, and a name server may have another opinion of where they are.
func onlyLoopback(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("%s is not this machine, and its name says that it is", address)
	}
	return nil
}

// once sends every request once. net/http sends a GET again when a reused
// connection breaks before the answer, and a Get of messages that arrived has
// hidden 32 of them. It does so only for a request without a body.
type once struct{ *http.Transport }

// noBody is an empty body that net/http cannot recognise as empty.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }

func (o once) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && req.Body == nil {
		r := *req
		r.Body = noBody{}
		// Otherwise net/http probes the body in a goroutine. On a machine so busy that this takes 200 ms
		// it announces a chunked body, which the service refuses. With this it writes neither header nor
		// body.
		r.TransferEncoding = []string{"identity"}
		req = &r
	}
	return o.Transport.RoundTrip(req)
}

// Bounds on answers, beyond which one is not understood rather than read on.
const (
	// Headers: a kilobyte in practice, 8 KiB of a queue's metadata at most;
	// net/http alone would take 10 MiB.
	maxHeader = 64 << 10
	// A Get: 32 messages of 64 KiB, each byte at most 6 when escaped (&quot;),
	// are 12.6 MB.
	messagesAnswer = 16 << 20
	// Status-only answers and error bodies: a few hundred bytes in practice.
	smallAnswer = 64 << 10
	// A list of 5,000 names.
	listAnswer = 8 << 20
	// A row: 1 MiB, its strings counted as UTF-16 and each at most 6 bytes when escaped.
	rowAnswer = 8 << 20
	// A page of up to 1,000 rows. A thousand rows with a full property of
	// 64 KiB each, in base64, are 90 MB.
	pageAnswer = 128 << 20
	// A list of 5,000 blobs: 500 bytes each in practice, up to 10 KB with full names and metadata.
	blobsAnswer = 60 << 20
	// A batch: 100 parts of headers, or one error.
	batchAnswer = 1 << 20
)

// roundTripper is an http.RoundTripper as a transport of the SDK's.
type roundTripper struct{ http.RoundTripper }

func (r roundTripper) Do(req *http.Request) (*http.Response, error) { return r.RoundTrip(req) }

// direct leaves out what an http.Client does around its transport. A client follows redirects,
// which do not occur here, and writes the address, with the signature in it, into errors.
func direct(t policy.Transporter) policy.Transporter {
	if c, ok := t.(*http.Client); ok && c.Transport != nil && c.Jar == nil && c.Timeout == 0 {
		return roundTripper{c.Transport}
	}
	return t
}

// wire is the transport at the end of the SDK's pipelines.
type wire struct{ inner policy.Transporter }

// Do sends the request once and reads the answer into the exchange.
func (w wire) Do(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	if x == nil {
		return w.inner.Do(req)
	}
	x.status = 0
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if x.body != nil {
		// A body that net/http knows to be in memory is written together with the head; as the SDK
		// wraps it, it would be a second write.
		req.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	x.sent = true
	resp, err := w.inner.Do(req)
	if err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, errors.New("the transport gave neither answer nor error")
	}
	limit := x.limit
	if resp.StatusCode >= 300 {
		limit = smallAnswer
	}
	var buf []byte
	if x.pool {
		buf = *buffers.Get().(*[]byte)
	}
	x.answer, err = readBounded(resp.Body, resp.ContentLength, limit, buf)
	if e := resp.Body.Close(); err == nil && e != nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("reading the answer (status %d): %w", resp.StatusCode, err)
	}
	x.status, x.header = resp.StatusCode, resp.Header
	resp.Body = http.NoBody
	return resp, nil
}

var errTooLong = errors.New("longer than any answer of the service can be")

// readBounded reads r to its end into buf, at most limit bytes. size is the
// announced length, -1 if none was: trusted for the first allocation only up to
// a point, since it may lie.
func readBounded(r io.Reader, size, limit int64, buf []byte) ([]byte, error) {
	if size > limit {
		return nil, errTooLong
	}
	const trusted = 4 << 20
	// One byte more, so that the read that finds the end needs no growth.
	if want := min(max(size+1, 512), trusted); int64(cap(buf)) < want {
		buf = make([]byte, 0, want)
	}
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return nil, errTooLong
		case err == io.EOF:
			if size >= 0 && int64(len(buf)) < size {
				return nil, io.ErrUnexpectedEOF
			}
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

// Answers to Get are read into pooled buffers, because their texts are copied
// out and the rest is waste: 750 KB for 32 messages of 23 KiB.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// largestPooled keeps one answer of unusual size from being held for ever; 32
// full messages of base64 are 2.1 MB.
const largestPooled = 4 << 20

// release gives the answer's buffer back. The answer is dead after it.
func (x *exchange) release() {
	if x.pool && cap(x.answer) > 0 && cap(x.answer) <= largestPooled {
		b := x.answer[:0]
		buffers.Put(&b)
	}
	x.answer = nil
}
