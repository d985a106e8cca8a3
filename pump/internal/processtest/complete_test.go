package processtest

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// newOnceWorld is newWorld with a workload in which the ledger records what is done.
func newOnceWorld(t *testing.T, accounts, queues int) *world {
	t.Helper()
	w := newWorld(t, accounts, queues)
	writeText(t, w.config, strings.Replace(readText(t, w.config), "workload: test\n", "workload: test\ndelivery: once\n", 1))
	return w
}

// distributor starts a distributor with the world's configuration.
func (w *world) distributor(args ...string) *process {
	w.t.Helper()
	return start(w.t, "distributor", append(args, "--config", w.config)...)
}

// waited is how a run ended.
type waited struct {
	sent
	Completion pump.Completion
}

// loseFrom takes messages out of a queue for good, and gives how many tasks were in them.
func (w *world) loseFrom(account, queue string, messages int) (tasks int) {
	w.t.Helper()
	q := w.account(account).Queue(queue)
	ms, err := q.Get(w.t.Context(), messages, time.Minute)
	if err != nil || len(ms) != messages {
		w.t.Fatalf("%d messages, %v", len(ms), err)
	}
	for _, m := range ms {
		h, err := codec.ReadHeader(m.Text)
		if err == nil {
			err = q.Delete(w.t.Context(), m.Receipt)
		}
		must(w.t, err)
		tasks += h.Tasks.Len()
	}
	return tasks
}

func TestRunWaitEndsWhenEveryTaskIsDone(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, 2, 2)
	const n = 3000
	writeTasks(t, w.path("tasks.jsonl"), n)
	p := start(t, "processor", "run", "--config", w.config, "--out", w.path("done.jsonl"))
	d := w.distributor("run", "--input", w.path("tasks.jsonl"), "--key", "id", "--wait", "--json")
	d.succeeds()
	var s waited
	d.summary(&s)
	if c := s.Completion; s.Tasks != n || c.State != pump.RunDone || c.Tasks != n || c.Done != n || c.Quarantined != 0 || !c.Closed {
		t.Errorf("%s", d.out.String())
	}
	proof.Same(t, requireEachOnceNamed(t, readDone(t, w.path("done.jsonl")), n), 0, "tasks were handled twice")
	// Who comes later finds it done as well.
	again := w.distributor("runs", "wait", s.Run)
	again.succeeds()
	has(t, again.out.String(), "done: 3,000 tasks", "it printed")
	unknown := w.distributor("runs", "wait", strings.Repeat("ab", 16))
	if code := unknown.wait(); code != 1 || unknown.out.String() != "" || !strings.Contains(unknown.log.String(), "there is no such run") {
		t.Errorf("for a run that there is not: exit status %d, %s", code, unknown.out.String())
	}
	stop(p)
}

func TestRunWaitSaysByItsStatusThatTasksAreInQuarantine(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, 1, 2)
	writeText(t, w.path("tasks.txt"), "good\nbad\nfine\n")
	p := start(t, "processor", "run", "--config", w.config, "--exec-each", `sh -c 'grep -qv bad || exit 65'`)
	d := w.distributor("run", "--input", w.path("tasks.txt"), "--wait")
	proof.Same(t, d.wait(), 3, "exit status")
	if !strings.Contains(d.out.String(), "settled: 2 tasks done, 1 in quarantine") || !strings.Contains(d.log.String(), "1 task is in quarantine") {
		t.Errorf("it printed\n%s\nand said\n%s", d.out.String(), d.log.String())
	}
	stop(p)
}

