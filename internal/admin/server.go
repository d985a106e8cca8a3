package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	public "github.com/queuepump/queuepump/pump/metrics"
	"github.com/queuepump/queuepump/pump/nudge"
	"github.com/queuepump/queuepump/pump/processor"
)

// The bounds of what a client may use of the process. No client is trusted with memory or time.
const (
	// maxConnections is room for two hundred processes that nudge and keep their
	// connections for a while, and for scrapers.
	maxConnections = 512
	maxOfOne       = 256 // of one address, such as loopback
	maxHeader      = 16 << 10
	maxBody        = 4 << 10 // no request needs one
	readTimeout    = 5 * time.Second
	idleTimeout    = 30 * time.Second
	// maxProfile is the longest that a profile may be collected.
	maxProfile = 60 * time.Second
	// writeTimeout leaves a slow reader time to receive what was collected.
	writeTimeout = maxProfile + 15*time.Second
	// closePatience is how long requests under way may go on when the process ends.
	closePatience = time.Second
)

// Options say where the port is and which process it serves.
type Options struct {
	// Listen is host:port, port 0 for any that is free, or Off. Empty: a free port of
	// loopback if there is one, none otherwise.
	Listen string
	// Advertise is the address that others use, if it differs from Listen; its port may be 0 for the
	// port that was found.
	Advertise string
	Workload  string
	Role      string // of the process, for its metrics: processor or distributor
	Version   string
	// Page shows the workload to people, below [Path]; nil: no page. It is closed with the port.
	Page *Page
	// PageAlone: nothing but the page is served.
	PageAlone bool
	Log       *slog.Logger
	Prices    pump.Prices // of requests, for metrics; what is not given is as published

	listen func(network, address string) (net.Listener, error) // net.Listen but for tests
}

// Server is an open admin port. A nil Server is off: its methods do nothing.
type Server struct {
	address string
	names   map[string]bool
	metrics *metrics
	page    *Page
	alone   bool // the page is
	http    *http.Server
	served  chan struct{}
	of      atomic.Pointer[subject]
}

// subject is the process that a port serves.
type subject struct {
	state func() any
	ready func() (ok bool, reasons []string)
	nudge http.Handler
}

// Open opens the port and serves it. It gives a nil Server if the port is off. The error for a
// wrong address is an [*AddressError].
func Open(o Options) (*Server, error) {
	if o.Listen == Off {
		return nil, nil
	}
	if err := Check(o.Listen, o.Advertise); err != nil {
		return nil, err
	}
	listen := cmp.Or(o.Listen, freePort)
	open := o.listen
	if open == nil {
		open = net.Listen
	}
	l, err := open("tcp", listen)
	switch {
	case err != nil && o.Listen == "": // it was not asked for
		o.Log.Warn("there is no admin port: no health, metrics or nudges", "error", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the admin port cannot be opened: %w; end what listens there, "+
			"or give another address", err)
	}
	s := &Server{
		address: published(o.Advertise, l.Addr()), metrics: newMetrics(o), page: o.Page,
		alone: o.PageAlone, served: make(chan struct{}),
	}
	s.names = names(s.address)
	s.http = &http.Server{
		Handler:     s.handler(),
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		ConnState: (&crowd{guests: map[net.Conn]*guest{}}).note,
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Warn("the admin port is closed", "error", err)
		}
	}()
	o.Log.Info("admin port", "listen", l.Addr().String(), "address", s.address)
	return s, nil
}

// Address is where others reach the port, host:port; empty without a port.
func (s *Server) Address() string {
	if s == nil {
		return ""
	}
	return s.address
}

// Hooks adds what the metrics need to a process's hooks.
func (s *Server) Hooks(h pump.Hooks) pump.Hooks {
	if s == nil {
		return h
	}
	return s.metrics.hooks(h)
}

// ShowProcessor has the port serve a processor. It is called once.
func (s *Server) ShowProcessor(p *processor.Processor) {
	if s == nil {
		return
	}
	s.show(&subject{
		state: func() any { return p.State() },
		ready: func() (bool, []string) { st := p.State(); return st.Ready, st.Reasons },
		nudge: nudge.Handler(p, p.State().Instance),
	}, public.Processor(p.State))
}

// ShowDistributor has the port serve a distributor, and the state of what it is a part of. It is
// called once.
func (s *Server) ShowDistributor(d *distributor.Distributor, state func() distributor.State) {
	if s == nil {
		return
	}
	s.show(&subject{
		state: func() any { return state() },
		ready: func() (bool, []string) { st := state(); return st.Ready, st.Reasons },
		nudge: nudge.Handler(d, state().Instance),
	}, public.Distributor(state))
}

func (s *Server) show(of *subject, c prometheus.Collector) {
	s.metrics.register(c)
	s.of.Store(of)
}

// Close ends the port, letting requests under way go on for a moment. It comes last, so that a
// stopping process can be watched to its end.
func (s *Server) Close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if s.page != nil {
		s.page.Close() // or its streams would be waited for
	}
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.served
}
