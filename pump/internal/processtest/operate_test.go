package processtest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/status"
)

// operate runs a distributor command that must succeed, and decodes what it prints.
func (w *world) operate(into any, args ...string) {
	w.t.Helper()
	p := start(w.t, "distributor", append(args, "--config", w.config, "--json")...)
	p.succeeds()
	var printed any
	p.summary(&printed)
	requirePrinted(w.t, "distributor "+strings.Join(args, " "), printed)
	p.summary(into)
}

// eventually asks again and again until something holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// sends distributes tasks without keys, so that they go to all segments.
func (w *world) sends(config, tasks string) (s sent) {
	w.t.Helper()
	p := start(w.t, "distributor", "run", "--config", config, "--input", tasks, "--id", "id", "--pack", "2", "--json", "--quiet")
	p.succeeds()
	p.summary(&s)
	return s
}

// handled waits until all n tasks of a run are in the files, each under one identity.
func (w *world) handled(run string, n int, files ...string) {
	w.t.Helper()
	var of []done
	w.eventually(fmt.Sprintf("the %d tasks of run %s are handled", n, run), func() bool {
		of = nil
		for _, d := range doneSoFar(w.t, files...) {
			if d.Run == run {
				of = append(of, d)
			}
		}
		return len(of) >= n
	})
	requireEachOnceNamed(w.t, of, n)
}

// doneSoFar reads the whole lines of files that are being written.
func doneSoFar(t *testing.T, files ...string) (all []done) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		must(t, err)
		for line := range strings.Lines(string(text)) {
			var d done
			if !strings.HasSuffix(line, "\n") {
				break
			}
			if err := json.Unmarshal([]byte(line), &d); err != nil {
				t.Fatalf("%s holds %q: %v", file, line, err)
			}
			all = append(all, d)
		}
	}
	return all
}

// TestAccountsAreAddedAndTakenAwayWhileEverythingRuns, by the commands: an added one
// takes its share, a drained one gets nothing and is read, and goes when it is empty.
func TestAccountsAreAddedAndTakenAwayWhileEverythingRuns(t *testing.T) {
	proof.Only(t)
	t.Parallel()
	const n = 2000
	w := newWorld(t, 3, 4)
	two := writeConfig(t, t.TempDir(), 4, w.server.ConnectionString("account1"), w.server.ConnectionString("account2"))
	tasks := w.path("tasks.jsonl")
	writeTasks(t, tasks, n)

	// The workload begins with two accounts; the processors know three already.
	first := w.sends(two, tasks)
	outs := []string{w.path("a.jsonl"), w.path("b.jsonl")}
	var processors []*process
	for _, out := range outs {
		processors = append(processors, start(t, "processor", "run", "--config", w.config, "--out", out))
	}
	w.handled(first.Run, n, outs...)
	w.eventually("both processors are members", func() bool {
		var s status.Status
		w.operate(&s, "status")
		return len(s.Instances) == 2
	})

	old := start(t, "processor", "run", "--config", two, "--out", w.path("c.jsonl"))
	w.eventually("a third, which does not know account3, is a member", func() bool {
		var s status.Status
		w.operate(&s, "status")
		return len(s.Instances) == 3
	})
	refused := start(t, "distributor", "accounts", "add", "account3", "--config", w.config)
	if code := refused.wait(); code != 1 || !strings.Contains(refused.log.String(), "1 of 3 live processes do not have it") {
		t.Errorf("exit status %d: %s", code, refused.log.String())
	}
	stop(old)

	var c accounts.Change
	w.operate(&c, "accounts", "add", "account3")
	if !c.Changed || c.State != "active" || c.Moved == 0 || c.Members != 2 || c.Nudged == 0 { // a busy machine may miss a nudge
		t.Errorf("%+v", c)
	}
	outs = append(outs, w.path("c.jsonl"))
	second := w.sends(w.config, tasks)
	if puts := second.Requests["account3"]["put"]; puts < second.Envelopes/5 || puts > second.Envelopes/2 {
		t.Errorf("account3 got %d of %d messages, not its third", puts, second.Envelopes)
	}
	w.handled(second.Run, n, outs...)

	w.eventually("account2 is empty", func() bool { return w.messages("account2", "test-00", "test-01", "test-02", "test-03") == 0 })
	w.operate(&c, "accounts", "drain", "account2", "--yes")
	if !c.Changed || c.State != "draining" || c.Moved == 0 {
		t.Errorf("%+v", c)
	}
	soon := start(t, "distributor", "accounts", "remove", "account2", "--config", w.config, "--yes")
	if code := soon.wait(); code != 1 || !strings.Contains(soon.log.String(), "not been draining for long enough") {
		t.Errorf("exit status %d: %s", code, soon.log.String())
	}
	third := w.sends(w.config, tasks)
	proof.Same(t, third.Requests["account2"]["put"], 0, "the draining account got … messages")
	w.handled(third.Run, n, outs...)
	w.operate(&c, "accounts", "remove", "account2", "--yes", "--wait")
	if !c.Changed || c.State != "unused" || c.Moved != 0 {
		t.Errorf("%+v", c)
	}
	fourth := w.sends(w.config, tasks)
	w.handled(fourth.Run, n, outs...)
	stop(processors...)
}

