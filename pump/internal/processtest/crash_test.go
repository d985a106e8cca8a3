package processtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// hangingChild takes one task, leaves a mark, and waits until its parent is gone.
func hangingChild(mark string) string {
	return fmt.Sprintf(`sh -c 'read -r task; echo "$task" >>%s; cat >/dev/null'`, mark)
}

func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Size() > 0
}

// TestWhatAKilledProcessorHadIsDoneByAnother: kill -9 in mid-work, and after
// its visibility ends everything is handled.
func TestWhatAKilledProcessorHadIsDoneByAnother(t *testing.T) {
	t.Parallel()
	const n = 400
	w := newWorld(t, 2, 2)
	w.fill(n, "--key", "city", "--pack", "10")

	mark := w.path("mark")
	victim := start(t, "processor", "run", "--config", w.config, "--exec", hangingChild(mark), "--children", "4", "--visibility", "3s")
	victim.until("its children have tasks", func() bool { return exists(mark) })
	victim.kill()

	requireEachOnceNamed(t, w.rest("6s"), n)
}

// slowPuts makes a distribution take long enough to be killed in the middle.
func (w *world) slowPuts(d time.Duration) *azsim.Injection {
	return w.sim.Inject(azsim.Rule{Operations: []string{"PutMessage"}, Fault: azsim.DelayBefore, Delay: d})
}

// distributors are two that share a workload, one of them leading.
type distributors struct {
	leader, other *process
}

// readAhead is more than a distributor reads ahead of what it sends: lines of a
// 250th of it make a checkpoint stand in the middle of the source, not at its end.
const readAhead = 512 << 10

// leaderRate bounds how many tasks a second the first leader reads, so that what a test does in the
// midst of its run finds it there on a machine that has stood still for seconds, too.
const leaderRate = "500"

// startDistributors starts two on the same tasks and waits until the first leads and has sent some.
// Their lease is so long that who leads does not lose it on a machine that is busy for seconds.
func startDistributors(t *testing.T, w *world, tasks string) distributors {
	t.Helper()
	args := []string{"run", "--config", w.config, "--every", "1h", "--beat", "500ms", "--lease", "10s", "--input", tasks, "--key", "city", "--pack", "5", "--json"}
	a := start(t, "distributor", append(slices.Clone(args), "--max-rate", leaderRate)...)
	a.says("msg=leading")
	b := start(t, "distributor", args...)
	a.until("it has sent some", func() bool { return w.sim.Stats().Count("", "PutMessage") > 100 })
	return distributors{a, b}
}

// untilCheckpoint waits until the leader has saved how far it came: a
// checkpoint without a cursor and with all counters at zero has a byte for each
// segment and five more.
func (ds distributors) untilCheckpoint(t *testing.T, w *world) {
	t.Helper()
	table := w.account("account1").Table(row.TableName)
	workload, err := workload.Load(t.Context(), table, "test")
	must(t, err)
	election := election.New(table, "test", election.Options{Instance: "observer"})
	ds.leader.until("a checkpoint is saved", func() bool {
		st, err := election.Status(t.Context())
		must(t, err)
		return st.Checkpoint > workload.Map.Segments+8
	})
}

// otherFinishes waits until the other has taken over and made the distribution, and stops it.
func (ds distributors) otherFinishes(t *testing.T) (s sent) {
	t.Helper()
	ds.other.says("msg=leading")
	ds.other.until("its distribution is done", func() bool { return strings.Contains(ds.other.out.String(), "\n") })
	ds.other.summary(&s)
	stop(ds.other)
	return s
}

// TestAKilledLeadersRunIsContinuedFromItsCheckpoint: kill -9 of the leading
// distributor; another goes on, every task keeps one identity (P2.1), and the
// set of handled tasks is complete.
func TestAKilledLeadersRunIsContinuedFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	const n = 10_000
	w := newWorld(t, 2, 2)
	tasks := w.path("tasks.jsonl")
	writeTasksOf(t, tasks, n, readAhead/250)
	slow := w.slowPuts(200 * time.Millisecond)
	ds := startDistributors(t, w, tasks)
	ds.untilCheckpoint(t, w)
	ds.leader.kill()
	slow.Remove()
	s := ds.otherFinishes(t)
	if !s.Resumed || s.Tasks != n {
		t.Errorf("the other's summary: %+v", s)
	}
	if s.Envelopes >= n/5 {
		t.Errorf("the other sent %d messages: it began anew", s.Envelopes)
	}

	handled := w.rest("2s")
	requireEachOnceNamed(t, handled, n)
	for _, d := range handled {
		proof.Same(t, d.Run, s.Run, "the run of a task")
	}
}

