package azure

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage"
)

// rawServer answers each request as talk says, which is called for every connection with
// its number from 1. It gives the account, and how many connections there were.
func rawServer(t *testing.T, talk func(conn net.Conn, r *bufio.Reader, number int64)) (storage.Account, *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var connections atomic.Int64
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := connections.Add(1)
			serving.Go(func() {
				defer conn.Close()
				talk(conn, bufio.NewReader(conn), n)
			})
		}
	})
	return openAt(t, "http://"+l.Addr().String(), 4), &connections
}

// requestOf reads one request and its body.
func requestOf(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

const deleted = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"

// The late answer of a request that was given up is not the next one's.
func TestConnectionOfARequestThatWasGivenUpIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	a, _ := rawServer(t, func(conn net.Conn, r *bufio.Reader, number int64) {
		for requestOf(r) {
			if number == 1 {
				asked <- struct{}{}
				<-answer
				fmt.Fprint(conn, "HTTP/1.1 404 Not Found\r\nx-ms-error-code: MessageNotFound\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			fmt.Fprint(conn, deleted)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if err := a.Queue("queue").Delete(ctx, testReceipt); !storage.Is(err, storage.MaybeDone) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	close(answer)
	proof.Is(t, a.Queue("queue").Delete(t.Context(), testReceipt), nil, "the next one")
}

// Answers that break off, or never come to their point, are "maybe done".
func TestBrokenAnswersOverTCPAreMaybeDone(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":           "",
		"half a head":       "HTTP/1.1 200 OK\r\nContent-Le",
		"half a body":       "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<Queue",
		"half a piece":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n<Queue",
		"something else":    "220 mail.example ESMTP\r\n",
		"an endless head":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n", 100),
		"only interim ones": strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := rawServer(t, func(conn net.Conn, r *bufio.Reader, _ int64) {
				if requestOf(r) {
					fmt.Fprint(conn, answer)
				}
			})
			for range 2 {
				if _, err := a.Queue("queue").Get(t.Context(), 32, time.Minute); !storage.Is(err, storage.MaybeDone) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// Who refuses a request before having read all of it is heard.
func TestAnswerThatComesBeforeTheEndOfTheRequestIsHeard(t *testing.T) {
	t.Parallel()
	a, _ := rawServer(t, func(conn net.Conn, r *bufio.Reader, _ int64) {
		if _, err := http.ReadRequest(r); err == nil {
			fmt.Fprint(conn, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
		}
	})
	if _, err := a.Queue("queue").Put(t.Context(), []byte(strings.Repeat("x", storage.MaxText)), 0); !storage.Is(err, storage.Throttled) {
		t.Errorf("%v", err)
	}
}

// Over TLS too, requests one after the other use one connection; in a bubble as
// TestConnectionsAreKept.
func TestConnectionsAreKeptOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	certificates, roots := server.TLS.Certificates, x509.NewCertPool()
	roots.AddCert(server.Certificate())
	server.Close()
	synctest.Test(t, func(t *testing.T) {
		client := NewTransport(4)
		client.Transport.(once).TLSClientConfig.RootCAs = roots
		opened := piped(t, client, func(conn net.Conn) net.Conn {
			return tls.Server(conn, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
		})
		a := openBy(t, "https://127.0.0.1:10001", client)
		for range 50 {
			must(t, a.Queue("queue").Delete(t.Context(), testReceipt))
		}
		proof.Same(t, opened.Load(), 1, "connections for 50 requests, one at a time")
	})
}

// A connection that has been idle for too long is closed from this side.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended sync.WaitGroup
		client := NewTransport(4)
		client.Transport.(once).DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			ended.Go(func() {
				for r := bufio.NewReader(theirs); requestOf(r); {
					fmt.Fprint(theirs, deleted)
				}
			})
			return ours, nil
		}
		a := openBy(t, "http://127.0.0.1:10001", client)
		must(t, a.Queue("queue").Delete(t.Context(), testReceipt))
		from := time.Now()
		ended.Wait()
		proof.Same(t, time.Since(from), 60*time.Second, "closed after")
	})
}

// A small request is one write to its connection, its head and its body together.
func TestSmallRequestsAreOneWrite(t *testing.T) {
	t.Parallel()
	var writes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, azureGet)
	}))
	t.Cleanup(server.Close)
	client := NewTransport(4)
	t.Cleanup(client.CloseIdleConnections)
	transport := client.Transport.(once)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return countedWrites{conn, &writes}, err
	}
	a := openBy(t, server.URL, client)
	for range 10 {
		must(t, proof.ErrOf(a.Queue("queue").Put(t.Context(), []byte(strings.Repeat("x", 1000)), 0)))
	}
	proof.Same(t, writes.Load(), 10, "writes for 10 requests")
}

type countedWrites struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedWrites) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
