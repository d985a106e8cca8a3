package handlers

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// batched makes a handler of children that take batches, and tasks of bodies.
func batched(t *testing.T, mode string, size int, out *File, bodies ...string) (
	*Exec, pump.BatchHandler, []*pump.Task,
) {
	t.Helper()
	o := command(mode)
	o.Batch = size
	e := newExec(t, o)
	var tasks []*pump.Task
	for i, body := range bodies {
		tasks = append(tasks, task(body))
		tasks[i].N = uint64(i)
	}
	return e, Recorded(NewNoted(e), out).(pump.BatchHandler), tasks
}

func TestABatchHasTheOutcomeOfEachTask(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	out, err := OpenFile(path, FileOptions{})
	must(t, err)
	_, h, tasks := batched(t, "batch", 3, out, "a", "odd", "b", "c", "d")
	for i, err := range h.HandleBatch(t.Context(), tasks) {
		proof.Same(t, (err != nil), (i == 1), "task", i, err)
	}
	must(t, out.Close())
	text, err := os.ReadFile(path)
	must(t, err)
	for i, want := range []string{"a", "", "b", "c", "d"} {
		n := strings.Count(string(text), fmt.Sprintf(`"n":%d,"key":"Oslo","id":"a1","result":{"seq"`, i))
		if want == "" && n > 0 || want != "" && (n != 1 || !strings.Contains(string(text), `"body":"`+want+`"}`)) {
			t.Errorf("task %d has %d results in\n%s", i, n, text)
		}
	}
}

// Only those tasks fail whose outcome is missing, and the child is replaced if it is out of step.
func TestOneTaskOfABatchDoesNotFailTheOthers(t *testing.T) {
	for does, c := range map[string]struct {
		want     string
		replaced bool
	}{
		"odd":       {`"retry" is not a duration such as "30s"`, false},
		"die":       {`the child ended (exit status 7) and said "cannot go on"`, true},
		"garbage":   {`the child printed "hello", whose seq is none of its tasks'`, true},
		"wrong seq": {"whose seq is none of its tasks'", true},
		"endless":   {"more than 1024 KiB", true},
		"twice":     {"", true},
	} {
		e, h, tasks := batched(t, "batch", 4, nil, "pid", does, "b", "c")
		var log proof.Buffer
		e.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		must(t, h.HandleBatch(t.Context(), tasks[:1])[0])
		was := (<-e.idle).child
		e.idle <- &slot{child: was}
		if does == "wrong seq" { // the last one, as the seq of any other is another task's
			tasks[1], tasks[3] = tasks[3], tasks[1]
		}
		for i, err := range h.HandleBatch(t.Context(), tasks) {
			is := string(tasks[i].Body) == does
			if is && c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || !is && err != nil {
				t.Errorf("%s: task %d: %v", does, i, err)
			}
			if is && ends(err) != (does == "die") {
				t.Errorf("%s: the processor takes %v for a child's end: %v", does, err, ends(err))
			}
		}
		s := <-e.idle
		e.idle <- s
		said := strings.Contains(log.String(), "a child is replaced")
		if (s.child != was) != c.replaced || said != c.replaced {
			t.Errorf("%s: the child was replaced: %v; and it is said: %v", does, s.child != was, said)
		}
	}
}

// A child may print while it reads, more than pipes hold.
func TestABatchLargerThanAPipeDoesNotStick(t *testing.T) {
	large := strings.Repeat("x", 200<<10)
	_, h, tasks := batched(t, "echo", 10, nil, large, large, large, large, large)
	for i, err := range h.HandleBatch(t.Context(), tasks) {
		proof.Is(t, err, nil, "task", i)
	}
}

// A child for which every task is too much costs a few of a batch an attempt alone, and the rest one
// together.
func TestABatchWhoseTasksAllEndTheChildIsGivenUpSoon(t *testing.T) {
	e, h, tasks := batched(t, "batch", 6, nil, "die", "die", "die", "die", "die", "die")
	e.health.works()
	alone := 0
	for _, err := range h.HandleBatch(t.Context(), tasks) {
		if err == nil {
			t.Error("a task is done")
		}
		if ends(err) {
			alone++
		}
	}
	proof.Same(t, alone, mostAlone, "tasks were tried alone")
}

// A command that answers a part of each batch works: its children are started again at once, and it is
// not taken for one that never answers.
func TestACommandThatAnswersAPartOfItsBatchesWorks(t *testing.T) {
	e, _, tasks := batched(t, "batch", 4, nil, "a", "b", "garbage", "c")
	for range unusableDeaths + 1 {
		for i, a := range e.give(t.Context(), tasks) {
			proof.Same(t, a.said, i == 3, "task", i, "has an outcome") // the last one is the first
		}
		s := <-e.idle
		proof.Same(t, s.deaths, 1, "children in a row that answered nothing")
		e.idle <- s
	}
	if !e.health.hasWorked() {
		t.Error("the command counts as one that never worked")
	}
}
