package processtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

var adminAddress = regexp.MustCompile(`msg="admin port".* address=(\S+)`)

// admin is where the process's admin port is, from its log.
func (p *process) admin() string {
	p.t.Helper()
	p.says(`msg="admin port"`)
	m := adminAddress.FindStringSubmatch(p.log.String())
	if m == nil {
		p.t.Fatalf("%s does not say where its admin port is", p.name)
	}
	return m[1]
}

// ask gets a page of an admin port; status 0 means that no answer comes.
func ask(t *testing.T, address, page string) (status int, body string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address + page)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, ""
	}
	return answer.StatusCode, string(text)
}

// TestAProcessSaysHowItDoes: ready when it holds its share, not while it drains,
// and the port is there until the end.
func TestAProcessSaysHowItDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 2)
	w.fill(20, "--key", "city", "--admin", "off")
	mark, release, worker := w.path("mark"), w.path("release"), w.path("worker.sh")
	writeText(t, worker, `
while read -r task; do
  echo "$task" >>"$1"
  until test -e "$2"; do sleep 0.1; done
  seq=${task#*:}
  echo "{\"seq\":${seq%%,*},\"ok\":true}"
done
`)
	// It drains until it was asked.
	work := "sh " + worker + " " + mark + " " + release
	p := start(t, "processor", "run", "--config", w.config, "--exec", work, "--children", "1", "--grace", "1h")
	address := p.admin()
	status, body := ask(t, address, "/healthz")
	proof.Same(t, status, 200, "/healthz", body)
	p.until("it is ready", func() bool { status, _ := ask(t, address, "/readyz"); return status == 200 })
	p.until("its child has a task", func() bool { return exists(mark) })
	_, metrics := ask(t, address, "/metrics")
	for _, want := range []string{
		`queuepump_ready{workload="test"} 1`, `queuepump_segments_missing{workload="test"} 0`, `queuepump_rank{workload="test"} 0`,
		`queuepump_requests_total{account="account1",operation="get",workload="test"}`, "queuepump_build_info{role=\"processor\"", "go_goroutines ",
	} {
		has(t, metrics, want, "/metrics")
	}
	var st struct {
		Phase   string
		Cluster struct{ Held, Segments int }
	}
	if _, body := ask(t, address, "/state"); json.Unmarshal([]byte(body), &st) != nil || st.Phase != "working" || st.Cluster.Held != st.Cluster.Segments || st.Cluster.Held == 0 {
		t.Errorf("/state: %s", body)
	}
	// The accounts' keys stand in the configuration.
	secrets := regexp.MustCompile(`AccountKey=([^;\s]+)`).FindAllStringSubmatch(w.text(w.config), -1)
	if len(secrets) != 2 {
		t.Fatalf("%d keys in the configuration", len(secrets))
	}
	for _, page := range []string{"/metrics", "/state", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"} {
		_, body := ask(t, address, page)
		for _, s := range secrets {
			if strings.Contains(body, s[1]) {
				t.Errorf("%s holds a key", page)
			}
		}
	}

	p.signal(syscall.SIGTERM)
	p.until("it says that it drains", func() bool {
		status, body := ask(t, address, "/readyz")
		return status == 503 && strings.Contains(body, "it is stopping")
	})
	writeText(t, release, "")
	p.succeeds()
	if status, _ := ask(t, address, "/healthz"); status != 0 {
		t.Errorf("the port of a process that has ended answers %d", status)
	}
}

// TestAPortThatIsTakenIsAnError if it was asked for.
func TestAPortThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1)
	p := start(t, "processor", "run", "--config", w.config, "--discard")
	address := p.admin()
	for flag, want := range map[string]int{address: 1, "9090": 2} {
		q := start(t, "processor", "run", "--config", w.config, "--discard", "--admin", flag)
		if code := q.wait(); code != want || !strings.Contains(q.log.String(), flag) {
			t.Errorf("--admin %s: exit status %d: %s", flag, code, q.log.String())
		}
	}
	stop(p)
}

// gateRounds is how often a gate is opened at most until as many processes were told as are to be:
// one that does not take the hint within half a second is left to find out by itself, as any may on
// a busy machine.
const gateRounds = 20

