package serve

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

var must = proof.Must

// world is simulated accounts in virtual time.
type world struct {
	t        *testing.T
	sim      *azsim.Sim
	delivery pump.Delivery
}

// inWorld runs a test in a world.
func inWorld(t *testing.T, delivery pump.Delivery, accounts int, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := azsim.Config{Seed: 1, Latency: 10 * time.Millisecond}
		for i := range accounts {
			c.Accounts = append(c.Accounts, azsim.Account{Name: "account" + string(rune('a'+i))})
		}
		test(t, &world{t, azsim.New(c), delivery})
	})
}

// config is the configuration of one instance.
func (w *world) config(instance string) pump.Config {
	c := pump.Config{Workload: "work", Instance: instance, Delivery: w.delivery, Log: slog.New(slog.DiscardHandler)}
	for _, name := range w.sim.Accounts() {
		st, err := azure.Open(azure.Options{
			ConnectionString: w.sim.ConnectionString(name), Transport: w.sim.Transport().As(instance),
		})
		must(w.t, err)
		c.Accounts = append(c.Accounts, pump.Account{Storage: st, Queues: 2})
	}
	return c
}

// hang has the queues of an account, or of all, swallow what the server sends.
func (w *world) hang(account string) *azsim.Injection {
	return w.sim.Inject(azsim.Rule{Instance: "serve", Account: account, Service: "queue", Fault: azsim.HangBefore})
}

// stand is a server in a world, with its sender.
func stand(w *world, o Options) *Server {
	w.t.Helper()
	sender := distributor.SenderOptions{KeepKeys: 24 * time.Hour}
	if o.Large {
		sender.BlobAbove = 40 << 10
	}
	s, err := distributor.NewSender(w.config("serve"), sender)
	must(w.t, err)
	o.Sender, o.Log = s, slog.New(slog.DiscardHandler)
	return New(o)
}

// ends closes a server's sender, whatever is under way.
func ends(s *Server) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = s.o.Sender.Close(gone)
}

// posts makes a request of it and reads the answer.
func posts(t *testing.T, s http.Handler, body string, header ...string) (int, answer, http.Header) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tasks", strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, r)
	var a answer
	if rec.Header().Get("Content-Type") == "application/json" {
		must(t, json.Unmarshal(rec.Body.Bytes(), &a))
	}
	return rec.Code, a, rec.Header()
}

