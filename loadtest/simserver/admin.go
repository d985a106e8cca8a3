package simserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// The bounds of what a client of the admin endpoint may use of the process.
const (
	maxBody        = 64 << 10 // a hundred faults, spelled out
	maxHeader      = 16 << 10
	maxConnections = 64
	adminTimeout   = 10 * time.Second
)

// Admin is an admin endpoint that listens.
type Admin struct {
	listener net.Listener
	http     *http.Server
	served   chan struct{}
}

// ListenAdmin serves the admin endpoint on an address of loopback such as "127.0.0.1:10003"; "" is
// a free port. Other addresses are refused unless azsim.Config.Public is set: the endpoint asks for
// no credential.
func (s *Simulator) ListenAdmin(addr string) (*Admin, error) {
	addr = cmp.Or(addr, "127.0.0.1:0")
	if _, _, err := net.SplitHostPort(addr); err != nil || !s.public && !onLoopback(addr) {
		return nil, fmt.Errorf("simserver: the admin address %q is not host:port of loopback", addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("simserver: the admin endpoint: %w", err)
	}
	a := &Admin{listener: l, served: make(chan struct{}), http: &http.Server{
		Handler:     s.AdminHandler(),
		ReadTimeout: adminTimeout, WriteTimeout: adminTimeout, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: maxHeader,
	}}
	go func() {
		defer close(a.served)
		_ = a.http.Serve(netutil.LimitListener(l, maxConnections)) // ends with ErrServerClosed
	}()
	return a, nil
}

// URL is where the endpoint is, without a slash at its end.
func (a *Admin) URL() string { return "http://" + a.listener.Addr().String() }

// Close ends the endpoint.
func (a *Admin) Close() error {
	err := a.http.Close()
	<-a.served
	return err
}

// AdminHandler is the admin endpoint for a server of your own; the package's documentation lists
// what it answers.
func (s *Simulator) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /accounts", func(w http.ResponseWriter, r *http.Request) {
		write(w, http.StatusOK, s.accounts(r))
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	endpoints := map[string]func(body []byte) (any, error){
		"GET /faults":    func([]byte) (any, error) { return s.currentFaults(), nil },
		"PUT /faults":    s.putFaults,
		"DELETE /faults": func([]byte) (any, error) { return s.replaceFaults(nil) },
		"GET /limits":    func([]byte) (any, error) { return s.CurrentLimits(), nil },
		"PUT /limits":    s.putLimits,
		"GET /latency":   func([]byte) (any, error) { return s.currentLatency(), nil },
		"PUT /latency":   s.putLatency,
		"GET /counts":    func([]byte) (any, error) { return s.counts(), nil },
		"POST /reset":    s.reset,
	}
	for pattern, h := range endpoints {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { answer(w, r, h) })
	}
	known := append(slices.Sorted(maps.Keys(endpoints)), "GET /accounts", "GET /healthz")
	slices.Sort(known)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, unknown("endpoint", r.Method+" "+r.URL.Path, known))
	})
	// Pages of other origins change nothing. The host is checked because the owner of such a page
	// may let a name of his own lead here, which makes it one of the same origin.
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, errors.New("the request comes from a page of another origin"))
	}))
	if s.public { // everybody may, by any name
		return origins.Handler(mux)
	}
	return guarded(origins.Handler(mux))
}

// guarded answers requests only that name a host of loopback.
func guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !onLoopback(r.Host) {
			refuse(w, http.StatusForbidden, errors.New("the Host header names no address of loopback"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// onLoopback reports whether host or host:port is localhost or an address of loopback.
func onLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

func answer(w http.ResponseWriter, r *http.Request, h func([]byte) (any, error)) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, err)
		return
	}
	v, err := h(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	write(w, http.StatusOK, v)
}

func refuse(w http.ResponseWriter, status int, err error) {
	write(w, status, map[string]string{"error": err.Error()})
}

func write(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client is gone
}

// decode reads one JSON value and refuses unknown fields.
func decode(body []byte, v any, form string) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows it")
		}
	}
	if err != nil {
		return fmt.Errorf("want %s: %w", form, err)
	}
	return nil
}

type accountShown struct {
	Name             string `json:"name"`
	ConnectionString string `json:"connectionString,omitempty"`
}

