package processtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/status"
)

// unread is an output whose reader has gone away.
func unread(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { w.Close() })
	r.Close()
	return w
}

// members are the processes that the cluster knows, those that died included.
func (w *world) members() int {
	w.t.Helper()
	var s status.Status
	w.operate(&s, "status")
	return len(s.Instances)
}

// TestAProcessWhoseSummaryNobodyReadsLeavesTheCluster and says that it failed to
// print it; `| head -1` must not look like a crash to the others.
func TestAProcessWhoseSummaryNobodyReadsLeavesTheCluster(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"once":      {"distributor", "run", "--input", "tasks.jsonl"},
		"json":      {"distributor", "run", "--input", "tasks.jsonl", "--json"},
		"again":     {"distributor", "run", "--input", "tasks.jsonl", "--every", "1h"},
		"processor": {"processor", "run", "--discard", "--until-idle", "100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, 2)
			tasks := w.path("tasks.jsonl")
			writeTasks(t, tasks, 20)
			w.sends(w.config, tasks)
			cmd := exec.Command(filepath.Join(bin, args[0]), append(args[1:], "--config", w.config, "--quiet", "--admin", "off")...)
			cmd.Dir = w.dir
			cmd.Stdout = unread(t)
			p := startAs(t, args[0], cmd)
			if code := p.wait(); code != 1 || !strings.Contains(p.log.String(), "broken pipe") {
				t.Errorf("exit status %d: %s", code, p.log.String())
			}
			proof.Same(t, w.members(), 0, "members are left")
		})
	}
}

// TestAProcessWhoseLogNobodyReadsStopsInGoodOrder, as it does when it is told to.
func TestAProcessWhoseLogNobodyReadsStopsInGoodOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2)
	tasks := w.path("tasks.jsonl")
	writeTasks(t, tasks, 20)
	w.sends(w.config, tasks)
	cmd := exec.Command(filepath.Join(bin, "processor"), "run", "--config", w.config, "--discard", "--progress-every", "100ms")
	cmd.Stderr = unread(t)
	p := startAs(t, "processor", cmd)
	p.succeeds()
	if n := w.members(); n != 0 || !strings.Contains(p.out.String(), "handled") {
		t.Errorf("%d members are left; it printed %q", n, p.out.String())
	}
}