func TestWhatAPostIsAnswered(t *testing.T) {
	inWorld(t, pump.Once, 1, func(t *testing.T, w *world) {
		s := stand(w, Options{Key: "city", ID: "n"})
		long := strings.Repeat("x", maxBody)
		lines := "application/x-ndjson"
		for name, c := range map[string]struct {
			body, kind string
			status     int
			line       int
			field, fix string
			tasks      int
		}{
			"two lines":            {`{"city":"Oslo","n":1}` + "\r\n\n" + `{"city":"Rome","n":2}` + "\n", lines, 200, 0, "", "", 2},
			"as curl says it":      {`{"city":"Oslo","n":1}`, "application/x-www-form-urlencoded", 200, 0, "", "", 1},
			"one of several lines": {"{\"city\":\n\"Oslo\",\"n\":1}", "application/json; charset=utf-8", 200, 0, "", "", 1},
			"with a mark":          {"\ufeff" + `{"city":"Oslo","n":1}`, "", 200, 0, "", "", 1},
			"no JSON":              {"{\"city\":\"Oslo\",\"n\":1}\noops", lines, 400, 2, "", "mend", 0},
			"several lines":        {"{\n\"city\": \"Oslo\", \"n\": 1\n}\n", lines, 400, 1, "", "", 0},
			"without the key":      {`{"n":1}`, lines, 400, 1, "city", "mend", 0},
			"an object as key":     {`{"city":{},"n":1}`, lines, 400, 1, "city", "mend", 0},
			"without the id":       {`{"city":"Oslo"}`, lines, 400, 1, "n", "mend", 0},
			"an array":             {`[{"city":"Oslo","n":1}]`, "application/json", 400, 0, "", "x-ndjson", 0},
			"an array in a line":   {`[{"city":"Oslo","n":1}]`, lines, 400, 1, "city", "element", 0},
			"lines as one":         {"1\n2", "application/json", 400, 1, "", "x-ndjson", 0},
			"nothing":              {"\n \n", lines, 400, 0, "", "line", 0},
			"a picture":            {"x", "image/png", 415, 0, "", "ndjson", 0},
			"a large body":         {long + "x", lines, 413, 0, "", "divide", 0},
			"many lines":           {strings.Repeat(`{"city":"Oslo","n":1}`+"\n", maxLines+1), lines, 413, 0, "", "divide", 0},
			"a large task":         {`{"city":"Oslo","n":1,"x":"` + noise(200<<10) + `"}`, lines, 413, 1, "", "serve --blob-above", 0},
			"no type of media":     {"1", ";;;", 415, 0, "", "ndjson", 0},
			"another charset":      {"1", lines + "; charset=utf-16", 415, 0, "", "UTF-8", 0},
			"not UTF-8":            {`{"city":"\ufffd","n":1}` + "\n{\"city\":\"\xf8\",\"n\":1}", lines, 400, 2, "", "mend", 0},
			"deeply nested":        {`{"city":"Oslo","n":1,"x":` + strings.Repeat("[", 512) + strings.Repeat("]", 512) + "}", lines, 400, 1, "", "mend", 0},
			"nested":               {`{"city":"Oslo","n":1,"x":` + strings.Repeat("[", 511) + strings.Repeat("]", 511) + "}", lines, 200, 0, "", "", 1},
		} {
			before := s.o.Sender.State().Done.Tasks
			status, a, h := posts(t, s, c.body, "Content-Type", c.kind)
			tasks := 0
			if a.Tasks != nil {
				tasks = *a.Tasks
			}
			if status != c.status || a.Line != c.line || a.Field != c.field || !strings.Contains(a.Fix, c.fix) || tasks != c.tasks {
				t.Errorf("%s: %d %+v", name, status, a)
			}
			if status >= 400 && (a.Error == "" || h.Get("Connection") != "close") {
				t.Errorf("%s: %+v, %v", name, a, h)
			}
			proof.Same(t, s.o.Sender.State().Done.Tasks-before, int64(c.tasks), name, "tasks were sent")
		}
		for _, c := range []struct {
			method, path string
			status       int
		}{{"GET", "/v1/tasks", 405}, {"POST", "/v1/other", 404}, {"GET", "/", 404}, {"GET", "/readyz", 503}} {

			rec := httptest.NewRecorder()
			s.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
			proof.Same(t, rec.Code, c.status, c.method, c.path)
		}
		ends(s)
		s = stand(w, Options{Large: true})
		for size, want := range map[int]int{200 << 10: 200, 5 << 20: 200, largeBody: 413} {
			status, a, _ := posts(t, s, `{"x":"`+strings.Repeat("x", size)+`"}`, "Content-Type", lines)
			if status != want || want == 413 && (!strings.Contains(a.Error, "16777216") || !strings.Contains(a.Fix, "run --blob-above")) {
				t.Errorf("%d bytes: %d %+v", size, status, a)
			}
		}
		blobs := 0
		for _, name := range w.sim.Accounts() {
			blobs += len(w.sim.Blobs(name, "work-bodies"))
		}
		proof.Same(t, blobs, 2, "bodies")
		ends(s)
	})
}

// noise is text that compression hardly makes smaller.
func noise(n int) string {
	text := make([]byte, n/2)
	rand.NewChaCha8([32]byte{}).Read(text)
	return hex.EncodeToString(text)
}

