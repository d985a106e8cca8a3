package nudging

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestAPageOfAnotherProcessIsReadAndNothingElse(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc(
		"GET /healthz",
		func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("alive\n")) },
	)
	mux.HandleFunc("GET /long", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("x", 2*largestLook)))
	})
	mux.HandleFunc(
		"GET /away",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/healthz", http.StatusFound) },
	)
	server := httptest.NewServer(mux)
	defer server.Close()
	address := server.Listener.Addr().String()
	c := NewClient()
	// A busy machine may take longer than lookTimeout. A look may be repeated.
	look := func(path string) (body []byte, err error) {
		for range 60 {
			body, err = c.Get(t.Context(), address, path, true)
			if late, is := errors.AsType[net.Error](err); !is || !late.Timeout() {
				break
			}
		}
		return body, err
	}
	if body, err := look("/healthz"); err != nil || string(body) != "alive\n" {
		t.Errorf("%q, %v", body, err)
	}
	if body, err := look("/long"); err != nil || len(body) != largestLook {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	for path, says := range map[string]string{"/away": "302", "/nothing": "404"} {
		if body, err := look(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v, want an error that says %s", path, body, err, says)
		}
	}
	proof.Is(t, proof.ErrOf(c.Get(t.Context(), address, "/healthz", false)), errAddress,
		"loopback of another machine")
	if _, err := c.Get(t.Context(), "169.254.169.254:80", "/healthz", false); !errors.Is(
		err,
		errAddress,
	) {
		t.Errorf("the metadata service: %v", err)
	}
	proof.Is(t, proof.ErrOf(c.Get(t.Context(), "no address", "/healthz", true)), errAddress)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	proof.Must(t, err)
	_ = closed.Close()
	if _, err := c.Get(t.Context(), closed.Addr().String(), "/healthz", true); err == nil {
		t.Error("a closed port answers")
	}
}