// TestTheStatusAgreesWithWhatWasDone, whose numbers are known.
func TestTheStatusAgreesWithWhatWasDone(t *testing.T) {
	t.Parallel()
	const n = 3000
	w := newWorld(t, 2, 2)
	tasks := w.path("tasks.jsonl")
	writeTasks(t, tasks, n)
	run := w.sends(w.config, tasks)
	var s status.Status
	w.operate(&s, "status")
	messages := int64(0)
	for _, a := range s.Accounts {
		messages += a.Messages
	}
	if messages != run.Envelopes || len(s.Instances) != 0 || len(s.Unowned) != s.Segments {
		t.Errorf("before anybody works there are %d messages of %d, instances %+v, %d segments without an owner", messages, run.Envelopes, s.Instances, len(s.Unowned))
	}
	outs := []string{w.path("a.jsonl"), w.path("b.jsonl")}
	var processors []*process
	for _, out := range outs {
		processors = append(processors, start(t, "processor", "run", "--config", w.config, "--out", out))
	}
	w.handled(run.Run, n, outs...)
	deliveries := uint64(0)
	w.eventually("the status shows it", func() bool {
		deliveries = uint64(len(doneSoFar(t, outs...)))
		s = status.Status{} // what is null leaves the old value
		w.operate(&s, "status")
		tasks, segments := uint64(0), 0
		for _, i := range s.Instances {
			tasks += i.Tasks
			segments += i.Segments
		}
		return len(s.Instances) == 2 && s.Settled && s.Runs[0].Handled == deliveries && tasks == deliveries && segments == s.Segments && atRest(&s)
	})
	if len(s.Runs) != 1 || s.Runs[0].ID != run.Run || s.Runs[0].State != "sealed" || s.Runs[0].Mode != "once" || *s.Runs[0].Sent != n {
		t.Errorf("runs %+v", s.Runs)
	}
	for i, instance := range s.Instances {
		if instance.Rank == nil || *instance.Rank != i || instance.Role != "processor" || instance.Segments != s.Segments/2 || instance.Admin == "" || instance.Trouble != "" || instance.BeatAge > 30 {
			t.Errorf("instance %+v", instance)
		}
	}
	for _, a := range s.Accounts {
		if a.State != "active" || a.Messages != 0 || a.Dark != "" || a.Poison == nil || *a.Poison != 0 || len(a.ByQueue) != 2 {
			t.Errorf("account %+v", a)
		}
	}
	if len(s.Unowned) != 0 || len(s.Problems) != 0 {
		t.Errorf("unowned %v, problems %q", s.Unowned, s.Problems)
	}

	screen := start(t, "distributor", "status", "--config", w.config)
	screen.succeeds()
	for _, want := range []string{"settled", run.Run[:12] + "  sealed  once", "account2", s.Instances[0].Instance[:8]} {
		has(t, screen.out.String(), want, "the screen")
	}
	if strings.Contains(screen.out.String(), w.sim.Key("account1")) {
		t.Error("the screen shows a key")
	}

	// Watched, it is shown until a signal comes, which is the way to stop.
	watch := start(t, "distributor", "status", "--config", w.config, "--watch", "200ms", "--json")
	watch.until("it is shown three times", func() bool { return strings.Count(watch.out.String(), "\n") >= 3 })
	watch.signal(syscall.SIGINT)
	watch.succeeds()

	w.sim.Blackout("account2", true)
	w.eventually("the status shows which account is dark", func() bool {
		s = status.Status{}
		w.operate(&s, "status")
		return s.Accounts[1].Dark != "" && s.Accounts[0].Dark == "" && len(s.Problems) > 0
	})
	w.sim.Blackout("account2", false)
	stop(processors...)
}

