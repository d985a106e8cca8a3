package realaccounts

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// gateway is a service of an account on a port of this machine. The real binaries send their
// requests to it, signed as usual, and it sends them on to the account. So these requests are under
// the budget too, and are counted also if the process is killed.
type gateway struct {
	address string // as a client writes it
	server  *http.Server
	ended   chan struct{}
}

// newGateway listens on loopback for the service at upstream, one of those of m's account.
func newGateway(m *meter, upstream string) (*gateway, error) {
	to, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gateway{address: "http://" + listener.Addr().String() + to.Path, ended: make(chan struct{})}
	here, there := "http://"+listener.Addr().String()+"/", to.Scheme+"://"+to.Host+"/"
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, to.Host
		},
		Transport: doing(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/$batch") {
				if err := rehost(req, here, there); err != nil {
					return nil, err
				}
			}
			return m.Do(req)
		}),
		// The client must not take a failure on the way for an answer of the account.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	g.server = &http.Server{
		Handler: proxy, ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(g.ended)
		_ = g.server.Serve(listener)
	}()
	return g, nil
}

func (g *gateway) close() {
	_ = g.server.Close()
	<-g.ended
}

// rehost puts the account's address into the parts of a batch: each part is a request with a whole
// address. No signature covers the parts.
func rehost(req *http.Request, here, there string) error {
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return err
	}
	body = bytes.ReplaceAll(body, []byte(" "+here), []byte(" "+there))
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	req.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// doing is a function as an http.RoundTripper.
type doing func(*http.Request) (*http.Response, error)

func (d doing) RoundTrip(req *http.Request) (*http.Response, error) { return d(req) }

// gateways are those of all accounts.
type gateways struct {
	all      []*gateway
	accounts []Account // the accounts at their gateways
}

// openGateways puts the services of each account behind a gateway, for a part of a run.
func openGateways(
	b *budget, next storagetest.Doer, targets []*target, part string,
) (*gateways, error) {
	g := &gateways{}
	for _, t := range targets {
		var at [3]string
		for i, upstream := range []string{t.queues, t.tables, t.blobs} {
			if upstream == "" {
				continue // the driver knows no address of its blobs
			}
			one, err := newGateway(b.meter(next, t, part), upstream)
			if err != nil {
				g.close()
				return nil, err
			}
			g.all = append(g.all, one)
			at[i] = one.address
		}
		g.accounts = append(g.accounts, t.Account.at(at[0], at[1], at[2]))
	}
	return g, nil
}

func (g *gateways) close() {
	for _, one := range g.all {
		one.close()
	}
}

// doer makes an http.RoundTripper a transport: it follows no redirect and adds nothing.
type doer struct{ http.RoundTripper }

func (d doer) Do(req *http.Request) (*http.Response, error) { return d.RoundTrip(req) }

// wait waits for a time, or for the end of the context.
func wait(ctx context.Context, d time.Duration) error {
	over, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-over.Done()
	return context.Cause(ctx)
}
