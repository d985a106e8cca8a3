package processtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// fails runs a binary that must end with a status and say something, and never a key.
func fails(t *testing.T, code int, want []string, name string, args ...string) {
	t.Helper()
	p := start(t, name, args...)
	got := p.wait()
	proof.Same(t, got, code, "exit status")
	for _, w := range want {
		has(t, p.log.String(), w)
	}
	if code == 2 && strings.Contains(p.log.String(), "admin port") {
		t.Error("it was begun before the mistake was found")
	}
	if strings.Contains(p.log.String()+p.out.String(), "AccountKey=") {
		t.Error("it shows an account's key")
	}
}

func TestMistakesOfUseEndWithStatus2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "pump.yaml")
	writeText(t, config, "workload: test\naccounts:\n  - connectionString: DefaultEndpointsProtocol=https;AccountName=a1b;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net\n    quues: 3\n")
	bad := filepath.Join(dir, "bad.yaml")
	writeText(t, bad, "workload: Test Nr. 1\naccounts:\n  - connectionString: DefaultEndpointsProtocol=https;AccountName=a1b;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net\n")
	for _, tt := range []struct {
		name string
		want string
		args []string
	}{
		{"no such flag", "unknown flag: --onec", []string{"distributor", "run", "--onec"}},
		{"no such command", "no command `processor rum`; did you mean run?", []string{"processor", "rum"}},
		{"two modes", "--once and --every exclude each other", []string{"distributor", "run", "--once", "--every", "1s", "--input", "x.jsonl"}},
		{"input that cannot be read again", "standard input, which can be read only once", []string{"distributor", "run", "--every", "1s", "--input", "-"}},
		{"nothing to read", "nothing says what to read", []string{"distributor", "run", "--config", config}},
		{"nothing to do", "nothing says what to do with a task", []string{"processor", "run", "--config", config}},
		{"no time to be idle", "--until-idle: 0s is out of range", []string{"processor", "run", "--config", config, "--discard", "--until-idle", "0s"}},
		{"no configuration", "there is no such file", []string{"processor", "run", "--config", filepath.Join(dir, "none.yaml"), "--discard"}},
		{"a wrong field", config + ":4: accounts[0].quues: is not a field; did you mean queues?", []string{"processor", "run", "--config", config, "--discard"}},
		{"a wrong value, found by the engine", bad + `:1: workload: "Test Nr. 1" is not a workload name; use`, []string{"distributor", "run", "--config", bad, "--input", "x.jsonl"}},
		{"a wrong flag, found by the engine", "--visibility: 1.5s is not possible; use whole seconds", []string{"processor", "run", "--config", bad, "--discard", "--visibility", "1500ms"}},
		{"a gate that cannot be", `--gate: "a b" is not`, []string{"processor", "run", "--config", bad, "--discard", "--gate", "a b"}},
		{"a command that does not exist", "--exec: the command cannot be run", []string{"processor", "run", "--config", config, "--exec", "no-such-command-here"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if slices.Contains([]string{"a wrong flag, found by the engine", "a gate that cannot be", "a command that does not exist"}, tt.name) {
				w := newWorld(t, 1, 1)
				tt.args[3] = w.config
			}
			fails(t, 2, []string{tt.want}, tt.args[0], tt.args[1:]...)
		})
	}
}

// TestABadLineIsNamedByFileAndLine, and dealt with as asked.
func TestABadLineIsNamedByFileAndLine(t *testing.T) {
	t.Parallel()
	tasks := `{"city":"Oslo"}` + "\n" + `{"city":"Rome"` + "\n" + `{"city":"Lima"}` + "\n"
	t.Run("fail", func(t *testing.T) {
		w := newWorld(t, 1, 1)
		writeText(t, w.path("tasks.jsonl"), tasks)
		fails(t, 1, []string{"tasks.jsonl:2"}, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city")
	})
	for policy, want := range map[string]sent{"skip": {Tasks: 2, Skipped: 1}, "quarantine": {Tasks: 2, Quarantined: 1}} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, 1, 1)
			writeText(t, w.path("tasks.jsonl"), tasks)
			d := start(t, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city", "--on-bad-line", policy, "--json")
			d.succeeds()
			var got sent
			d.summary(&got)
			if got.Tasks != want.Tasks || got.Skipped != want.Skipped || got.Quarantined != want.Quarantined {
				t.Errorf("got %+v", got)
			}
			has(t, d.log.String(), "tasks.jsonl:2", "the log does not name the line")
			out := w.path("done.jsonl")
			start(t, "processor", "run", "--config", w.config, "--out", out, "--until-idle", "1s").succeeds()
			proof.Same(t, len(readDone(t, out)), 2, "handled")
		})
	}
}

func TestATaskTooLargeForAMessageIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1)
	// Random enough not to shrink below 64 KiB: the digits of consecutive cubes.
	var b strings.Builder
	for i := uint64(1); b.Len() < 300<<10; i++ {
		fmt.Fprint(&b, i*i*i*2654435761)
	}
	writeText(t, w.path("tasks.jsonl"), `{"a":1}`+"\n"+`{"a":"`+b.String()+`"}`+"\n")
	fails(t, 1, []string{"tasks.jsonl:2"}, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"))
}

func TestAnAccountThatRefusesTheKeyIsNamedAndGoneRound(t *testing.T) {
	t.Parallel()
	const n = 40
	w := newWorld(t, 2, 1)
	writeTasks(t, w.path("tasks.jsonl"), n)
	wrong := func(connection string) string {
		return strings.Replace(connection, "AccountKey=", "AccountKey=AAAA", 1)
	}
	connection := wrong(w.server.ConnectionString("account2"))
	config := writeConfig(t, t.TempDir(), 1, w.server.ConnectionString("account1"), connection)
	args := []string{"run", "--config", config, "--input", w.path("tasks.jsonl")}
	// The workload may be in the account that cannot be looked into.
	unsure := start(t, "distributor", args...)
	proof.Same(t, unsure.wait(), 2, "exit status")
	for _, said := range []string{"account2", "403", "control: account1"} {
		unsure.says(said)
	}
	appendText(t, config, "control: account1\n")
	// It is gone round: each task is sent, and done by who cannot read that account either.
	d := start(t, "distributor", append(args, "--key", "city", "--pack", "1", "--json")...)
	d.says("account2")
	d.says("403")
	d.succeeds()
	var s sent
	d.summary(&s)
	proof.Same(t, s.Tasks, n, "sent", s, "tasks")
	out := w.path("done.jsonl")
	p := start(t, "processor", "run", "--config", config, "--out", out)
	p.until("all are done", func() bool { return len(readWhole(out)) >= n })
	stop(p)
	requireEachOnceNamed(t, readDone(t, out), n)
	// With no account left that takes the key nothing is begun.
	fails(t, 1, []string{"account1", "403"}, "distributor", "run", "--config",
		writeConfig(t, t.TempDir(), 1, wrong(w.server.ConnectionString("account1"))), "--input", w.path("tasks.jsonl"))
}