// A message that is lost makes the run stuck; a repair puts its tasks again, and then it is done.
func TestAStuckRunIsRepaired(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, 1, 2)
	const n = 2000
	writeTasks(t, w.path("tasks.jsonl"), n)
	source := []string{"--input", w.path("tasks.jsonl"), "--key", "id"}

	d := w.distributor(append([]string{"run", "--json", "--pack", "20"}, source...)...)
	d.succeeds()
	var s sent
	d.summary(&s)
	lost := w.loseFrom("account1", "test-01", 3)

	p := start(t, "processor", "run", "--config", w.config, "--out", w.path("done.jsonl"))
	waits := w.distributor("runs", "wait", s.Run, "--stuck-after", "2s", "--json")
	if code := waits.wait(); code != 4 {
		t.Fatalf("exit status %d", code)
	}
	var c pump.Completion
	waits.summary(&c)
	missing := 0
	for _, l := range c.Lacking {
		missing += int(l.Tasks)
	}
	if c.State != pump.RunStuck || c.Done != uint64(n-lost) || missing != lost || !strings.Contains(waits.log.String(), "distributor runs repair "+s.Run) {
		t.Errorf("%d tasks were lost: %s", lost, waits.out.String())
	}

	dry := w.distributor(append([]string{"runs", "repair", s.Run, "--dry-run", "--json"}, source...)...)
	dry.succeeds()
	var r distributor.RepairSummary
	if dry.summary(&r); r.Missing != uint64(lost) || r.Put != 0 {
		t.Errorf("%s", dry.out.String())
	}
	other := w.distributor("runs", "repair", s.Run, "--input", w.path("tasks.jsonl"), "--key", "city")
	if code := other.wait(); code != 1 || !strings.Contains(other.log.String(), "--key") {
		t.Errorf("with another key: exit status %d", code)
	}
	mend := w.distributor(append([]string{"runs", "repair", s.Run, "--json"}, source...)...)
	mend.succeeds()
	if mend.summary(&r); r.Put != int64(lost) {
		t.Errorf("%s", mend.out.String())
	}
	w.distributor("runs", "wait", s.Run).succeeds()
	proof.Same(t, requireEachOnceNamed(t, readDone(t, w.path("done.jsonl")), n), 0,
		"tasks were handled twice")
	stop(p)
}

// A signal ends the waiting and not the run.
func TestASignalEndsTheWaitingAndNotTheRun(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, 1, 2)
	writeTasks(t, w.path("tasks.jsonl"), 100)
	d := w.distributor("run", "--input", w.path("tasks.jsonl"), "--key", "id", "--wait")
	d.says("waiting until every task is done")
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 143 || !strings.Contains(d.log.String(), "distributor runs wait ") || !strings.Contains(d.out.String(), "not over yet: 0 tasks done, 0 in quarantine, 100 to go") {
		t.Errorf("exit status %d", code)
	}
	start(t, "processor", "run", "--config", w.config, "--discard", "--until-idle", "1s").succeeds()
	_, rest, _ := strings.Cut(d.log.String(), "distributor runs wait ")
	w.distributor("runs", "wait", rest[:32]).succeeds()
}

func TestWhatOnlyTheLedgerKnowsIsRefusedWithoutOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2)
	writeTasks(t, w.path("tasks.jsonl"), 10)
	w.distributor("run", "--input", w.path("tasks.jsonl")).succeeds()
	before := w.messages("account1", "test-00", "test-01")
	run := strings.Repeat("ab", 16)
	for _, args := range [][]string{
		{"run", "--input", w.path("tasks.jsonl"), "--wait"},
		{"runs", "wait", run},
		{"runs", "repair", run, "--input", w.path("tasks.jsonl")},
	} {
		d := w.distributor(args...)
		if code := d.wait(); code != 2 || !strings.Contains(d.log.String(), "needs delivery mode once") {
			t.Errorf("%v: exit status %d", args, code)
		}
	}
	if after := w.messages("account1", "test-00", "test-01"); after != before || before == 0 {
		t.Errorf("there were %d messages, and are %d", before, after)
	}
}

// messages counts those in queues of an account.
func (w *world) messages(account string, queues ...string) (n int64) {
	w.t.Helper()
	for _, name := range queues {
		c, err := w.account(account).Queue(name).Count(w.t.Context())
		must(w.t, err)
		n += c
	}
	return n
}

func (w *world) account(name string) storage.Account {
	w.t.Helper()
	a, err := azure.Open(azure.Options{ConnectionString: w.server.ConnectionString(name)})
	must(w.t, err)
	return a
}