// TestALeaderKilledBeforeItsFirstCheckpointIsContinuedFromTheStart, as the same run.
func TestALeaderKilledBeforeItsFirstCheckpointIsContinuedFromTheStart(t *testing.T) {
	t.Parallel()
	const n = 5000
	w := newWorld(t, 2, 2)
	tasks := w.path("tasks.jsonl")
	writeTasks(t, tasks, n)
	slow := w.slowPuts(20 * time.Millisecond)
	// No checkpoint is complete while what one account was sent is not acknowledged.
	stuck := w.sim.Inject(azsim.Rule{
		Account: "account2", Operations: []string{"PutMessage"}, Fault: azsim.DelayBefore, Delay: time.Hour,
	})
	ds := startDistributors(t, w, tasks)
	ds.leader.kill()
	slow.Remove()
	stuck.Remove()
	s := ds.otherFinishes(t)
	if !s.Resumed || s.Tasks != n || s.Envelopes < n/5 {
		t.Errorf("the other's summary: %+v", s)
	}
	if duplicates := requireEachOnceNamed(t, w.rest("2s"), n); duplicates < 100 {
		t.Errorf("%d duplicates: what the dead leader sent is missing", duplicates)
	}
}

// TestAChangedSourceIsRefused as P2.3 says: continued on it, tasks would
// change their identities without a sign.
func TestAChangedSourceIsRefused(t *testing.T) {
	t.Parallel()
	const n = 10_000
	w := newWorld(t, 2, 2)
	tasks := w.path("tasks.jsonl")
	writeTasksOf(t, tasks, n, readAhead/250)
	changed := w.path("changed.jsonl")
	writeText(t, changed, `{"city":"Bern","n":-1}`+"\n"+readText(t, tasks))
	slow := w.slowPuts(200 * time.Millisecond)
	ds := startDistributors(t, w, tasks)
	ds.untilCheckpoint(t, w)
	ds.leader.kill()
	// At once and whole: the other may open it as soon as the lease ends.
	must(t, os.Rename(changed, tasks))
	slow.Remove()
	ds.other.says("the source is not the one that the run was begun with")
	// The next run is a new one, of the file as it is now.
	ds.other.until("a new run is done", func() bool {
		return strings.Contains(ds.other.out.String(), fmt.Sprintf(`"tasks":%d`, n+1))
	})
	stop(ds.other)
}

// TestStoppingGivesBackWhatWasNotStarted: another processor has it at once,
// and not when the visibility ends.
func TestStoppingGivesBackWhatWasNotStarted(t *testing.T) {
	t.Parallel()
	const n = 100
	w := newWorld(t, 1, 1)
	w.fill(n, "--key", "city", "--pack", "1")
	mark := w.path("mark")
	first := start(t, "processor", "run", "--config", w.config, "--exec", hangingChild(mark), "--children", "2", "--visibility", "1h", "--grace", "200ms")
	first.until("its children have tasks", func() bool { return exists(mark) })
	stop(first)

	handled := w.rest("1s")
	requireEachOnceNamed(t, handled, n)
	firstTries(t, handled)
}

func TestASecondSignalEndsAtOnceWithItsChildren(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1)
	w.fill(10, "--key", "city")
	pids := w.path("pids")
	p := start(t, "processor", "run", "--config", w.config, "--exec-each", fmt.Sprintf(`sh -c 'echo $$ >>%s; exec sleep 600'`, pids), "--children", "1", "--grace", "10m")
	p.until("its child runs", func() bool { return exists(pids) })
	p.signal(syscall.SIGINT)
	p.says("msg=") // whatever: the log is there
	for ended, deadline := false, time.Now().Add(patience); !ended && time.Now().Before(deadline); {
		p.signal(syscall.SIGINT) // those within an instant of the first count as one with it
		select {
		case <-p.done:
			ended = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	proof.Same(t, p.wait(), 130, "exit status")
	text, err := os.ReadFile(pids)
	must(t, err)
	var pid int
	must(t, errOf(fmt.Sscan(string(text), &pid)))
	for deadline := time.Now().Add(patience); syscall.Kill(pid, 0) == nil && !zombie(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its child lives on")
		}
	}
}

// zombie: dead, but not waited for, where no process adopts orphans.
func zombie(pid int) bool {
	stat, _ := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	return strings.Contains(string(stat), ") Z ")
}

func TestAnInterruptedDistributionSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1)
	tasks := w.path("tasks.jsonl")
	const n = 200_000 // far more than wait in memory, a message each
	writeTasks(t, tasks, n)
	w.slowPuts(100 * time.Millisecond)
	d := start(t, "distributor", "run", "--config", w.config, "--input", tasks, "--key", "city", "--pack", "1", "--json", "--grace", "100ms")
	// What the service has may have no answer yet, and the grace may be over before one comes.
	address := d.admin()
	d.until("it knows that it has sent some", func() bool {
		var st struct{ Done struct{ Envelopes int64 } }
		_, text := ask(t, address, "/state")
		return decodes(text, &st) && st.Done.Envelopes > 20
	})
	d.signal(syscall.SIGTERM)
	proof.Same(t, d.wait(), 143, "exit status")
	var s sent
	d.summary(&s)
	if s.Envelopes < 20 || s.Tasks < s.Envelopes || s.Tasks >= n {
		t.Errorf("the summary of what was sent: %+v", s)
	}
	d.says("running the command again is a new run, which sends everything again")
}
