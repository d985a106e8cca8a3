package processtest

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
	"github.com/queuepump/queuepump/pump/workloads"
)

// TestTheCommandsWorkOnSimulatedAccounts runs the first commands of the README and looks into what
// they print and write; TestTheDocumentsCommands types all of them as they stand.
func TestTheCommandsWorkOnSimulatedAccounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "pump.yaml")
	serve := start(t, "loadtest", "serve", "--accounts", "4", "--queues", "2", "--write-config", config)
	serve.until("the configuration is written", func() bool {
		_, err := os.Stat(config)
		return err == nil
	})
	distributeAndProcess(t, nil, dir, config, []string{"simulated1", "simulated2", "simulated3", "simulated4"})
	stop(serve)
}

// TestTheCommandsWorkOnAzurite: the same with three accounts of Azurite, by
// changing only the configuration.
func TestTheCommandsWorkOnAzurite(t *testing.T) {
	t.Parallel()
	names := []string{"azuriteone", "azuritetwo", "azuritethree"}
	azurite := storagetest.StartAzurite(t, names...)
	dir := t.TempDir()
	var env, connections []string
	for i, name := range names {
		env = append(env, fmt.Sprintf("ACCOUNT_%d=%s", i, azurite.ConnectionString(name)))
		connections = append(connections, fmt.Sprintf("${ACCOUNT_%d}", i))
	}
	distributeAndProcess(t, env, dir, writeConfig(t, dir, 2, connections...), names)
}

func distributeAndProcess(t *testing.T, env []string, dir, config string, accounts []string) {
	t.Helper()
	const n = 5000
	tasks, out := filepath.Join(dir, "tasks.jsonl"), filepath.Join(dir, "done.jsonl")
	writeTasks(t, tasks, n)

	d := startEnv(t, env, "distributor", "run", "--config", config, "--once", "--input", tasks, "--key", "city", "--id", "id", "--pack", "50", "--json")
	d.succeeds()
	var s sent
	d.summary(&s)
	if s.Tasks != n || s.Envelopes < n/50 || s.BytesIn == 0 || s.BytesSent == 0 || s.Seconds <= 0 || len(s.Run) != 32 {
		t.Errorf("the distributor's summary: %+v", s)
	}
	puts := int64(0)
	for _, name := range accounts {
		puts += s.Requests[name]["put"]
	}
	if puts < s.Envelopes {
		t.Errorf("%d messages with %d puts: %v", s.Envelopes, puts, s.Requests)
	}

	show := startEnv(t, env, "distributor", "workload", "show", "--config", config, "--json")
	show.succeeds()
	var shown workloads.Info
	show.summary(&shown)
	if shown.Control != accounts[0] || shown.Queues != 2*len(accounts) || shown.Runs["sealed"] != 1 || len(shown.Rivals)+len(shown.Unseen) != 0 {
		t.Errorf("workload show: %+v", shown)
	}

	p := startEnv(t, env, "processor", "run", "--config", config, "--out", out, "--until-idle", "2s", "--json")
	p.succeeds()
	var done struct{ Handled, Envelopes, Failed int64 }
	p.summary(&done)
	handled := readDone(t, out)
	duplicates := requireEachOnceNamed(t, handled, n)
	if done.Handled != int64(n+duplicates) || done.Failed != 0 {
		t.Errorf("the processor's summary: %s", p.out.String())
	}
	first := handled[0]
	if want := fmt.Sprintf(`{"city":%q,"id":%q,`, first.Key, first.ID); first.Run != s.Run || first.Attempt != 1 || !strings.HasPrefix(string(first.Body), want) {
		t.Errorf("a line of %s: %+v", out, first)
	}
	segments := map[string]uint32{}
	for _, d := range handled {
		if seg, ok := segments[d.Key]; ok && seg != d.Segment {
			t.Errorf("key %s is in segments %d and %d", d.Key, seg, d.Segment)
		}
		segments[d.Key] = d.Segment
	}
}

func TestEveryKindOfInputBecomesTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 2)
	writeText(t, w.path("rows.csv"), "city,n\nOslo,1\n\"Rome, Italy\",2\n")
	writeText(t, w.path("words.txt"), "alpha\n\nbeta\n")
	f, err := os.Create(w.path("packed.jsonl.gz"))
	must(t, err)
	z := gzip.NewWriter(f)
	fmt.Fprintln(z, `{"packed":true}`)
	must(t, z.Close())
	f.Close()
	must(t, os.MkdirAll(w.path("tree/sub"), 0o755))
	writeText(t, w.path("tree/a"), "x")
	writeText(t, w.path("tree/sub/b"), "y")
	writeText(t, w.path("list"), "/some/path\n")
	text, err := os.ReadFile(w.config)
	must(t, err)
	config := w.path("with-secret.yaml")
	writeText(t, config, strings.Replace(string(text), "workload: test", "workload: ${SECRET}", 1))

	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"csv":        {[]string{"--input", w.path("rows.csv"), "--key", "city"}, []string{`{"city":"Oslo","n":"1"}`, `{"city":"Rome, Italy","n":"2"}`}},
		"lines":      {[]string{"--input", w.path("words.txt")}, []string{`"alpha"`, `"beta"`}},
		"gzip":       {[]string{"--input", w.path("*.jsonl.gz")}, []string{`{"packed":true}`}},
		"tree":       {[]string{"--files", w.path("tree")}, []string{fmt.Sprintf("%q", w.path("tree/a")), fmt.Sprintf("%q", w.path("tree/sub/b"))}},
		"list":       {[]string{"--list", w.path("list")}, []string{`"/some/path"`}},
		"command":    {[]string{"--exec", `printf '{"a":1}\n{"a":2}\n'`, "--key", "a"}, []string{`{"a":1}`, `{"a":2}`}},
		"no secrets": {[]string{"--exec", `sh -c 'echo "[\"$SECRET\"]"'`}, []string{`[""]`}},
	} {
		t.Run(name, func(t *testing.T) {
			env := []string{"SECRET=test"}
			startEnv(t, env, "distributor", append([]string{"run", "--config", config}, tt.args...)...).succeeds()
			out := filepath.Join(t.TempDir(), "done.jsonl")
			startEnv(t, env, "processor", "run", "--config", config, "--out", out, "--until-idle", "1s").succeeds()
			got := map[string]bool{}
			for _, d := range readDone(t, out) {
				got[string(d.Body)] = true
			}
			for _, body := range tt.want {
				if !got[body] {
					t.Errorf("%s is missing", body)
				}
			}
			proof.Same(t, len(got), len(tt.want), got, tt.want)
		})
	}
}

// TestTasksArePostedToAnEndpoint, with what authorises it from the environment.
func TestTasksArePostedToAnEndpoint(t *testing.T) {
	t.Parallel()
	const n = 300
	w := newWorld(t, 1, 2)
	writeTasks(t, w.path("tasks.jsonl"), n)
	var busy atomic.Bool // for the first request only
	endpoint := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("Authorization") != "Bearer hunter2":
			rw.WriteHeader(http.StatusUnprocessableEntity)
		case !busy.Swap(true):
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprintf(rw, `{"echo":%s}`, body)
		}
	}))
	t.Cleanup(endpoint.Close)
	start(t, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city").succeeds()
	out := w.path("done.jsonl")
	p := startEnv(t, []string{"TOKEN=hunter2"}, "processor", "run", "--config", w.config, "--http", endpoint.URL, "--http-header", "Authorization: Bearer ${TOKEN}",
		"--out", out, "--until-idle", "6s", "--json")
	p.succeeds()
	seen := map[string]bool{}
	for _, d := range readDone(t, out) {
		seen[string(d.Result)] = true
	}
	var s struct{ Handled, Retried, NotNow, Quarantined int64 }
	p.summary(&s)
	if len(seen) != n || s.Retried+s.NotNow < 1 || s.Quarantined != 0 {
		t.Errorf("%d results, %+v", len(seen), s)
	}
}

// TestThePumpIsTried is `make run` on a small tree.
func TestThePumpIsTried(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 300 {
		writeText(t, filepath.Join(dir, fmt.Sprintf("file %d'", i)), fmt.Sprint(i))
	}
	out := t.TempDir()
	demo := start(t, "loadtest", "demo", "--files", dir, "--out", out, "--distributor", filepath.Join(bin, "distributor"), "--processor", filepath.Join(bin, "processor"))
	demo.succeeds()
	text, err := os.ReadFile(filepath.Join(out, "run.json"))
	must(t, err)
	for _, want := range []string{`"tasks": 300`, `"handled": 300`, `"lost": 0`, `"mismatched": 0`, `"accounts": 4`, `"queues": 2`} {
		has(t, string(text), want, "run.json")
	}
}

// TestATrialShowsWhyAProcessFailed, with its last words.
func TestATrialShowsWhyAProcessFailed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "tasks.jsonl"), "{\"a\":1}\nnot JSON\n")
	demo := start(t, "loadtest", "demo", "--input", filepath.Join(dir, "tasks.jsonl"), "--out", t.TempDir(),
		"--distributor", filepath.Join(bin, "distributor"), "--processor", filepath.Join(bin, "processor"))
	if code := demo.wait(); code != 1 || !strings.Contains(demo.log.String(), "tasks.jsonl:2") {
		t.Errorf("exit status %d: %s", code, demo.log.String())
	}
}