// TestAGateHoldsProcessorsUntilItIsReleased: those that wait are told, one that
// comes later finds it open.
func TestAGateHoldsProcessorsUntilItIsReleased(t *testing.T) {
	const n = 200
	w := newWorld(t, 2, 2)
	w.fill(n, "--key", "city", "--pack", "5")
	var all []*process
	var outs []string
	processor := func() *process {
		outs = append(outs, w.path(fmt.Sprintf("done%d.jsonl", len(outs))))
		p := start(t, "processor", "run", "--config", w.config, "--out", outs[len(outs)-1], "--gate", "go", "--until-idle", "4s", "--json")
		all = append(all, p)
		return p
	}
	for round, told := 1, 0; told < 3; round++ {
		if round > gateRounds {
			t.Fatalf("%d of three were told, and never more", told)
		}
		if round > 1 {
			for _, p := range all {
				p.succeeds()
			}
			start(t, "distributor", "gate", "close", "go", "--config", w.config).succeeds()
		}
		for range 3 {
			waitsAtGate(processor())
		}
		if count := len(readDone(t, outs...)); round == 1 && count != 0 {
			t.Errorf("%d tasks were handled before the gate was released", count)
		}
		release := start(t, "distributor", "gate", "open", "go", "--config", w.config, "--json")
		release.succeeds()
		var change struct{ Waiting, Nudged int }
		release.summary(&change)
		proof.Same(t, change.Waiting, 3, "waited")
		told = change.Nudged
		t.Logf("round %d: %d were told", round, told)
	}
	processor() // late
	var handled int64
	for _, p := range all {
		p.succeeds()
		p.says("the gate is open")
		var s struct{ Handled int64 }
		p.summary(&s)
		handled += s.Handled
	}
	duplicates := requireEachOnceNamed(t, readDone(t, outs...), n)
	proof.Same(t, handled, int64(n+duplicates), "tasks, as the summaries say")
}

// waitsAtGate waits until a process waits at the gate "go" and says so.
func waitsAtGate(p *process) {
	p.t.Helper()
	p.says("waiting at the gate")
	address := p.admin()
	p.until("it says why it is not ready", func() bool {
		status, body := ask(p.t, address, "/readyz")
		return status == 503 && strings.Contains(body, `it waits at gate \"go\"`)
	})
}

// TestWhatAKilledProcessorBeganIsFreeAfterTheInterval, and not before (origins
// B4); other tasks of its key are skipped until then.
func TestWhatAKilledProcessorBeganIsFreeAfterTheInterval(t *testing.T) {
	proof.Only(t)
	t.Parallel()
	const interval = 25 * time.Second
	w := newWorld(t, 1, 1)
	distribute := func(tasks string) {
		writeText(t, w.path("tasks.jsonl"), tasks)
		start(t, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city", "--pack", "1").succeeds()
	}
	distribute(`{"city":"Oslo","n":1}` + "\n" + `{"city":"Bern","n":2}` + "\n")
	mark, out := w.path("mark"), w.path("done.jsonl")
	limited := []string{"run", "--config", w.config, "--min-interval", interval.String(), "--visibility", "6s", "--beat", "500ms", "--lease", "4s"}
	began := time.Now() // before the first claim
	victim := start(t, "processor", append(limited, "--exec", hangingChild(mark), "--children", "4")...)
	victim.until("two cities are begun", func() bool { return exists(mark) && strings.Count(w.text(mark), "\n") == 2 })
	victim.kill()
	distribute(`{"city":"Oslo","n":3}` + "\n")

	next := start(t, "processor", append(limited, "--out", out, "--json")...)
	address := next.admin()
	next.until("both cities are done, and the other task is skipped", func() bool {
		done := map[string]bool{}
		for _, d := range doneSoFar(t, out) {
			done[d.Key] = true
		}
		if len(done) > 0 && time.Since(began) < interval {
			t.Fatalf("taken over after %v", time.Since(began))
		}
		var st struct{ Done struct{ Skipped int64 } }
		_, body := ask(t, address, "/state")
		return len(done) == 2 && json.Unmarshal([]byte(body), &st) == nil && st.Done.Skipped > 0
	})
	stop(next)
	var s struct{ Handled, Skipped, Failed, Quarantined int64 }
	next.summary(&s)
	if handled := readDone(t, out); s.Handled != 2 || len(handled) != 2 || s.Skipped != 1 || s.Failed+s.Quarantined != 0 {
		t.Errorf("%+v, %d lines", s, len(handled))
	}
	for _, d := range readDone(t, out) {
		proof.Same(t, d.Attempt, 1, d.Key, "attempt")
	}
}

// text is what a file of the world holds; nothing if it is not there yet.
func (w *world) text(path string) string {
	w.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(text)
}
