package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/quarantine"
)

const (
	// tokenHeader carries the token. A header of its own makes browsers ask first whether another
	// origin may send it, and this port never allows that.
	tokenHeader = "X-Queuepump-Token"
	// dryFor is how long the result of a trial counts.
	dryFor = 10 * time.Minute
)

// action is a redrive, or the trial of a redrive, as people see it.
type action struct {
	// Can: a token is configured, so that people can act here.
	Can     bool   `json:"can"`
	ID      string `json:"id"` // empty: there was none
	Dry     bool   `json:"dry"`
	Running bool   `json:"running"`
	Cause   string `json:"cause"`
	// Messages is how many were put back, or would be, with so many Tasks. Kept is how many stay.
	Messages int64     `json:"messages"`
	Tasks    int64     `json:"tasks"`
	Kept     int64     `json:"kept"`
	KeptWhy  []string  `json:"keptWhy"` // some of the reasons, each once
	Error    string    `json:"error"`
	Began    time.Time `json:"began"`

	// newest is when the newest of the counted messages was tried last, or put into quarantine.
	newest time.Time
}

// whysShown is how many reasons why messages stay are shown.
const whysShown = 5

// request is what a request to act says.
type request struct {
	Cause string `json:"cause"`
	// Dry is the trial that has said what would be done; empty: try.
	Dry string `json:"dry"`
}

// acting passes on requests that come from this page and have a token for the scope.
func (p *Page) acting(
	scope string, do func(http.ResponseWriter, *http.Request, request),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !sameOrigin(r) {
			refuse(w, http.StatusForbidden, "only this page itself may act here")
			return
		}
		if status, why := p.hasToken(r, scope); why != "" {
			refuse(w, status, why)
			return
		}
		var in request
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil {
			refuse(w, http.StatusBadRequest, "the request cannot be read")
			return
		}
		do(w, r, in)
	}
}

// sameOrigin reports whether a browser says that the request comes from a page of this address. A
// browser that says nothing does not know these headers, and is refused.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && origin.Host == r.Host
}

// hasToken says why a request may not do what is in a scope; empty: it may.
func (p *Page) hasToken(r *http.Request, scope string) (status int, why string) {
	if p.tokens == nil {
		return http.StatusForbidden, "this page is read only: page.tokenFile is not configured"
	}
	status, why = p.tokens.Check(scope, r.Header.Get(tokenHeader))
	if status == http.StatusServiceUnavailable {
		_, err := p.tokens.Read()
		p.o.Log.Error("the page's token cannot be read", "error", err)
	}
	return status, why
}

// redrive tries a redrive, or makes the one that was tried.
func (p *Page) redrive(w http.ResponseWriter, _ *http.Request, in request) {
	p.doing.Lock()
	defer p.doing.Unlock()
	now := p.action
	switch tried := !now.Running && now.Dry && now.ID == in.Dry && now.Error == ""; {
	case p.life.Err() != nil:
		refuse(w, http.StatusServiceUnavailable, "this process ends")
		return
	case now.Running:
		refuse(w, http.StatusConflict, "another one is under way")
		return
	case in.Dry != "" && (!tried || now.Cause != in.Cause || time.Since(now.Began) > dryFor):
		refuse(w, http.StatusConflict, "try it first: only the last trial counts, for ten minutes")
		return
	}
	next := action{
		Can: true, ID: rand.Text(), Dry: in.Dry == "", Running: true, Cause: in.Cause,
		KeptWhy: []string{}, Began: time.Now().UTC(),
	}
	f := quarantine.Filter{Reasons: []string{in.Cause}}
	if !next.Dry {
		// Messages that came since were not in the trial. The newest time of the trial's own messages is
		// the bound: it comes from workers and the service, whose clocks may be ahead of this machine's.
		f.Until = now.newest.Add(1)
	}
	p.action = next
	p.hub.put(partAct, next)
	p.o.Log.Info("a redrive was asked for on the page", "cause", in.Cause, "dry", next.Dry)
	ctx, cancel := context.WithCancel(p.life)
	p.stopAct = cancel
	p.all.Go(func() {
		defer cancel()
		p.act(ctx, f, next)
	})
	answer(w, http.StatusAccepted, map[string]string{"id": next.ID})
}

// act does what a is to do.
func (p *Page) act(ctx context.Context, f quarantine.Filter, a action) {
	said := time.Now()
	say := func() {
		p.doing.Lock()
		defer p.doing.Unlock()
		b := a
		b.KeptWhy = slices.Clone(a.KeptWhy)
		p.action = b
		p.hub.put(partAct, b)
	}
	q, err := quarantine.Open(ctx, *p.cfg.Load())
	if err == nil {
		err = q.Redrive(ctx, f, quarantine.Options{Dry: a.Dry}, func(o quarantine.Outcome) bool {
			if at := *cmp.Or(o.Last, &o.Put); at.After(a.newest) {
				a.newest = at
			}
			if o.Outcome == quarantine.Kept {
				a.Kept++
				if !slices.Contains(a.KeptWhy, o.Problem) && len(a.KeptWhy) < whysShown {
					a.KeptWhy = append(a.KeptWhy, o.Problem)
				}
			} else {
				a.Messages++
				a.Tasks += int64(o.Matching)
			}
			if time.Since(said) > time.Second/2 {
				said = time.Now()
				say()
			}
			return true
		})
	}
	a.Running = false
	switch {
	case errors.Is(err, context.Canceled):
		a.Error = "it was stopped"
	case err != nil:
		a.Error, _, _ = strings.Cut(err.Error(), "\n")
	}
	p.o.Log.Info("a redrive of the page has ended", "cause", a.Cause, "dry", a.Dry,
		"messages", a.Messages, "tasks", a.Tasks, "kept", a.Kept, "error", a.Error)
	say()
}

// stopActing ends what is under way.
func (p *Page) stopActing(w http.ResponseWriter, _ *http.Request, _ request) {
	p.doing.Lock()
	defer p.doing.Unlock()
	if p.stopAct != nil {
		p.stopAct()
	}
	answer(w, http.StatusAccepted, map[string]string{"id": p.action.ID})
}

// samples shows tasks in quarantine.
func (p *Page) samples(w http.ResponseWriter, r *http.Request, in request) {
	counts := map[string]int64{}
	if known := p.poison.Load(); known != nil {
		for name, n := range *known {
			if n > 0 {
				counts[name] = n
			}
		}
	}
	messages, err := peekAt(r.Context(), *p.cfg.Load(), counts, p.watcher.Load().Pay)
	out := struct {
		Tasks []taskShown `json:"tasks"`
		Error string      `json:"error"`
	}{Tasks: pageTasksOf(messages, in.Cause)}
	if err != nil {
		out.Error, _, _ = strings.Cut(err.Error(), "\n")
	}
	answer(w, http.StatusOK, out)
}

// askDoctor has the doctor look at a large workload, unless it did so lately. It needs no token,
// because it changes nothing of the workload.
func (p *Page) askDoctor(w http.ResponseWriter, r *http.Request) {
	if !sameOrigin(r) {
		refuse(w, http.StatusForbidden, "only this page itself may act here")
		return
	}
	select {
	case p.asked <- struct{}{}:
	default: // it is asked for already
	}
	answer(w, http.StatusAccepted, map[string]string{})
}

func refuse(w http.ResponseWriter, status int, why string) {
	answer(w, status, map[string]string{"error": why})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
