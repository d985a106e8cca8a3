package processtest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// poison asks for the full measure (make play WHAT=poison), which takes about ten minutes.
var poison = flag.Bool("poison", false, "a deadly task among 10,000 healthy ones, on own queues and on one queue with 8 owners")

// quarantined is a line of `quarantine list --json`.
type quarantined struct {
	ID, Account, Reason, Detail, Instance, Run, Problem string
	Attempts, Tasks, Matching, Generation               int
}

func (w *world) quarantined(args ...string) (all []quarantined) {
	w.t.Helper()
	p := start(w.t, "distributor", append([]string{"quarantine", "list", "--config", w.config, "--json", "--quiet"}, args...)...)
	p.succeeds()
	for line := range strings.Lines(p.out.String()) {
		var q quarantined
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}
		all = append(all, q)
	}
	return all
}

// TestWhatIsInQuarantineIsSeenRedrivenAndDropped by the commands alone.
func TestWhatIsInQuarantineIsSeenRedrivenAndDropped(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"at-least-once", "once"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3, 2)
			appendText(t, w.config, "delivery: "+mode+"\n")
			tasks := w.path("tasks.jsonl")
			writeTasks(t, tasks, 80) // ten of each city
			run := w.distribute(tasks, 4).Run
			fixed := w.path("fixed")
			// Oslo fails until somebody mends it, Lima is rejected.
			work := fmt.Sprintf(`sh -c 'case "$QUEUEPUMP_TASK_KEY" in *Oslo*) test -e %s;; *Lima*) echo no such city >&2; exit 65;; esac'`, fixed)
			process := func() {
				start(t, "processor", "run", "--config", w.config, "--exec-each", work, "--children", "4", "--max-attempts", "2",
					"--retry-base", "100ms", "--retry-max", "1s", "--until-idle", "3s", "--quiet").succeeds()
			}
			process()
			sum := func(qs []quarantined) (n int) {
				for _, q := range qs {
					n += q.Matching
				}
				return n
			}
			proof.Same(t, sum(w.quarantined()), 20, "tasks in quarantine")
			failed := w.quarantined("--cause", "attempts", "--run", run)
			if sum(failed) != 10 || failed[0].Attempts != 2 || failed[0].Instance == "" || failed[0].Problem != "" {
				t.Errorf("%+v", failed)
			}
			show := start(t, "distributor", "quarantine", "show", "--config", w.config, "--quiet", "--cause", "rejected", "--tasks", "1")
			show.succeeds()
			if text := show.out.String(); !strings.Contains(text, "no such city") || !strings.Contains(text, `\"city\":\"Lima\"`) {
				t.Errorf("show:\n%s", text)
			}
			bodies := start(t, "distributor", "quarantine", "show", "--config", w.config, "--quiet", "--cause", "attempts", "--body", "--limit", "0")
			bodies.succeeds()
			proof.Same(t, strings.Count(bodies.out.String(), `"city":"Oslo"`), 10, "bodies", bodies.out.String())

			writeText(t, fixed, "")
			redriven := start(t, "distributor", "quarantine", "redrive", "--config", w.config, "--quiet", "--cause", "attempts", "--since", "1h")
			redriven.succeeds()
			has(t, redriven.out.String(), "with 10 tasks redriven", "redrive")
			process()
			if left := w.quarantined(); sum(left) != 10 || left[0].Reason != "rejected" {
				t.Errorf("after the redrive: %+v", left)
			}
			dropped := start(t, "distributor", "quarantine", "drop", "--config", w.config, "--quiet", "--yes")
			dropped.succeeds()
			has(t, dropped.out.String(), "with 10 tasks dropped: rejected 10", "drop")
			process()
			proof.Same(t, len(w.quarantined()), 0, "after the drop")
			if mode == "once" {
				waited := start(t, "distributor", "runs", "wait", run, "--config", w.config, "--quiet")
				waited.succeeds()
			}
		})
	}
}

// TestAnInterruptedListingPutsBackWhatItHadTaken: what a listing had taken is there again at once
// when it is interrupted.
func TestAnInterruptedListingPutsBackWhatItHadTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2)
	tasks := w.path("tasks.txt")
	writeText(t, tasks, strings.Repeat("x\n", 300))
	start(t, "distributor", "run", "--config", w.config, "--input", tasks, "--pack", "1", "--quiet").succeeds()
	start(t, "processor", "run", "--config", w.config, "--exec-each", "sh -c 'exit 65'", "--until-idle", "2s", "--quiet").succeeds()
	slow := w.sim.Inject(azsim.Rule{Operations: []string{"GetMessages"}, Fault: azsim.DelayBefore, Delay: time.Second})
	p := start(t, "distributor", "quarantine", "list", "--config", w.config, "--quiet")
	p.until("it has taken some", func() bool { return slow.Hits() > 4 })
	p.signal(syscall.SIGINT)
	proof.Same(t, p.wait(), 130, "exit status")
	slow.Remove()
	proof.Same(t, len(w.quarantined()), 300, "are there")
}

// TestATaskThatFailsWhenItIsTooOldGoesIntoQuarantine, however many attempts it has left.
func TestATaskThatFailsWhenItIsTooOldGoesIntoQuarantine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1)
	tasks := w.path("tasks.txt")
	writeText(t, tasks, "x\n")
	start(t, "distributor", "run", "--config", w.config, "--input", tasks, "--quiet").succeeds()
	start(t, "processor", "run", "--config", w.config, "--exec-each", "sh -c 'exit 1'", "--max-attempts", "-1", "--max-age", "1s",
		"--retry-base", "2s", "--retry-max", "2s", "--until-idle", "4s", "--quiet").succeeds()
	if got := w.quarantined(); len(got) != 1 || got[0].Reason != "age" {
		t.Errorf("in quarantine: %+v", got)
	}
	p := start(t, "processor", "run", "--config", w.config, "--discard", "--max-age", "0s")
	if code := p.wait(); code != 2 || !strings.Contains(p.log.String(), "--max-age: 0s is out of range") {
		t.Errorf("exit status %d: %s", code, p.log.String())
	}
}