func TestAPostWithAKeyIsAnsweredAsBefore(t *testing.T) {
	inWorld(t, pump.Once, 1, func(t *testing.T, w *world) {
		s := stand(w, Options{})
		key := []string{"Idempotency-Key", "order 1"}
		for i := range 3 {
			if status, a, _ := posts(t, s, "1\n2\n3", key...); status != 200 || *a.Tasks != 3 || a.Again != (i > 0) {
				t.Errorf("post %d: %d %+v", i, status, a)
			}
		}
		if status, a, _ := posts(t, s, "1\n2\n4", key...); status != 422 || a.Error == "" || a.Fix == "" {
			t.Errorf("%d %+v", status, a)
		}
		if status, _, _ := posts(t, s, "1", "Idempotency-Key", strings.Repeat("k", 256)); status != 400 {
			t.Errorf("a long key: %d", status)
		}
		for _, keys := range [][]string{{""}, {"a", "b"}, {"", "a"}} {
			var header []string
			for _, key := range keys {
				header = append(header, "Idempotency-Key", key)
			}
			if status, a, _ := posts(t, s, "1", header...); status != 400 || a.Fix == "" {
				t.Errorf("keys %q: %d %+v", keys, status, a)
			}
		}
		ends(s)
	})
}

func TestTheTraceOfARequestGoesIntoItsTasks(t *testing.T) {
	inWorld(t, pump.AtLeastOnce, 1, func(t *testing.T, w *world) {
		var handled []pump.Task
		s := stand(w, Options{})
		const id = "4bf92f3577b34da6a3ce929d0e0e4736"
		for _, header := range []string{"00-" + id + "-00f067aa0ba902b7-01", "00-" + id + "-00f067aa0ba902b7-00", "junk"} {
			posts(t, s, `"`+header+`"`, "traceparent", header)
		}
		ends(s)
		p, err := processor.New(w.config("p"), pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
			copied := *task
			copied.Body, copied.Trace = bytes.Clone(task.Body), bytes.Clone(task.Trace)
			handled = append(handled, copied)
			return nil
		}), processor.Options{Concurrency: 1, UntilIdle: 10 * time.Second})
		must(t, err)
		must(t, proof.ErrOf(p.Run(t.Context())))
		for _, task := range handled {
			c, traced := codec.DecodeTrace(task.Trace)
			want := strings.HasSuffix(string(task.Body), `-01"`)
			if traced != want || want && c.TraceID().String() != id {
				t.Errorf("%s: %v, %v", task.Body, traced, c)
			}
		}
		proof.Same(t, len(handled), 3, "tasks")
	})
}

func TestATokenSaysWhoMaySend(t *testing.T) {
	inWorld(t, pump.AtLeastOnce, 1, func(t *testing.T, w *world) {
		path := filepath.Join(t.TempDir(), "tokens")
		must(t, os.WriteFile(path, []byte("send: 0123456789abcdef\nread, operate: fedcba9876543210\n"), 0o600))
		s := stand(w, Options{Tokens: configfile.NewTokenFile(path)})
		for token, want := range map[string]int{"": 401, "wrong": 401, "Bearer 0123456789abcdef": 200, "bearer 0123456789abcdef": 200, "Bearer fedcba9876543210": 403} {
			status, a, h := posts(t, s, "1", "Authorization", token)
			if status != want || want == 403 && !strings.Contains(a.Fix, "for send") ||
				(want == 401) != (h.Get("WWW-Authenticate") == "Bearer") {
				t.Errorf("%q: %d %+v", token, status, a)
			}
		}
		for status, h := 401, http.Header(nil); status != 429; {
			if status, _, h = posts(t, s, "1", "Authorization", "guess"); status == 429 && h.Get("Retry-After") == "" {
				t.Error("it is not said when to come again")
			}
		}
		var log strings.Builder
		s.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.ready.Store(true)
		must(t, os.WriteFile(path, []byte("sned: 0123456789abcdef\n"), 0o600))
		for range 3 {
			status, a, h := posts(t, s, "1", "Authorization", "Bearer 0123456789abcdef")
			if status != 503 || strings.Contains(a.Fix, "Bearer") || h.Get("Retry-After") == "" {
				t.Errorf("%d %+v", status, a)
			}
		}
		if st := s.State(); st.Ready || strings.Count(log.String(), "tokens:1: ") != 1 {
			t.Errorf("a bad file: %+v, and the log says %q", st, log.String())
		}
		ends(s)
	})
	inWorld(t, pump.AtLeastOnce, 1, func(t *testing.T, w *world) {
		s := stand(w, Options{})
		for _, header := range []string{"Origin", "Sec-Fetch-Site"} {
			if status, _, _ := posts(t, s, "1", header, "https://evil.example"); status != 403 {
				t.Errorf("a web page posts without a token: %d", status)
			}
		}
		ends(s)
	})
	for listen, field := range map[string]string{
		":8080": "token-file", "0.0.0.0:8080": "token-file", "pump.example:8080": "token-file",
		"nonsense": "listen", "127.0.0.1:70000": "listen", "unix:": "listen", "unix:/" + strings.Repeat("x", 120): "listen", "127.0.0.1:8080": "", "[::1]:0": "", "localhost:80": "", "unix:/x": "",
	} {
		err := Check(Options{Listen: listen})
		if (err == nil) != (field == "") || err != nil && !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", listen, err)
		}
	}
	proof.Says(t, Check(Options{Listen: "unix:/x", Grace: -1}), "grace")
}