// TestAnAccountOfFourThatTakesNothingIsGoneRound by `run --once`, which ends with each task sent, and
// by an elected distributor, which does its next distributions.
func TestAnAccountOfFourThatTakesNothingIsGoneRound(t *testing.T) {
	t.Parallel()
	const n = 400
	for name, refuse := range map[string]func(*azsim.Sim){
		"refuses the key": func(s *azsim.Sim) {
			s.Inject(azsim.Rule{Account: "account2", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"})
		},
		"is disabled":         func(s *azsim.Sim) { s.SetState("account2", azsim.Disabled) },
		"has lost its queues": func(s *azsim.Sim) { s.DeleteQueues("account2") },
	} {
		for _, when := range []string{"at the start", "in the middle"} {
			t.Run(name+" "+when, func(t *testing.T) {
				if name != "is disabled" || when == "at the start" {
					proof.Only(t)
				}
				t.Parallel()
				w := newWorld(t, 4, 2)
				appendText(t, w.config, "control: account1\n")
				writeTasks(t, w.path("tasks.jsonl"), n)
				writeTasks(t, w.path("first.jsonl"), 1)
				start(t, "distributor", "run", "--config", w.config, "--input", w.path("first.jsonl")).succeeds() // makes the workload
				if when == "at the start" {
					refuse(w.sim)
				}
				args := []string{"run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "id", "--pack", "1", "--max-rate", "100", "--json"}
				elected := start(t, "distributor", append(args, "--every", "1s")...)
				once := start(t, "distributor", append(args, "--once")...)
				once.until("it sends", func() bool { return w.sim.Stats().Count("account1", "PutMessage") > 20 })
				if when == "in the middle" {
					refuse(w.sim)
				}
				once.says("account2")
				once.succeeds()
				var s sent
				once.summary(&s)
				proof.Same(t, s.Tasks, n, "sent", s)
				elected.until("it has ended three distributions", func() bool { return strings.Count(elected.out.String(), `"tasks":400,`) >= 3 })
			})
		}
	}
}

// TestAnAccountThatLosesItsRightsDoesNotStopTheOthers: a 403 in mid-run is
// said aloud, and costs no task an attempt.
func TestAnAccountThatLosesItsRightsDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	const n = 200
	w := newWorld(t, 2, 1)
	w.fill(n, "--pack", "5")
	refused := w.sim.Inject(azsim.Rule{Account: "account2", Operations: []string{"GetMessages"}, Fault: azsim.Answer, Status: 403, Code: "AuthorizationFailure"})
	out := w.path("done.jsonl")
	p := start(t, "processor", "run", "--config", w.config, "--out", out, "--visibility", "3s")
	p.says("account2")
	p.until("the other account's tasks are done", func() bool { return len(readWhole(out)) > 0 })
	refused.Remove()
	p.until("all are done", func() bool { return len(readWhole(out)) >= n })
	stop(p)
	handled := readDone(t, out)
	requireEachOnceNamed(t, handled, n)
	firstTries(t, handled)
}

// readWhole gives the whole lines of a file that is being written.
func readWhole(path string) []string {
	text, _ := os.ReadFile(path)
	lines := strings.SplitAfter(string(text), "\n")
	return lines[:len(lines)-1]
}

func TestAnAccountThatDoesNotAnswerIsWaitedForAndNamed(t *testing.T) {
	t.Parallel()
	const n = 50
	w := newWorld(t, 2, 1)
	writeTasks(t, w.path("tasks.jsonl"), n)
	w.sim.Blackout("account2", true)
	d := start(t, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--pack", "1")
	d.says("account2")
	w.sim.Blackout("account2", false)
	d.succeeds()
	requireEachOnceNamed(t, w.rest("1s"), n)
}

// TestAQueueThatIsGoneIsNamed, and does not stop the others.
func TestAQueueThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 1)
	w.fill(10, "--pack", "1")
	w.sim.DeleteQueues("account2", "test-00")
	out := w.path("done.jsonl")
	p := start(t, "processor", "run", "--config", w.config, "--out", out)
	p.says("account2/test-00")
	p.until("the other queue's tasks are done", func() bool { return len(readWhole(out)) > 0 })
	stop(p)
}

// TestAFullDiskSettlesNothing: a limit on the size of a file stands for the
// disk. The processor stops with status 1, the file holds whole lines only, and
// every task that is not in it is still in the queues.
func TestAFullDiskSettlesNothing(t *testing.T) {
	t.Parallel()
	// All 64 places of the pool may write at once: 64 x 20 lines of some 150 bytes
	// are 190 KiB, which must fit, and all 900 KiB must not, whether the shell
	// counts in blocks of 512 bytes or of 1,024.
	const n = 6000
	w := newWorld(t, 2, 2)
	w.fill(n, "--key", "city", "--pack", "20")
	full := w.path("full.jsonl")
	script := fmt.Sprintf(`ulimit -f 600; exec "$0" run --config %s --out %s --out-patience 1s --grace 10m`, w.config, full)
	p := startCommand(t, nil, "processor on a full disk", "sh", "-c", script, filepath.Join(bin, "processor"))
	proof.Same(t, p.wait(), 1, "exit status")
	has(t, p.log.String(), "full.jsonl cannot be written: file too large", "it does not say why")
	before := readDone(t, full)
	if len(before) == 0 || len(before) >= n {
		t.Errorf("%d lines were written", len(before))
	}
	after := w.rest("2s")
	requireEachOnceNamed(t, append(before, after...), n)
	firstTries(t, after)
}

// TestABadChildCostsARetryAndNeverATask: one that dies, hangs or prints garbage.
func TestABadChildCostsARetryAndNeverATask(t *testing.T) {
	t.Parallel()
	const n = 60
	for does, script := range map[string]string{
		"dies":    `exit 3`,
		"hangs":   `sleep 600`,
		"garbage": `echo hello`,
		"endless": `yes | tr -d "\n"`,
	} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, 2)
			w.fill(n, "--key", "city", "--pack", "10")
			// The first child is bad at its first task, which it surely gets; all others are good.
			worker := w.path("worker.sh")
			writeText(t, worker, `
if mkdir "$0.first" 2>/dev/null; then bad=1; else bad=0; fi
i=0
while read -r task; do
  i=$((i+1))
  if [ $i -eq $bad ]; then `+script+`; fi
  echo "{\"seq\":$i,\"ok\":true,\"result\":$i}"
done
`)
			out := w.path("done.jsonl")
			p := start(t, "processor", "run", "--config", w.config, "--exec", "sh "+worker, "--children", "2", "--task-timeout", "2s", "--retry-base", "100ms",
				"--out", out, "--until-idle", "6s", "--json")
			p.succeeds()
			var s struct{ Handled, Failed, Quarantined int64 }
			p.summary(&s)
			if s.Handled != n || s.Failed < 1 || s.Quarantined != 0 {
				t.Errorf("got %+v", s)
			}
			seen := map[string]int{}
			for _, d := range readDone(t, out) {
				seen[d.identity()]++
			}
			proof.Same(t, len(seen), n, "tasks are done")
		})
	}
}