// TestTheTaskThatKillsItsProcessEndsInQuarantine, alone, with its cause: P4.2, window 18
// by real processes, which are started again whenever they die.
func TestTheTaskThatKillsItsProcessEndsInQuarantine(t *testing.T) {
	t.Parallel()
	type crowd struct {
		name               string
		queues, processors int
	}
	crowds, healthy := []crowd{{"own queues", 2, 2}}, 2000
	if *poison {
		crowds, healthy = append(crowds, crowd{"one queue with 8 owners", 1, 8}), 10_000
	}
	for _, c := range crowds {
		for _, mode := range []string{"at-least-once", "once"} {
			t.Run(c.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 1, c.queues)
				appendText(t, w.config, "delivery: "+mode+"\n")
				tasks := w.path("tasks.jsonl")
				writeTasks(t, tasks, healthy)
				appendText(t, tasks, `{"city":"Pompeii","id":"deadly"}`+"\n")
				s := start(t, "distributor", "run", "--config", w.config, "--input", tasks, "--id", "id", "--pack", "20", "--json", "--quiet")
				s.succeeds()
				m := w.mortals(c.processors)
				began := time.Now()
				m.until(15*time.Minute, "everything is done and one task in quarantine", func() bool {
					left, poison := w.inQueues()
					return left == 0 && poison > 0 && len(m.done()) == healthy
				})
				deaths := m.end()
				got := w.quarantined()
				if len(got) != 1 || got[0].Reason != "ends-process" || got[0].Tasks != 1 || got[0].Attempts != 8 {
					t.Fatalf("in quarantine: %+v", got)
				}
				show := start(t, "distributor", "quarantine", "show", "--config", w.config, "--quiet", "--body")
				show.succeeds()
				proof.Same(t, show.out.String(), `{"city":"Pompeii","id":"deadly"}`, "condemned")
				t.Logf("%d healthy tasks, %s, %s: %d processes died in %v until the guilty task was in quarantine", healthy, c.name, mode, deaths, time.Since(began).Round(time.Second))
			})
		}
	}
}

// inQueues counts what is in the queues of the accounts, and of it what is in quarantine.
func (w *world) inQueues() (left, poison int) {
	w.t.Helper()
	for _, name := range w.names {
		account := w.account(name)
		queues, err := account.Queues(w.t.Context(), "test-")
		must(w.t, err)
		for _, q := range queues {
			n, err := account.Queue(q).Count(w.t.Context())
			must(w.t, err)
			if q == "test-poison" {
				poison += int(n)
			} else {
				left += int(n)
			}
		}
	}
	return left, poison
}

// mortals are processors that are started again when they die.
type mortals struct {
	w      *world
	dir    string
	stop   chan struct{}
	all    sync.WaitGroup
	mu     sync.Mutex // guards deaths
	deaths int
}

// mortals starts n processors, each with a child that kills it at the deadly task.
func (w *world) mortals(n int) *mortals {
	m := &mortals{w: w, dir: w.t.TempDir(), stop: make(chan struct{})}
	child := filepath.Join(m.dir, "child.sh")
	writeText(w.t, child, `while read -r line; do
	case "$line" in *deadly*) kill -9 $PPID; exit 1;; esac
	seq=${line#*\"seq\":}
	echo "${line#*\"id\":}" >>"$1"
	echo "{\"seq\":${seq%%,*},\"ok\":true}"
done
`)
	for i := range n {
		m.all.Go(func() { m.live(i, child) })
	}
	return m
}

// live runs one processor after the other until the end.
func (m *mortals) live(i int, child string) {
	for life := 0; ; life++ {
		select {
		case <-m.stop:
			return
		default:
		}
		done := filepath.Join(m.dir, fmt.Sprintf("done-%d-%d", i, life))
		p := start(m.w.t, "processor", "run", "--config", m.w.config, "--exec", fmt.Sprintf("sh %s %s", child, done), "--children", "2",
			"--visibility", "4s", "--beat", "500ms", "--lease", "2s", "--quiet")
		select {
		case <-p.done:
			m.mu.Lock()
			m.deaths++
			m.mu.Unlock()
		case <-m.stop:
			p.signal(syscall.SIGTERM)
			<-p.done
			return
		}
	}
}

// done is what was done, by what is written of each task.
func (m *mortals) done() map[string]bool {
	all := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(m.dir, "done-*"))
	must(m.w.t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(m.w.t, err)
		for line := range strings.Lines(string(text)) {
			if id, _, ok := strings.Cut(line, ","); ok {
				all[id] = true
			}
		}
	}
	return all
}

func (m *mortals) until(within time.Duration, what string, holds func() bool) {
	m.w.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(500 * time.Millisecond) {
		if time.Since(began) > within {
			m.mu.Lock()
			deaths := m.deaths
			m.mu.Unlock()
			m.end()
			left, poison := m.w.inQueues()
			m.w.t.Fatalf("not within %v: %s; %d deaths, %d done, %d in quarantine, %d messages left", within, what, deaths, len(m.done()), poison, left)
		}
	}
}

func (m *mortals) end() (deaths int) {
	close(m.stop)
	m.all.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deaths
}