// What the accounts do not take in time is told a line at a time, and what is held is bounded.
func TestWhileAnAccountHangsItIsKnownWhatIsSent(t *testing.T) {
	inWorld(t, pump.AtLeastOnce, 2, func(t *testing.T, w *world) {
		s := stand(w, Options{Key: "k", Patience: time.Second, Bytes: 256 << 10})
		must(t, s.o.Sender.Distributor().Prepare(t.Context()))
		w.hang("accountb")
		var body strings.Builder
		for i := range 40 {
			fmt.Fprintf(&body, "{\"k\":%d}\n", i)
		}
		status, a, _ := posts(t, s, body.String(), "Idempotency-Key", "x")
		if status != 207 || *a.Tasks == 0 || *a.Tasks+len(a.Outcomes) != 40 || !strings.Contains(a.Fix, "same Idempotency-Key") {
			t.Errorf("%d %+v", status, a)
		}
		for _, o := range a.Outcomes {
			if o.Line < 1 || o.Line > 40 || !strings.Contains(o.Error, "handed in") {
				t.Errorf("%+v", o)
			}
		}
		w.hang("")
		var all sync.WaitGroup
		seen := map[int]int{}
		var mu sync.Mutex
		for i := range 20 {
			all.Go(func() {
				status, a, h := posts(t, s, fmt.Sprintf("{\"k\":\"%s\"}", strings.Repeat(fmt.Sprint(i%10), 30<<10)))
				mu.Lock()
				defer mu.Unlock()
				if seen[status]++; h.Get("Retry-After") == "" || a.Error == "" {
					t.Errorf("%d %+v", status, a)
				}
			})
		}
		all.Wait()
		if seen[429] == 0 || seen[503] == 0 || seen[429]+seen[503] != 20 {
			t.Errorf("the answers were %v", seen)
		}
		proof.Same(t, s.held.Load(), 0, "bytes are held")
		ends(s)
	})
}

// Of posts with many short lines the tasks take more than the bodies.
func TestPostsOfManySmallTasksHaveABoundToo(t *testing.T) {
	inWorld(t, pump.AtLeastOnce, 1, func(t *testing.T, w *world) {
		s := stand(w, Options{Patience: time.Second, Bytes: 4 << 20})
		w.hang("")
		answers, seen := make(chan int, 20), map[int]int{}
		for range cap(answers) {
			go func() {
				status, _, _ := posts(t, s, strings.Repeat("1\n", maxLines))
				answers <- status
			}()
		}
		for range cap(answers) {
			seen[<-answers]++
		}
		if seen[429] < 16 || seen[503] == 0 || seen[429]+seen[503] != 20 {
			t.Errorf("the answers were %v", seen)
		}
		ends(s)
	})
}

