package processtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// world is simulated accounts on TCP, in the test's own process, where they
// can be told to fail, and a configuration that reaches them.
type world struct {
	t      *testing.T
	dir    string
	sim    *azsim.Sim
	server *azsim.Server
	names  []string
	config string // path
}

// newWorld serves accounts without limits: what is tested here are processes.
func newWorld(t *testing.T, accounts, queues int) *world {
	t.Helper()
	return newWorldOf(t, azsim.Config{Limits: azsim.NoLimits()}, accounts, queues)
}

func newWorldOf(t *testing.T, c azsim.Config, accounts, queues int) *world {
	t.Helper()
	return newNamedWorld(t, c, "account", accounts, queues)
}

// fill has a distributor send n tasks of tasks.jsonl.
func (w *world) fill(n int, args ...string) {
	w.t.Helper()
	writeTasks(w.t, w.path("tasks.jsonl"), n)
	w.distributor(append([]string{"run", "--input", w.path("tasks.jsonl")}, args...)...).succeeds()
}

// rest has a processor do what is there until it is idle, and gives what it did.
func (w *world) rest(idle string) []done {
	w.t.Helper()
	out := w.path("done.jsonl")
	start(w.t, "processor", "run", "--config", w.config, "--out", out, "--until-idle", idle).succeeds()
	return readDone(w.t, out)
}

// newNamedWorld names its accounts by what and a number.
func newNamedWorld(t *testing.T, c azsim.Config, what string, accounts, queues int) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	for i := range accounts {
		name := fmt.Sprint(what, i+1)
		w.names = append(w.names, name)
		c.Accounts = append(c.Accounts, azsim.Account{Name: name})
	}
	w.sim = azsim.New(c)
	var err error
	w.server, err = w.sim.Listen("", "")
	must(t, err)
	t.Cleanup(func() { _ = w.server.Close() })
	w.config = writeConfig(t, w.dir, queues, w.connections()...)
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func writeConfig(t *testing.T, dir string, queues int, connections ...string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("workload: test\naccounts:\n")
	for _, c := range connections {
		fmt.Fprintf(&b, "  - connectionString: %s\n    queues: %d\n", c, queues)
	}
	path := filepath.Join(dir, "pump.yaml")
	writeText(t, path, b.String())
	return path
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func appendText(t *testing.T, path, text string) {
	t.Helper()
	writeText(t, path, readText(t, path)+text)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// writeTasks writes n JSON lines of cities and numbers, each of them different.
func writeTasks(t *testing.T, path string, n int) {
	t.Helper()
	writeTasksOf(t, path, n, 0)
}

// writeTasksOf is writeTasks with lines that much longer.
func writeTasksOf(t *testing.T, path string, n, padding int) {
	t.Helper()
	cities := []string{"Oslo", "Rome", "Lima", "Cairo", "Quito", "Delhi", "Accra", "Malmö"}
	var b strings.Builder
	for i := range n {
		pad := ""
		if padding > 0 {
			pad = `,"pad":"` + strings.Repeat("x", padding) + `"`
		}
		fmt.Fprintf(&b, `{"city":%q,"id":"t%d","n":%d%s}`+"\n", cities[i%len(cities)], i, i, pad)
	}
	writeText(t, path, b.String())
}

// done is a line of --out.
type done struct {
	Run     string
	Segment uint32
	N       uint64
	Key     string
	ID      string
	Body    json.RawMessage
	Result  json.RawMessage
	Attempt int
}

func (d done) identity() string { return fmt.Sprintf("%s/%d/%d", d.Run, d.Segment, d.N) }

// readDone reads the lines of files that processors wrote; every one must be whole.
func readDone(t *testing.T, paths ...string) []done {
	t.Helper()
	var out []done
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		for line := range strings.Lines(string(text)) {
			var d done
			if err := json.Unmarshal([]byte(line), &d); err != nil || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%s holds the line %q: %v", path, line, err)
			}
			out = append(out, d)
		}
	}
	return out
}

// has reports words that are missing in a text; of says of what.
func has(t *testing.T, text, words string, of ...any) {
	t.Helper()
	if !strings.Contains(text, words) {
		t.Errorf("%v: %q is not in\n%s", of, words, text)
	}
}

// firstTries fails the test for each task that took more than one attempt.
func firstTries(t *testing.T, handled []done) {
	t.Helper()
	for _, d := range handled {
		proof.Same(t, d.Attempt, 1, "attempts of task", d.identity())
	}
}

// requireEachOnceNamed checks that what was handled is exactly the n tasks of
// writeTasks, and that each has one identity. It gives the number of
// deliveries beyond the first of each.
func requireEachOnceNamed(t *testing.T, handled []done, n int) (duplicates int) {
	t.Helper()
	byBody, byIdentity := map[string]string{}, map[string]string{}
	for _, d := range handled {
		id, body := d.identity(), string(d.Body)
		if other, ok := byBody[body]; ok && other != id {
			t.Errorf("task %s has two identities: %s and %s", body, other, id)
		}
		if other, ok := byIdentity[id]; ok && other != body {
			t.Errorf("identity %s has two tasks: %s and %s", id, other, body)
		}
		byBody[body], byIdentity[id] = id, body
	}
	proof.Same(t, len(byBody), n, "different tasks were handled")
	return len(handled) - len(byBody)
}
