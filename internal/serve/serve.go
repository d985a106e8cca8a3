package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
)

const (
	// maxConnections is how many clients are connected at most; others wait for one to leave.
	maxConnections = 2048
	maxHeader      = 16 << 10
	headerTime     = 5 * time.Second
	idleTime       = 3 * time.Minute
	// closeTime is for answers that are on their way when the server ends.
	closeTime = time.Second
)

// Options say what a server takes, and from whom.
type Options struct {
	Sender *distributor.Sender
	// Listen is host:port, or unix: and the path of a socket.
	Listen string
	// TLS is nil without encryption.
	TLS *tls.Config
	// Tokens are those of clients that may send; nil: all who reach the address may.
	Tokens *configfile.TokenFile
	// Key and ID are the fields with a task's key and id; empty: the whole text, none.
	Key, ID string
	// Large has posts of up to 16 MiB taken, because the sender puts large tasks into blobs.
	Large bool
	// Bytes is how much all bodies together may take. Default 64 MiB.
	Bytes int64
	// Patience is how long a post waits for its acknowledgement. Default 25 s: balancers wait for 30 s
	// or more.
	Patience time.Duration
	// Grace is how long posts under way may take when the server ends. Default 20 s.
	Grace time.Duration
	Log   *slog.Logger
}

// Server takes tasks over HTTP.
type Server struct {
	o        Options
	mux      *http.ServeMux
	scanners sync.Pool // of *jsonline.Task
	room     *semaphore.Weighted
	large    *semaphore.Weighted
	posts    *prometheus.CounterVec
	held     atomic.Int64   // bytes of bodies
	says     rate.Sometimes // what is wrong here

	ready    atomic.Bool
	draining atomic.Bool
	mu       sync.Mutex // guards under against Add beside Wait
	under    sync.WaitGroup
}

// New makes a server. It makes no request.
func New(o Options) *Server {
	o.Bytes = cmp.Or(o.Bytes, 64<<20)
	o.Patience = cmp.Or(o.Patience, 25*time.Second)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	s := &Server{
		o: o, mux: http.NewServeMux(), posts: newPosts(),
		says: rate.Sometimes{First: 1, Interval: 10 * time.Second},
		room: semaphore.NewWeighted(o.Bytes), large: semaphore.NewWeighted(o.Bytes / 2),
	}
	s.scanners.New = func() any { return jsonline.NewTask(o.Key, o.ID) }
	s.mux.HandleFunc("POST /v1/tasks", s.post)
	s.mux.HandleFunc("GET /readyz", s.readyz)
	return s
}

// Check says what is wrong with an address, and with who may reach it.
func Check(o Options) error {
	if o.Grace < 0 {
		return pump.Invalid("grace", "it is negative", "use 0 or more")
	}
	if path, unix := strings.CutPrefix(o.Listen, "unix:"); unix {
		if path == "" || len(path) > 103 { // as systems have it
			return pump.Invalid("listen", "unix: has no path, or a long one",
				"write up to 103 bytes, as in unix:/run/queuepump/serve.sock")
		}
		return nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return pump.Invalid("listen", fmt.Sprintf("%q is not an address", o.Listen),
			"write host:port, as in 127.0.0.1:8080, or unix: and a path")
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) && o.Tokens == nil {
		return pump.Invalid("token-file", "anyone who reaches "+o.Listen+" could send tasks",
			"give --token-file, or listen on loopback or a unix socket")
	}
	return nil
}

// listen opens the address.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	network, address := "tcp", s.o.Listen
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		network, address = "unix", path
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("another process listens on %s", path)
		}
		info, lost := os.Lstat(path)
		if lost == nil && info.Mode().Type() == os.ModeSocket && errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path) // of a process that is gone; one that is busy answers otherwise
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err == nil && network == "unix" {
		err = os.Chmod(address, 0o660)
	}
	if err != nil {
		return nil, fmt.Errorf("--listen: %w; end what listens there, or give another address", err)
	}
	if s.o.Log.Info("taking tasks", "listen", l.Addr().String()); s.o.TLS != nil {
		return tls.NewListener(netutil.LimitListener(l, maxConnections), s.o.TLS), nil
	}
	return netutil.LimitListener(l, maxConnections), nil
}

// Run serves until ctx ends. Then new posts are refused, those under way are answered, and the run
// is sealed.
func (s *Server) Run(ctx context.Context) (distributor.Summary, error) {
	if err := s.o.Sender.Distributor().Prepare(ctx); err != nil {
		return distributor.Summary{}, err
	}
	l, err := s.listen(ctx)
	if err != nil {
		return distributor.Summary{}, err
	}
	return s.serve(ctx, l)
}

// serve serves what comes by a listener.
func (s *Server) serve(ctx context.Context, l net.Listener) (distributor.Summary, error) {
	serving, end := context.WithCancelCause(ctx)
	defer end(nil)
	done := make(chan struct{})
	server := s.server()
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			end(fmt.Errorf("no more tasks can be taken: %w", err))
		}
	}()
	s.ready.Store(true)
	<-serving.Done()
	failed := context.Cause(serving)
	if ctx.Err() != nil {
		failed = nil
	}
	s.mu.Lock()
	s.draining.Store(true)
	s.mu.Unlock()
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), s.o.Grace)
	defer stop()
	over := make(chan struct{})
	go func() {
		s.under.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-grace.Done():
	}
	summary, err := s.o.Sender.Close(grace)
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer stop()
	if server.Shutdown(last) != nil {
		_ = server.Close()
	}
	<-done
	return summary, errors.Join(failed, err)
}

// Hurry shortens the time for what is under way.
func (s *Server) Hurry(most time.Duration) { s.o.Sender.Distributor().Hurry(most) }

// server is the HTTP server of the listener. HTTP/2 has no part in it: one connection could hold
// the bodies of hundreds of posts.
func (s *Server) server() *http.Server {
	only := new(http.Protocols)
	only.SetHTTP1(true)
	return &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		Protocols: only, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
}

// enter notes a post that is under way; false: the server ends.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return false
	}
	s.under.Add(1)
	return true
}

// State is what the server's distributor is doing now. Without a task yet there is no run, which is
// no fault.
func (s *Server) State() distributor.State {
	st := s.o.Sender.State()
	switch {
	case s.draining.Load():
		st.Phase, st.Ready, st.Reasons = "draining", false, []string{"it is stopping"}
	case !s.ready.Load():
		st.Phase, st.Ready, st.Reasons = "starting", false, []string{"it is starting"}
	case st.Phase == "stopped":
		st.Phase, st.Ready, st.Reasons = "standby", true, []string{}
	}
	if s.o.Tokens != nil {
		if _, err := s.o.Tokens.Read(); err != nil {
			st.Ready, st.Reasons = false, append(st.Reasons, "no post is taken: "+err.Error())
		}
	}
	return st
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if st := s.State(); !st.Ready {
		http.Error(w, strings.Join(st.Reasons, "\n"), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Memory is how many bytes suffice, as a goal of the garbage collector: for sending, for the bodies
// of posts, and for the posts with keys that wait for their rows.
func (s *Server) Memory() int64 { return s.o.Sender.Distributor().Memory() + 2*s.o.Bytes }