// accounts are the accounts, on the host by which the client reaches the endpoint. Their keys are
// made of their names, or Azurite's, and open nothing else.
func (s *Simulator) accounts(r *http.Request) map[string][]accountShown {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	host := ""
	if s.public {
		host = (&url.URL{Host: r.Host}).Hostname()
	}
	var list []accountShown
	for _, name := range s.Accounts() {
		a := accountShown{Name: name}
		if server != nil {
			a.ConnectionString = server.ConnectionStringAt(host, name)
		}
		list = append(list, a)
	}
	return map[string][]accountShown{"accounts": list}
}

func (s *Simulator) currentFaults() map[string][]Fault {
	return map[string][]Fault{"faults": s.CurrentFaults()}
}

func (s *Simulator) putFaults(body []byte) (any, error) {
	const form = `{"faults": [{"fault": "lost-answer", "rate": 0.01}]}`
	var in struct {
		Faults *[]json.RawMessage `json:"faults"`
	}
	if err := decode(body, &in, form); err != nil {
		return nil, err
	}
	if in.Faults == nil {
		return nil, fmt.Errorf("want %s: faults are missing", form)
	}
	faults := make([]Fault, len(*in.Faults))
	for i, raw := range *in.Faults {
		if err := faults[i].UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
	}
	return s.replaceFaults(faults)
}

func (s *Simulator) replaceFaults(faults []Fault) (any, error) {
	if err := s.SetFaults(faults...); err != nil {
		return nil, err
	}
	return s.currentFaults(), nil
}

func (s *Simulator) putLimits(body []byte) (any, error) {
	var text string
	var l azsim.Limits
	err := json.Unmarshal(body, &text)
	if err == nil {
		l, err = ParseLimits(text)
	} else {
		l, err = readLimits(body)
	}
	if err == nil {
		err = s.SetLimits(l)
	}
	return l, err
}

// latencyShown is azsim.Latency with durations as people write them.
type latencyShown struct {
	Queue  string `json:"queue"`
	Table  string `json:"table"`
	Spread string `json:"spread"`
}

func (s *Simulator) currentLatency() latencyShown {
	l := s.CurrentLatency()
	return latencyShown{l.Queue.String(), l.Table.String(), l.Spread.String()}
}

func (s *Simulator) putLatency(body []byte) (any, error) {
	in := latencyShown{"0s", "0s", "0s"}
	if err := decode(body, &in, `{"queue": "5ms", "table": "5ms", "spread": "1ms"}`); err != nil {
		return nil, err
	}
	var l azsim.Latency
	for _, f := range []struct {
		name, text string
		at         *time.Duration
	}{{"queue", in.Queue, &l.Queue}, {"table", in.Table, &l.Table}, {"spread", in.Spread, &l.Spread}} {
		var err error
		if *f.at, err = readDuration(f.text, longDelay); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := s.SetLatency(l); err != nil {
		return nil, err
	}
	return s.currentLatency(), nil
}

func (s *Simulator) reset(body []byte) (any, error) {
	var in struct {
		Account string `json:"account"`
	}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := decode(body, &in, `{"account": "one"} or no body, for all`); err != nil {
			return nil, err
		}
		if !slices.Contains(s.Accounts(), in.Account) {
			return nil, unknown("account", in.Account, s.Accounts())
		}
	}
	emptied := []string{}
	for _, name := range s.Accounts() {
		if in.Account == "" || in.Account == name {
			s.Reset(name)
			emptied = append(emptied, name)
		}
	}
	return map[string][]string{"emptied": emptied}, nil
}

type requestCount struct {
	Account   string `json:"account"`
	Service   string `json:"service"`
	Operation string `json:"operation"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Count     int64  `json:"count"`
}

// countsShown is what has happened since the simulator was made.
type countsShown struct {
	Seed      uint64           `json:"seed"`
	Requests  []requestCount   `json:"requests"`
	Throttled int64            `json:"throttled"` // by limits
	Happened  map[string]int64 `json:"happened"`  // faults by kind, including replaced ones
	Dark      map[string]int64 `json:"dark"`      // requests that met a dark or silent account
	Faults    []faultCount     `json:"faults"`    // the faults in force
}

func (s *Simulator) counts() countsShown {
	st := s.Stats()
	c := countsShown{
		Seed: s.seed, Requests: []requestCount{}, Throttled: st.Throttled,
		Happened: map[string]int64{}, Dark: st.Blackouts, Faults: s.schedule.counts(),
	}
	for _, r := range st.Requests {
		c.Requests = append(c.Requests, requestCount(r))
	}
	for _, k := range kinds {
		if n := st.Faults[k.rule]; n > 0 && k.name != refuseKind { // which is an error too
			c.Happened[k.name] = n
		}
	}
	return c
}
