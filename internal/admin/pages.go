package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"
)

// handler serves every page, behind the guard.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	if s.page != nil {
		mux.Handle(Path, s.page)
	}
	if s.alone {
		mux.Handle("GET /{$}", http.RedirectHandler(Path, http.StatusSeeOther))
		return s.guard(mux)
	}
	mux.HandleFunc("GET /{$}", s.index)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "alive")
	})
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /state", s.state)
	mux.Handle("GET /metrics", s.metrics.page())
	mux.HandleFunc("POST /nudge", s.nudge)
	// Not among them is /debug/pprof/cmdline: a command line may hold a token.
	mux.HandleFunc("GET /debug/pprof/", bounded(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", bounded(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", bounded(pprof.Trace))
	return s.guard(mux)
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	if s.page != nil {
		fmt.Fprintln(w, Path)
	}
	fmt.Fprint(w, "/healthz\n/readyz\n/metrics\n/state\n/debug/pprof/\n")
}

// guard refuses requests that a browser sends for another site's page, and requests that no client
// of this port needs.
func (s *Server) guard(pages http.Handler) http.Handler {
	pages = http.NewCrossOriginProtection().Handler(pages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		switch {
		case !asked(s.names, r.Host):
			http.Error(w,
				"this port does not go by that name; use its IP address, or set admin.advertise",
				http.StatusMisdirectedRequest)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
			h.Set("Allow", "GET, HEAD, POST")
			http.Error(w, "only GET and POST", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		pages.ServeHTTP(w, r)
	})
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"` // why not
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	a := readiness{Reasons: []string{"it is starting"}}
	if of := s.of.Load(); of != nil {
		a.Ready, a.Reasons = of.ready()
	}
	status := http.StatusOK
	if !a.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, a)
}

func (s *Server) state(w http.ResponseWriter, _ *http.Request) {
	of := s.of.Load()
	if of == nil {
		writeJSON(w, http.StatusServiceUnavailable, readiness{Reasons: []string{"it is starting"}})
		return
	}
	writeJSON(w, http.StatusOK, of.state())
}

// nudge passes a nudge on. The answer does not say whether it helped: it is a hint.
func (s *Server) nudge(w http.ResponseWriter, r *http.Request) {
	of := s.of.Load()
	if of == nil {
		http.Error(w, "it is starting", http.StatusServiceUnavailable)
		return
	}
	of.nudge.ServeHTTP(w, r)
}

// bounded refuses a profile that is to take too long. The runtime itself refuses two at once.
func bounded(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s := r.FormValue("seconds"); s != "" {
			if n, err := strconv.ParseFloat(s, 64); err != nil || !(n >= 0 && n <= maxProfile.Seconds()) {
				http.Error(w, fmt.Sprintf("seconds: use 0 to %d", maxProfile/time.Second),
					http.StatusBadRequest)
				return
			}
		}
		page(w, r)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil { // a number that JSON does not know
		http.Error(w, "the state cannot be written down", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
