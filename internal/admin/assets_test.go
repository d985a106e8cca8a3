package admin

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func served(p *Page, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

var refers = regexp.MustCompile(`(?:src|href)="([^"#]+)"`)

func TestTheDocumentUsesItsOwnFilesAlone(t *testing.T) {
	_, cfg := newSim(t, 1)
	p := opened(t, cfg, "")
	w := served(p, "/page/", nil)
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	html := w.Body.String()
	found := refers.FindAllStringSubmatch(html, -1)
	for _, ref := range found {
		if got := served(p, path.Join("/page", ref[1]), nil); got.Code != 200 || got.Body.Len() == 0 {
			t.Errorf("%s: %d", ref[1], got.Code)
		}
	}
	if len(found) < 6 {
		t.Errorf("only %v are referred to", found)
	}
	for _, inline := range []string{"<script>", "<style", " style=", " onclick=", "javascript:"} {
		if strings.Contains(html, inline) {
			t.Errorf("the document has %s, which its policy forbids", inline)
		}
	}
	elsewhere := regexp.MustCompile(`(?:https?:)?//[a-z]+[.][a-z]`)
	for _, name := range []string{"page.html", "page.js", "draw.js", "page.css"} {
		text, err := fs.ReadFile(embedded, "assets/"+name)
		must(t, err)
		if m := elsewhere.Find(text); m != nil {
			t.Errorf("%s names %s", name, m)
		}
		if strings.Contains(string(text), "innerHTML") || strings.Contains(string(text), "eval(") {
			t.Errorf("%s makes markup or code of texts", name)
		}
	}
}

func TestEveryAnswerHasThePolicy(t *testing.T) {
	_, cfg := newSim(t, 1)
	p := opened(t, cfg, "")
	for _, target := range []string{"/page/", "/page/assets/page.js", "/page/nothing", "/page/assets/", "/page/assets/../page.go"} {
		h := served(p, target, nil).Header()
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
			"frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'", "require-trusted-types-for 'script'",
		} {
			proof.Has(t, csp, want, target)
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%s: %q", target, csp)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			proof.Same(t, h.Get(name), want, target, name)
		}
		proof.Same(t, h.Get("Access-Control-Allow-Origin"), "", target, "lets other origins in")
	}
}

func TestAPageOfElsewhereDoesNotWatch(t *testing.T) {
	sim, cfg := newSim(t, 1)
	p := opened(t, cfg, "")
	before := pageAsked(sim)
	for _, site := range []string{"cross-site", "same-site", "none"} {
		w := served(p, "/page/events", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
		proof.Same(t, w.Code, http.StatusForbidden, site)
	}
	proof.Same(t, pageAsked(sim), before, "it had the accounts read")
}
