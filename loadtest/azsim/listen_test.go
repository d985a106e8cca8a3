package azsim

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// served is a simulator on TCP, asked by plain HTTP with a bearer token.
type served struct {
	t   *testing.T
	sim *Sim
	srv *Server
	c   *http.Client
}

func serve(t *testing.T, c Config) served {
	t.Helper()
	c.Accounts, c.Limits = []Account{{Name: "acct"}}, NoLimits()
	s := New(c)
	srv, err := s.Listen("", "")
	must(t, err)
	tr := &http.Transport{}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
	})
	return served{t, s, srv, &http.Client{Transport: tr}}
}

func (s served) do(ctx context.Context, method, host, path, body string) (*http.Response, string, error) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.srv.QueueAddr()+path, strings.NewReader(body))
	must(s.t, err)
	if host != "" {
		req.Host = host
	}
	req.Header.Set("Authorization", "Bearer x")
	resp, err := s.c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// AZURE.md A5: path style, and host style by the Host header on the same port (Q85).
func TestBothStylesOfAddressReachTheAccount(t *testing.T) {
	s := serve(t, Config{})
	for _, c := range []struct{ host, path, endpoint string }{
		{"", "/acct/queue-1", "http://" + s.srv.QueueAddr() + "/acct/"},
		{"acct.queue.localhost", "/queue-2", "http://acct.queue.localhost/"},
		{"acct.queue.core.windows.net:8080", "/queue-3", "http://acct.queue.core.windows.net:8080/"},
	} {
		resp, _, err := s.do(t.Context(), "PUT", c.host, c.path, "")
		if err != nil || resp.StatusCode != 201 {
			t.Errorf("%v: %v, %v", c, resp, err)
		}
		path := strings.TrimSuffix(c.path, c.path[strings.LastIndex(c.path, "/"):])
		_, body, err := s.do(t.Context(), "GET", c.host, path+"/?comp=list", "")
		if err != nil || !strings.Contains(body, `ServiceEndpoint="`+c.endpoint+`"`) {
			t.Errorf("%v: %s, %v", c, body, err)
		}
	}
	resp, body, err := s.do(t.Context(), "GET", "", "/nosuch/queue/messages", "") // Q74
	if err != nil || resp.StatusCode != 404 || !strings.Contains(body, "<Code>ResourceNotFound</Code>") {
		t.Errorf("an account that does not exist: %v %s %v", resp, body, err)
	}
}

// AZURE.md A1: bodies of successful answers are chunked, absent ones have length 0.
func TestAnswersAreChunkedOnTheWireAsAzuresAre(t *testing.T) {
	s := serve(t, Config{})
	conn, err := net.Dial("tcp", s.srv.QueueAddr())
	must(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func(line, body string) (string, *http.Response) {
		t.Helper()
		must(t, errOf(io.WriteString(conn, line+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: "+itoa(int64(len(body)))+"\r\n\r\n"+body)))
		resp, err := http.ReadResponse(in, nil)
		must(t, err)
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		return string(b), resp
	}
	if _, resp := ask("PUT /acct/queue", ""); resp.ContentLength != 0 || resp.StatusCode != 201 {
		t.Errorf("create: %v", resp)
	}
	if b, resp := ask("POST /acct/queue/messages", text("x")); len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" || !strings.HasPrefix(b, bom) {
		t.Errorf("put: %v %q", resp, b)
	}
	if b, resp := ask("GET /acct/nosuch/messages", ""); resp.ContentLength != int64(len(b)) || resp.StatusCode != 404 {
		t.Errorf("error: %v %q", resp, b)
	}
	if _, resp := ask("HEAD /acct/queue?comp=metadata", ""); resp.StatusCode != 200 || resp.Header.Get("x-ms-approximate-messages-count") != "1" {
		t.Errorf("head: %v", resp)
	}
}

func TestFaultsReachAClientOnTCP(t *testing.T) {
	s := serve(t, Config{})
	if _, _, err := s.do(t.Context(), "PUT", "", "/acct/queue", ""); err != nil {
		t.Fatal(err)
	}
	put := func(ctx context.Context) (int, error) {
		resp, _, err := s.do(ctx, "POST", "", "/acct/queue/messages", text(strings.Repeat("x", 1000)))
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, nil
	}
	for want, kind := range []FaultKind{FailBefore, AnswerLost, CutBody} { // the second and third act
		s.sim.Inject(Rule{Fault: kind, Operations: []string{"PutMessage"}, First: 1})
		if status, err := put(t.Context()); err == nil {
			t.Errorf("%s: status %d", kind, status)
		}
		resp, _, err := s.do(t.Context(), "GET", "", "/acct/queue?comp=metadata", "")
		if err != nil || resp.Header.Get("x-ms-approximate-messages-count") != itoa(int64(want)) {
			t.Errorf("after %s: %v, %v; want %d messages", kind, resp, err, want)
		}
	}
	hang := s.sim.Inject(Rule{Fault: HangBefore, Operations: []string{"PutMessage"}, First: 1})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // gives up what hangs, and not what is still on its way: the next put would hang
		defer cancel()
		for hang.Hits() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond) // TCP cannot be waited for in virtual time
		}
		time.Sleep(50 * time.Millisecond) // in which an answer would come
	}()
	if status, err := put(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("hang: %d, %v", status, err)
	}
	cancel()
	s.sim.Blackout("acct", true)
	proof.Says(t, proof.ErrOf(put(t.Context())), "Post ", "blackout")
	s.sim.Blackout("acct", false)
	if status, err := put(t.Context()); err != nil || status != 201 {
		t.Errorf("after the blackout: %d, %v", status, err)
	}
}

