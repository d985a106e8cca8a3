package azsim

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// Transport carries requests to a Sim without sockets. It is an azcore policy.Transporter and an
// http.RoundTripper, works inside a testing/synctest bubble, and serves every host: NAME.queue.*
// and NAME.table.* by name, others in path style. Use by many goroutines at once is safe.
type Transport struct {
	sim      *Sim
	instance string
	spared   bool
	from     netip.Addr
}

// Transport returns the way into the simulator without sockets.
func (s *Sim) Transport() *Transport {
	return &Transport{sim: s, from: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
}

// As returns a Transport for one named client. Rules may single it out, and
// its delays and faults are chosen independently of other clients' (P9).
func (t *Transport) As(instance string) *Transport {
	c := *t
	c.instance = instance
	return &c
}

// Spared returns a Transport whose requests no rule hits and no blackout stops: a test that
// arranges or judges a world knows what each request has done.
func (t *Transport) Spared() *Transport {
	c := *t
	c.spared = true
	return &c
}

// From returns a Transport whose requests come from an address, for SAS that
// are bound to a range of them.
func (t *Transport) From(addr netip.Addr) *Transport {
	c := *t
	c.from = addr
	return &c
}

// Do is like http.Client.Do without redirects: errors are *url.Error with a URL without its query,
// because that may hold a SAS. The answer's body is the caller's own copy. A request whose context
// ends gets the context's error at once; whether it acted depends on how far it had got.
func (t *Transport) Do(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTrip(req)
	if err != nil {
		u := *req.URL
		u.RawQuery, u.User = "", nil
		return nil, &url.Error{Op: title(req.Method), URL: u.String(), Err: err}
	}
	return resp, nil
}

func title(method string) string {
	if method == "" {
		return "Get"
	}
	return method[:1] + strings.ToLower(method[1:])
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
	}
	out := t.sim.serve(req.Context(), t.call(req))
	switch out.delivery {
	case gaveUp:
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return nil, errShortBody
	case noConnect:
		return nil, &net.OpError{
			Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}
	case noHost:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
			Err: "no such host", Name: req.URL.Hostname(), IsNotFound: true,
		}}
	case lost:
		return nil, &net.OpError{
			Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET),
		}
	}
	return response(req, out), nil
}

func (t *Transport) call(req *http.Request) *call {
	host := cmp.Or(req.Host, req.URL.Host)
	length := req.ContentLength
	if req.Body == nil || req.Body == http.NoBody {
		length = 0
	} else if length == 0 && !empty(req.Body) { // net/http's way of saying unknown
		length = -1
	}
	return &call{
		method:   req.Method,
		host:     host,
		path:     req.URL.EscapedPath(),
		rawQuery: req.URL.RawQuery,
		header:   canonical(req.Header, length),
		body:     req.Body,
		length:   length,
		from:     t.from,
		secure:   req.URL.Scheme == "https",
		instance: t.instance,
		spared:   t.spared,
	}
}

// empty probes a body that says nothing of its length, as net/http does.
func empty(body io.Reader) bool {
	n, err := body.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

// canonical copies a header as a server would see it: the Azure SDK sets "x-ms-version" and the
// like in small letters, which TCP would not keep, and what net/http writes by itself.
func canonical(h http.Header, length int64) http.Header {
	c := make(http.Header, len(h)+1)
	for k, v := range h {
		k = http.CanonicalHeaderKey(k)
		c[k] = append(c[k], v...)
	}
	delete(c, "Content-Length")
	if length > 0 {
		c.Set("Content-Length", itoa(length))
	}
	return c
}

// response makes what the client sees. Successful answers with a body come
// without a length, because Azure sends them chunked (AZURE.md A1).
func response(req *http.Request, out outcome) *http.Response {
	resp := &http.Response{
		Status:        itoa(int64(out.status)) + " " + http.StatusText(out.status),
		StatusCode:    out.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        out.header,
		Body:          http.NoBody,
		ContentLength: int64(len(out.body)),
		Request:       req,
	}
	if len(out.body) == 0 || req.Method == http.MethodHead {
		return resp
	}
	if out.header.Get("Content-Length") == "" {
		resp.ContentLength, resp.TransferEncoding = -1, []string{"chunked"}
	}
	if out.delivery == cutShort {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(out.body[:len(out.body)/2]), brokenOff{}))
		return resp
	}
	resp.Body = io.NopCloser(bytes.NewReader(out.body))
	return resp
}

// brokenOff is where a cut body ends.
type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
