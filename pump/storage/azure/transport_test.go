package azure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

// openAt opens an account at a test server, through a transport of its own.
func openAt(t testing.TB, address string, concurrency int) storage.Account {
	t.Helper()
	client := NewTransport(concurrency)
	t.Cleanup(client.CloseIdleConnections)
	return openBy(t, address, client)
}

// openBy opens an account at a test server, through a client.
func openBy(t testing.TB, address string, client *http.Client) storage.Account {
	t.Helper()
	a, err := Open(Options{
		ConnectionString: "AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=" + address + "/acct;BlobEndpoint=" + address + "/acct;TableEndpoint=" + address + "/acct",
		Transport:        client,
	})
	must(t, err)
	return a
}

const emptyList = "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList />"

// A Get of messages is an HTTP GET with an effect. net/http repeats a GET when
// a reused connection breaks, unless kept from it.
func TestGetOverABrokenConnectionIsSentOnce(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	var heads []string
	var mu sync.Mutex
	a, _ := rawServer(t, func(conn net.Conn, r *bufio.Reader, _ int64) {
		for n := 1; ; n++ {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			seen.Add(1)
			mu.Lock()
			heads = append(heads, fmt.Sprintf("%s %d %v", req.Method, req.ContentLength, req.TransferEncoding))
			mu.Unlock()
			if n == 2 {
				return // acted, and gone before the answer
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(emptyList), emptyList)
		}
	})
	q := a.Queue("queue")
	must(t, proof.ErrOf(q.Get(t.Context(), 32, time.Minute)))
	if _, err := q.Get(t.Context(), 32, time.Minute); !storage.Is(err, storage.MaybeDone) {
		t.Errorf("a get that the server acted on and did not answer: %v", err)
	}
	proof.Same(t, seen.Load(), 2, "the server saw … requests of two calls")
	mu.Lock()
	defer mu.Unlock()
	for _, h := range heads {
		proof.Same(t, h, "GET 0 []", "a get went out as")
	}
}

// 32 requests at once, again and again, use 32 connections and no more. In a bubble, because
// net/http gives up a connection whose request is not known to be written 50 ms after its answer,
// which happens on a busy machine.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 32
		client := NewTransport(concurrency)
		opened := piped(t, client, func(conn net.Conn) net.Conn { return conn })
		q := openBy(t, "http://127.0.0.1:10001", client).Queue("queue")
		for range 20 {
			var all sync.WaitGroup
			for range concurrency {
				all.Go(func() {
					proof.Is(t, q.Delete(t.Context(), testReceipt), nil)
				})
			}
			all.Wait()
		}
		if n := opened.Load(); n > concurrency {
			t.Errorf("%d connections for %d requests, %d at a time", n, 20*concurrency, concurrency)
		}
	})
}

// piped has a client's connections end in this process, where every request is answered as a
// delete is, and counts them. It may put a server's side of TLS on the end here.
func piped(t *testing.T, client *http.Client, theirEnd func(net.Conn) net.Conn) *atomic.Int64 {
	t.Helper()
	var opened atomic.Int64
	var serving sync.WaitGroup
	client.Transport.(once).DialContext = func(context.Context, string, string) (net.Conn, error) {
		opened.Add(1)
		ours, theirs := net.Pipe()
		served := theirEnd(theirs)
		serving.Go(func() {
			defer theirs.Close()
			for r := bufio.NewReader(served); requestOf(r); {
				fmt.Fprint(served, deleted)
			}
		})
		return ours, nil
	}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		serving.Wait()
	})
	return &opened
}

func TestTransportHasAsManyConnectionsAsItsConcurrency(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 0, 1, 500} {
		tr := NewTransport(n).Transport.(once).Transport
		if tr.MaxIdleConnsPerHost != max(n, 1) || tr.MaxIdleConns != 0 || tr.MaxConnsPerHost != max(n, 1) {
			t.Errorf("for %d: %d idle per host, %d idle in all, %d in all per host", n, tr.MaxIdleConnsPerHost, tr.MaxIdleConns, tr.MaxConnsPerHost)
		}
		if tr.Protocols.HTTP2() || !tr.Protocols.HTTP1() || !tr.DisableCompression || tr.IdleConnTimeout == 0 || tr.TLSHandshakeTimeout == 0 {
			t.Errorf("for %d: %+v", n, tr)
		}
	}
}

// endless is an answer that never ends.
type endless struct{ read *atomic.Int64 }

func (e endless) Read(p []byte) (int, error) {
	clear(p)
	e.read.Add(int64(len(p)))
	return len(p), nil
}

func TestAnswersAreReadWithinABound(t *testing.T) {
	t.Parallel()
	for op, call := range requests {
		for _, status := range []int{200, 201, 202, 204, 400, 500, 503} {
			var read atomic.Int64
			a := openFake(t, transportFunc(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(endless{&read}), ContentLength: -1, Request: req}, nil
			}))
			if op == "table query" && status < 300 {
				continue // its bound is 128 MiB
			}
			if err := call(t.Context(), a); !storage.Is(err, storage.MaybeDone) || !errors.Is(err, errTooLong) {
				t.Errorf("%s, status %d: %v", op, status, err)
			}
			if n := read.Load(); n > 64<<20 {
				t.Errorf("%s, status %d: %d bytes were read", op, status, n)
			}
		}
	}
}

func TestReadBounded(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789", 1000)
	for _, c := range []struct {
		size, limit int64
		want        error
	}{
		{-1, 1 << 20, nil},
		{int64(len(text)), 1 << 20, nil},
		{int64(len(text)), int64(len(text)), nil},
		{-1, int64(len(text)), nil},
		{-1, int64(len(text)) - 1, errTooLong},
		{int64(len(text)), int64(len(text)) - 1, errTooLong},
		{1 << 60, 1 << 20, errTooLong},
		{int64(len(text)) + 1, 1 << 20, io.ErrUnexpectedEOF},
		{5, 1 << 20, nil}, // a length that is too small is the transport's matter
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "with the end": iotest.DataErrReader(strings.NewReader(text))} {
			got, err := readBounded(r, c.size, c.limit, make([]byte, 7, 100))
			if !errors.Is(err, c.want) || (err == nil && string(got) != text) {
				t.Errorf("%s, size %d, limit %d: %d bytes, %v", name, c.size, c.limit, len(got), err)
			}
		}
	}
	if _, err := readBounded(iotest.ErrReader(errors.New("cut")), -1, 100, nil); err == nil || err.Error() != "cut" {
		t.Errorf("a broken answer: %v", err)
	}
}

// A server that takes the request and says nothing holds a call for 30 s and no longer.
func TestCallWithoutDeadlineEnds(t *testing.T) {
	t.Parallel()
	for op, call := range requests {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := openFake(t, transportFunc(func(req *http.Request) (*http.Response, error) {
					<-req.Context().Done()
					return nil, req.Context().Err()
				}))
				from := time.Now()
				if err := call(t.Context(), a); !storage.Is(err, storage.MaybeDone) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				proof.Same(t, time.Since(from), callTimeout, "it took")
			})
		})
	}
}

// The text must be the caller's again after Put returns, also when the
// transport still reads the request's body then.
func TestPutDoesNotKeepItsText(t *testing.T) {
	t.Parallel()
	var body io.ReadCloser
	a := openFake(t, transportFunc(func(req *http.Request) (*http.Response, error) {
		body = req.Body
		return nil, io.EOF
	}))
	text := []byte("text of the caller")
	_, _ = a.Queue("queue").Put(t.Context(), text, 0)
	clear(text)
	b, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(b), "text of the caller") {
		t.Errorf("%q, %v", b, err)
	}
}