// TestAnUnusableCommandStopsTheProcessorAndCostsNoTask: a worker that cannot
// even be loaded must not quarantine the whole workload.
func TestAnUnusableCommandStopsTheProcessorAndCostsNoTask(t *testing.T) {
	t.Parallel()
	const n = 100
	w := newWorld(t, 1, 1)
	w.fill(n)
	fails(t, 1, []string{"the command does not work", "No such module"}, "processor", "run", "--config", w.config,
		"--exec", `sh -c 'echo "No such module" >&2; exit 1'`, "--children", "4", "--grace", "10m")
	fails(t, 1, []string{"the command does not work", "exit status 127"}, "processor", "run", "--config", w.config,
		"--exec-each", `sh -c no-such-command-here`, "--children", "1", "--grace", "10m")
	requireEachOnceNamed(t, w.rest("4s"), n)
}

// TestAKilledProcessorLeavesNoChildBehind, even one that hangs.
func TestAKilledProcessorLeavesNoChildBehind(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tie a child to its parent")
	}
	for _, flag := range []string{"--exec", "--exec-each"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, 1)
			w.fill(1)
			pids := w.path("pid")
			p := start(t, "processor", "run", "--config", w.config, flag, fmt.Sprintf(`sh -c 'echo $$ >%s; exec sleep 600'`, pids))
			p.until("the child runs", func() bool { return len(readWhole(pids)) > 0 })
			pid, err := strconv.Atoi(strings.TrimSpace(readWhole(pids)[0]))
			must(t, err)
			p.kill()
			for deadline := time.Now().Add(patience); alive(pid); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the child %d lives on", pid)
				}
			}
		})
	}
}

// alive reports whether a process runs; one that is dead and not waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestAnEndpointThatIsDownCostsNoAttempt: tasks wait for it, are put back when
// the processor stops, and what is rejected later is named at the end.
func TestAnEndpointThatIsDownCostsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1)
	w.fill(20)
	p := start(t, "processor", "run", "--config", w.config, "--http", "http://no-such-host.invalid/", "--grace", "10m")
	p.says("the endpoint cannot be reached")
	stop(p)
	p = start(t, "processor", "run", "--config", w.config, "--exec-each", `sh -c 'echo "attempt $QUEUEPUMP_TASK_ATTEMPT" >&2; exit 65'`, "--until-idle", "3s")
	p.succeeds()
	last := p.log.String()
	last = last[strings.LastIndex(strings.TrimSpace(last), "\n")+1:]
	for _, want := range []string{"tasks=20", "account1/test-poison", "rejected 20", "attempt 1"} {
		has(t, last, want, "the last line")
	}
}
