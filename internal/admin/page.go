package admin

import (
	"cmp"
	"context"
	"embed"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/status"
)

// Path is where the page is.
const Path = "/page/"

// PageOptions say what a page shows.
type PageOptions struct {
	Config pump.Config // of the workload
	// Path is the configuration's file, for the commands that the doctor names; Locate tells where in
	// it an error has its cause. Both may be left out.
	Path   string
	Locate func(error) error
	// TokenFile is the file of the token that people need to act here; empty: nobody can act.
	TokenFile string
	Log       *slog.Logger // default: nothing

	doctor doctor.Options // replaces this machine, for tests
}

// Page is the page of one workload. It serves what is below [Path].
type Page struct {
	o       PageOptions
	mux     http.Handler
	hub     *hub
	tokens  *configfile.TokenFile // nil: nobody can act
	cfg     atomic.Pointer[pump.Config]
	watcher atomic.Pointer[status.Watcher]
	poison  atomic.Pointer[map[string]int64] // messages in quarantine, by account

	hours hours

	asked chan struct{} // capacity 1: the doctor is to look

	life context.Context // until Close
	end  context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	watchers int
	stop     context.CancelFunc // of the reader; nil: none reads

	reading sync.Mutex // held by the reader

	shown  sync.Mutex // guards what follows
	seer   Seer
	owned  []string
	moves  []Move
	doctor diagnosis

	doing   sync.Mutex // guards what follows
	action  action
	stopAct context.CancelFunc
}

//go:embed assets
var embedded embed.FS

// NewPage makes a page. It makes no request, and reads nothing until a viewer comes.
func NewPage(o PageOptions) (*Page, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	p := &Page{o: o, asked: make(chan struct{}, 1)}
	p.hub = &hub{log: o.Log, frames: map[string]frame{}, changed: make(chan struct{})}
	p.hours.read, p.hours.log = p.readHistory, o.Log
	p.life, p.end = context.WithCancel(context.Background())
	if err := p.use(o.Config); err != nil {
		p.end()
		return nil, err
	}
	if o.TokenFile != "" {
		p.tokens = configfile.NewTokenFile(o.TokenFile)
	}
	p.action = action{Can: o.TokenFile != "", KeptWhy: []string{}}
	p.hub.put(partAct, p.action)
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		p.end()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page/{$}", p.file(assets, "page.html"))
	for _, name := range []string{
		"page.js", "draw.js", "page.css", "icon.svg", "uPlot.iife.min.js", "uPlot.min.css",
	} {
		mux.HandleFunc("GET /page/assets/"+name, p.file(assets, name))
	}
	mux.HandleFunc("GET /page/events", p.events)
	mux.HandleFunc("GET /page/hours", p.lastHours)
	mux.HandleFunc("POST /page/redrive", p.acting(configfile.ScopeOperate, p.redrive))
	mux.HandleFunc("POST /page/samples", p.acting(configfile.ScopeRead, p.samples))
	mux.HandleFunc("POST /page/stop", p.acting(configfile.ScopeOperate, p.stopActing))
	mux.HandleFunc("POST /page/doctor", p.askDoctor)
	p.mux = mux
	return p, nil
}

func (p *Page) use(cfg pump.Config) error {
	cfg.Log = cmp.Or(cfg.Log, p.o.Log)
	w, err := status.NewWatcher(cfg, status.Options{})
	if err != nil {
		return err
	}
	p.cfg.Store(&cfg)
	p.watcher.Store(w)
	return nil
}

// Reload takes a configuration that was read again. A nil page takes none.
func (p *Page) Reload(cfg pump.Config) error {
	if p == nil {
		return nil
	}
	if err := p.use(cfg); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
		p.start()
	}
	return nil
}

// Close ends all streams, and what is under way.
func (p *Page) Close() {
	p.mu.Lock()
	p.doing.Lock() // a new action looks first whether this is over
	p.end()
	p.doing.Unlock()
	p.mu.Unlock()
	p.all.Wait()
}

// policy allows nothing but this page's own files. No text becomes a script or an element of the
// document: the script makes elements and sets their texts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src " +
	"'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP serves the page. The caller checks host names.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
	p.mux.ServeHTTP(w, r)
}

func (p *Page) file(assets fs.FS, name string) http.HandlerFunc {
	text, err := fs.ReadFile(assets, name)
	switch name {
	case "page.css":
		text = append([]byte(Tokens), text...)
	case "uPlot.iife.min.js":
		text, err = []byte(Plot), nil
	case "uPlot.min.css":
		text, err = []byte(PlotStyle), nil
	}
	kind := cmp.Or(mime.TypeByExtension(path.Ext(name)), "application/octet-stream")
	switch path.Ext(name) { // even if the machine's tables say otherwise
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			http.Error(w, "it is not here", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(text)
	}
}

const (
	// sendWithin is how long a viewer may take to receive what is sent.
	sendWithin = 10 * time.Second
	// aliveEvery is how often a sign of life is sent, so that a connection whose other end is gone is
	// found, here and by the script: while rows cannot be read nothing changes for long. The sign is
	// an event, because a script does not see comments.
	aliveEvery = 15 * time.Second
)

// ours reports whether a request may come from this page itself, by what the browser says.
func ours(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "" || site == "same-origin"
}

// events is the stream. A stream may last longer than the server allows for a request.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if !ours(r) {
		refuse(w, http.StatusForbidden, "only this page itself may watch")
		return
	}
	leave, ok := p.join()
	if !ok {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "as many watch as may")
		return
	}
	defer leave()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // or the server takes its own end for the client's
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for a proxy that would hold events back
	send := func(texts ...[]byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(sendWithin))
		for _, text := range texts {
			if _, err := w.Write(text); err != nil {
				return false
			}
		}
		return control.Flush() == nil
	}
	if !send([]byte("retry: 2000\n\n")) {
		return
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	last := seen{pasts: -1}
	for {
		texts, now, changed := p.hub.since(last)
		if now.pasts != last.pasts { // before the newest point
			texts = append([][]byte{p.pastFrame()}, texts...)
		}
		if last = now; len(texts) > 0 && !send(texts...) {
			return
		}
		select {
		case <-changed:
		case <-alive.C:
			if !send([]byte("event: " + partAlive + "\ndata: {}\n\n")) {
				return
			}
		case <-r.Context().Done():
			return
		case <-p.life.Done():
			return
		}
	}
}