// atRest reports whether the messages of what was handled are deleted, which comes after it was
// counted, and nothing that a busy machine let go wrong for a while is told any more.
func atRest(s *status.Status) bool {
	return !slices.ContainsFunc(s.Accounts, func(a status.Account) bool { return a.Messages != 0 || a.Dark != "" }) &&
		!slices.ContainsFunc(s.Instances, func(i status.Instance) bool { return i.Trouble != "" }) && len(s.Problems) == 0
}

// stop stops processes one after the other; each must end well.
func stop(all ...*process) {
	for _, p := range all {
		p.t.Helper()
		p.signal(syscall.SIGTERM)
		p.succeeds()
	}
}

// TestProcessorsStartTogetherWhenTheirGateIsReleased, and those that come later at once.
func TestProcessorsStartTogetherWhenTheirGateIsReleased(t *testing.T) {
	t.Parallel()
	const n = 200
	w := newWorld(t, 1, 2)
	tasks := w.path("tasks.jsonl")
	writeTasks(t, tasks, n)
	run := w.sends(w.config, tasks)
	outs := []string{w.path("a.jsonl"), w.path("b.jsonl"), w.path("c.jsonl")}
	var early []*process
	var list struct{ Gates []gates.Status }
	var c gates.Change
	for round := 1; round == 1 || c.Nudged == 0; round++ { // a busy machine may miss a nudge, or both
		if round > gateRounds {
			t.Fatal("none of two was ever told")
		}
		if round > 1 {
			for _, p := range early {
				p.says("the gate is open")
			}
			stop(early...)
			w.operate(&c, "gate", "close", "morning")
		}
		early = nil
		for _, out := range outs[:2] {
			early = append(early, start(t, "processor", "run", "--config", w.config, "--gate", "morning", "--out", out))
		}
		w.eventually("both wait", func() bool {
			w.operate(&list, "gate", "list")
			return len(list.Gates) == 1 && list.Gates[0].Waiting == 2
		})
		if got := doneSoFar(t, outs...); round == 1 && len(got) != 0 {
			t.Fatalf("%d tasks were handled before the gate was released", len(got))
		}
		c = gates.Change{}
		w.operate(&c, "gate", "open", "morning")
		if !c.Open || c.Waiting != 2 {
			t.Errorf("%+v", c)
		}
	}
	w.handled(run.Run, n, outs...)
	stop(early...)
	again := w.sends(w.config, tasks)
	start(t, "processor", "run", "--config", w.config, "--gate", "morning", "--out", outs[2], "--until-idle", "2s").succeeds()
	w.handled(again.Run, n, outs...)

	w.operate(&c, "gate", "close", "morning")
	late := start(t, "processor", "run", "--config", w.config, "--gate", "morning", "--out", w.path("d.jsonl"))
	w.eventually("it waits at the gate that is held again", func() bool {
		w.operate(&list, "gate", "list")
		return list.Gates[0].Waiting == 1 && !list.Gates[0].Open
	})
	refused := start(t, "distributor", "gate", "remove", "morning", "--config", w.config)
	if code := refused.wait(); code != 1 || !strings.Contains(refused.log.String(), "processes wait at it: 1") {
		t.Errorf("a gate that a process waits at: exit status %d", code)
	}
	late.signal(syscall.SIGTERM)
	if code := late.wait(); code != 0 && code != 143 {
		t.Errorf("exit status %d", code)
	}
}

// TestNumbersAreTakenOnceByAnyNumberOfProcesses is origins T1 on the command line.
func TestNumbersAreTakenOnceByAnyNumberOfProcesses(t *testing.T) {
	t.Parallel()
	const processes, each = 6, 500
	w := newWorld(t, 1, 1)
	writeTasks(t, w.path("tasks.jsonl"), 1)
	w.sends(w.config, w.path("tasks.jsonl"))
	var all []*process
	for range processes {
		all = append(all, start(t, "distributor", "ids", "next", "orders", "--count", strconv.Itoa(each), "--config", w.config))
	}
	seen := map[uint64]bool{}
	for _, p := range all {
		p.succeeds()
		var first, last uint64
		if _, err := fmt.Sscan(p.out.String(), &first, &last); err != nil || last-first != each-1 {
			t.Fatalf("%q: %v", p.out.String(), err)
		}
		for id := first; id <= last; id++ {
			if seen[id] || id == 0 || id > processes*each {
				t.Fatalf("number %d is taken twice, or not one of the first", id)
			}
			seen[id] = true
		}
	}
}