// pipes is a listener without a network, for virtual time.
type pipes struct {
	next chan net.Conn
	over chan struct{}
	once sync.Once
}

func newPipes() *pipes { return &pipes{next: make(chan net.Conn), over: make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.next <- server
	return client
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.over) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// over makes requests by the pipes.
func (p *pipes) over1(t *testing.T, body string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil },
	}}
	resp, err := client.Post("http://serve/v1/tasks", "application/x-ndjson", strings.NewReader(body))
	must(t, err)
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func TestClientsThatMeanHarmHarmNoOther(t *testing.T) {
	inWorld(t, pump.AtLeastOnce, 1, func(t *testing.T, w *world) {
		s := stand(w, Options{Bytes: 8 << 20})
		p := newPipes()
		server := s.server()
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(p)
		}()
		post := "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: "
		large := strings.Repeat("x", 1<<20)
		var all sync.WaitGroup
		for i := range 300 {
			texts := []string{
				"", "POST /v1/ta", "\x00\x01\x02\r\n\r\n", post + "4000000\r\n\r\n", post + "4000000\r\n\r\n" + large,
				post + "99999999999\r\n\r\n", post + "10\r\n\r\n12", "GET / HTTP/1.1\r\nX: " + large,
				post + "-1\r\n\r\n", "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n" + large,
			}
			c := p.dial()
			all.Go(func() {
				go func() { _, _ = io.Copy(io.Discard, c) }()
				for _, b := range []byte(texts[i%len(texts)]) {
					if i >= 150 && i%len(texts) != 4 { // byte by byte
						time.Sleep(100 * time.Millisecond)
					}
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
					if i < 150 || i%len(texts) == 4 {
						_, _ = c.Write([]byte(texts[i%len(texts)])[1:])
						break
					}
				}
				time.Sleep(5 * time.Minute)
				c.Close()
			})
		}
		for i := range 60 {
			began := time.Now()
			proof.Same(t, p.over1(t, fmt.Sprintf(`{"n":%d}`, i)), 200, "post", i)
			if took := time.Since(began); i > 0 && took > 50*time.Millisecond {
				t.Errorf("post %d took %v", i, took)
			}
			time.Sleep(500 * time.Millisecond)
		}
		all.Wait()
		proof.Same(t, s.held.Load(), 0, "bytes are held")
		_ = server.Close()
		<-served
		ends(s)
	})
}

func TestAServerThatEndsAnswersWhatItHas(t *testing.T) {
	inWorld(t, pump.Once, 1, func(t *testing.T, w *world) {
		s := stand(w, Options{Listen: "127.0.0.1:0"})
		ctx, stop := context.WithCancel(t.Context())
		must(t, s.o.Sender.Distributor().Prepare(ctx))
		p := newPipes()
		done := make(chan error, 1)
		go func() {
			_, err := s.serve(ctx, p)
			done <- err
		}()
		proof.Same(t, p.over1(t, "1"), 200)
		slow := w.hang("")
		last := make(chan int, 1)
		go func() { last <- p.over1(t, "2") }()
		time.Sleep(time.Second)
		stop()
		synctest.Wait()
		if status, a, h := posts(t, s, "3"); status != 503 || h.Get("Retry-After") == "" || !strings.Contains(a.Error, "ends") {
			t.Errorf("%d %+v", status, a)
		}
		if st := s.State(); st.Phase != "draining" || st.Ready {
			t.Errorf("%+v", st)
		}
		time.Sleep(time.Second)
		slow.Remove()
		proof.Same(t, <-last, 200, "what was under way")
		must(t, <-done)
		all, err := runs.List(t.Context(), w.config("looks"), "", 10)
		must(t, err)
		if len(all) != 1 || all[0].State != "sealed" || all[0].Tasks == nil || *all[0].Tasks != 2 {
			t.Errorf("%+v", all)
		}
	})
}