// A lost answer harms a client of net/http, whose transport sends a GET again by
// itself when a connection that was used before breaks without an answer: turning
// an SDK's retries off does not help, two gets lease messages (window 4). POST,
// PUT and DELETE are not sent again.
func TestALostAnswerOnAKeptConnectionMakesNetHTTPGetTwice(t *testing.T) {
	s := serve(t, Config{})
	s.sim.Inject(Rule{Fault: AnswerLost, Operations: []string{"GetMessages", "PutMessage"}})
	for operation, c := range map[string]struct {
		method, body string
		want         int64
	}{"GetMessages": {"GET", "", 2}, "PutMessage": {"POST", text("x"), 1}} {
		if _, _, err := s.do(t.Context(), "PUT", "", "/acct/queue", ""); err != nil { // a connection to keep
			t.Fatal(err)
		}
		if _, _, err := s.do(t.Context(), c.method, "", "/acct/queue/messages", c.body); err == nil {
			t.Errorf("%s was answered", operation)
		}
		proof.Same(t, s.sim.Stats().Count("acct", operation), c.want, operation, "came … times")
	}
}

// A request that hangs does not keep the server from closing.
func TestCloseEndsRequestsThatHang(t *testing.T) {
	s := serve(t, Config{})
	s.sim.Hang("acct", true)
	failed := make(chan error, 1)
	go func() {
		_, _, err := s.do(context.Background(), "GET", "", "/acct/queue/messages", "")
		failed <- err
	}()
	for s.sim.Stats().Blackouts["acct"] == 0 {
		time.Sleep(time.Millisecond) // TCP cannot be waited for in virtual time
	}
	must(t, s.srv.Close())
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	s := New(Config{})
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:0", "nonsense"} {
		if srv, err := s.Listen(addr, ""); err == nil {
			t.Errorf("%s is served", addr)
			_ = srv.Close()
		}
		if srv, err := s.Listen("", addr); err == nil {
			t.Errorf("%s is served", addr)
			_ = srv.Close()
		}
	}
	proof.Same(t, s.ConnectionString("nosuch"), "", "an account that does not exist")
	proof.Same(t, s.Key("nosuch"), "", "an account that does not exist")
}

// AZURE.md, Virtual time: net/http over net.Pipe works inside a bubble.
func TestTheHandlerServesOverPipesInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Accounts: []Account{{Name: "acct"}}, Latency: 7 * time.Second})
		pipes := make(chan net.Conn)
		srv := &http.Server{Handler: s.QueueHandler()}
		go func() { _ = srv.Serve(pipeListener(pipes)) }()
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			pipes <- server
			return client, nil
		}}
		start := time.Now()
		req := httptest.NewRequestWithContext(t.Context(), "PUT", "http://acct.queue.localhost/queue", nil)
		req.RequestURI = ""
		req.Header.Set("Authorization", "Bearer x")
		resp, err := tr.RoundTrip(req)
		if err != nil || resp.StatusCode != 201 {
			t.Fatalf("%v, %v", resp, err)
		}
		if d := time.Since(start); d < 7*time.Second || d > 11*time.Second {
			t.Errorf("took %v", d)
		}
		_ = resp.Body.Close()
		tr.CloseIdleConnections()
		close(pipes) // Close waits for Accept to return
		_ = srv.Close()
	})
}

// pipeListener accepts the connections that come on a channel.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestABodyThatIsRefusedUnreadIsAnswered also to a client that sends all of it before it looks for
// an answer: without reading, the server would reset the connection under it.
func TestABodyThatIsRefusedUnreadIsAnswered(t *testing.T) {
	s := serve(t, Config{})
	conn, err := net.Dial("tcp", s.srv.TableAddr())
	must(t, err)
	defer func() { _ = conn.Close() }()
	const size = maxTableBody + 1<<20
	_, err = io.WriteString(conn, "POST /acct/$batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n"+
		"Content-Length: "+itoa(size)+"\r\n\r\n"+strings.Repeat("x", size))
	if err != nil {
		t.Fatalf("the body was not taken: %v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	proof.Same(t, resp.StatusCode, http.StatusRequestEntityTooLarge, resp.Status)
}
