package handlers

import (
	"net/http"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

const (
	traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	tracestate  = "rojo=00f067aa0ba902b7"
)

// A child's line, a process's environment and an endpoint's headers have the context of a traced
// task. They have none for a task that is not traced, and never that in which this process was
// started.
func TestWorkersGetTheContextOfATracedTask(t *testing.T) {
	asked := make(chan http.Header, 2)
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header })
	line, endpoint := newExec(t, command("echo")), newHTTP(t, url, HTTPOptions{})
	each := newExecEach(t, command("each", "TRACEPARENT=of this process", "TRACESTATE=too"))
	for _, traced := range []bool{true, false} {
		tk, parent, state := task("traced"), "", ""
		if traced {
			tk.Trace = []byte(traceparent + "\n" + tracestate)
			parent, state = traceparent, tracestate
		}
		said, err := line.Work(t.Context(), tk)
		must(t, err)
		both := `,"traceparent":"` + traceparent + `","tracestate":"` + tracestate + `"`
		if strings.Contains(string(said), both) != traced || strings.Contains(string(said), `"traceparent"`) != traced {
			t.Errorf("traced %v: a child read %s", traced, said)
		}
		if said, err = each.Work(t.Context(), tk); err != nil || string(said) != `"`+parent+"|"+state+`"` {
			t.Errorf("traced %v: a process had %s, %v", traced, said, err)
		}
		must(t, proof.ErrOf(endpoint.Work(t.Context(), tk)))
		if h := <-asked; h.Get("Traceparent") != parent || h.Get("Tracestate") != state {
			t.Errorf("traced %v: an endpoint got %q, %q", traced, h.Get("Traceparent"), h.Get("Tracestate"))
		}
	}
}
