package processtest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// prints is what a command prints, whatever its exit status.
func (w *world) prints(name string, args ...string) string {
	w.t.Helper()
	p := start(w.t, name, append(args, "--config", w.config)...)
	p.wait()
	return p.out.String()
}

// TestNothingIsGreenThatStands: handlers that all fail, and handlers that all hang, are named with
// cause and task by status, top, page, doctor, the metric of the alert, and the log.
func TestNothingIsGreenThatStands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, child, headline, check, metric, log, cause, logged string
	}{
		{
			"fail", `while read -r l; do s=${l#*'"seq":'}; echo "{\"seq\":${s%%[,\}]*},\"error\":\"tax service: 503\"}"; done`, "handlers fail: ", "handlers-fail",
			`queuepump_handlers_failing_tasks{workload="test"} `, "a task failed", "tax service: 503", `error="tax service: 503"`,
		},
		{"hang", "read -r l; exec sleep 3600", "handlers have not returned since ", "handlers-stuck", `queuepump_handlers_overdue{workload="test"} `, "handlers have not returned", "not returned", " since="},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.name == "hang" {
				proof.Only(t) // a handler is overdue after a minute
			}
			w := distributed(t, 400)
			writeText(t, w.path("worker"), c.child+"\n")
			p := start(t, "processor", "run", "--config", w.config, "--exec", "sh "+w.path("worker"), "--children", "4", "--grace", "1s")
			address := p.admin()
			metric := func() bool {
				_, body := ask(t, address, "/metrics")
				_, value, found := strings.Cut(body, c.metric)
				return found && !strings.HasPrefix(value, "0\n")
			}
			for deadline := time.Now().Add(2 * time.Minute); !metric(); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(deadline) || p.ended() {
					t.Fatal("the metric does not say it")
				}
			}
			const holds = "0 tasks/s; what holds it back: "
			first := ""
			p.until("status says it first", func() bool { // within a beat
				first, _, _ = strings.Cut(w.prints("distributor", "status"), "\n")
				return strings.HasPrefix(first, holds+c.headline)
			})
			if !strings.Contains(first, "(task ") || !strings.Contains(first, c.cause) {
				t.Errorf("no cause or no task: %s", first)
			}
			if other, _, _ := strings.Cut(w.prints("processor", "status"), "\n"); !strings.HasPrefix(other, holds+c.headline) {
				t.Errorf("processor status: %s", other)
			}
			var status struct {
				Headline struct{ Text, Tone string }
			}
			if err := json.Unmarshal([]byte(w.prints("distributor", "status", "--json")), &status); err != nil || status.Headline.Tone != "bad" || !strings.Contains(status.Headline.Text, c.headline) {
				t.Errorf("%+v, %v", status, err)
			}
			report := w.prints("processor", "doctor")
			if _, finding, found := strings.Cut(report, c.check); !found || !strings.Contains(finding, c.cause) || !strings.Contains(finding, " task ") {
				t.Errorf("doctor: %s", report)
			}
			top := w.top()
			top.shows(c.headline)
			top.shows(c.cause)
			top.shows("(task") // it breaks the line there
			page := watchPage(t, "http://"+address+"/page/")
			defer page.leave()
			p.until("the page says it", func() bool {
				return page.has(c.headline) && page.has(`"tone":"bad"`) && page.has(c.cause) && page.has("(task ")
			})
			p.says(c.log)
			for _, word := range []string{" run=", " segment=", " n=", " attempt=", c.logged} {
				_, line, _ := strings.Cut(p.log.String(), c.log)
				if line, _, _ = strings.Cut(line, "\n"); !strings.Contains(line, word) {
					t.Errorf("the log has no %q: %s", word, tail(p.log.String()))
				}
			}
			p.kill()
		})
	}
}
