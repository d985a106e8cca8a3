package processtest

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

var (
	chaosFor   = flag.Duration("chaos.for", 40*time.Second, "for how long TestChaos kills and stops processes")
	chaosTasks = flag.Int("chaos.tasks", 10_000, "how many tasks it sends at least in that time")
	chaosOlder = flag.String("chaos.older", "", "a folder with the binaries of another version, which half of its processes are")
	chaosSeed  = flag.Uint64("chaos.seed", uint64(time.Now().UnixNano()), "what decides its blows")
)

// The times of the processes in chaos: short, so that many leases end in a minute.
var (
	chaosLease      = []string{"--beat", "500ms", "--lease", "3s"}
	chaosVisibility = "6s"
)

// TestChaos is the promise of `once` put to real processes: while distributors and processors are
// killed (kill -9) and stopped (SIGSTOP, often beyond their leases) at random, and the service
// loses requests and answers, throttles, goes dark, refuses credentials and disables accounts, tasks
// are counted and summed by key, others are posted to an endpoint that often says "not now"
// (chaos_calls_test.go), and an operator redrives, drops, and takes an account away and brings it
// back (chaos_operator_test.go), and ends small runs of clients (chaos_runs_test.go). In the end nothing is lost, and no effect
// happened twice: count and sum of each key are those of the tasks of all sealed runs, but for
// those that are no tasks to be counted, which were in quarantine until they were dropped.
func TestChaos(t *testing.T) {
	t.Parallel()
	length, tasks := *chaosFor, *chaosTasks
	if testing.Short() {
		length, tasks = min(length, 20*time.Second), min(tasks, 4000)
	}
	c := newChaos(t, length, tasks)
	o := c.newOperator()
	t.Cleanup(o.end)
	c.rage()
	o.end()
	c.calm()
	c.requireComplete()
	c.requireState()
	o.requireSides()
	o.requireDone()
	c.requireOneWorkload()
	t.Log(c)
	t.Logf("operator's commands that succeeded: %v of %v, killed: %v; runs of clients by their ends: %v, tasks of them that were not done: %v", o.did, o.tried, o.killed, o.ends, o.endsLeft)
}

// chaos is a workload under blows.
type chaos struct {
	*world
	table  storage.Table
	runs   *workload.Runs
	random *rand.Rand
	length time.Duration
	tasks  int // to be sent in all, at least
	each   int // of one run
	input  string
	// configs are one configuration written in two ways: processes start with either. Without
	// any, each keeps the one it has.
	configs []string
	// astray is one that expects the workload in another account: accounts in another order, and no
	// control. A process that starts with it is refused and leaves no second workload (A8).
	astray string

	parts []*part
	rules []*azsim.Injection

	endpoint *endpoint // that tasks are posted to; nil: none are, and there are no troubles
	blows    int       // so far

	kills, stops, dark map[string]int // by role, by account
	older              int            // starts of the other version
	refused            int            // starts with the configuration that goes astray
	took               time.Duration  // from the last blow until all was done
	sealed             []workload.Run
}

// part is a process that is started again whenever it was killed.
type part struct {
	*process
	role string
	args []string
	of   string // what the names of its configurations end with
	// until when it is stopped, or not started again.
	until   time.Time
	stopped bool
	astray  bool // it was started with such a configuration
}

// wholeChaos is from which length on TestChaos shows all: it waits for what is hidden, and an
// account has the time to go.
const wholeChaos = 3 * time.Minute

// chaosQueues is the number of queues of each account; one of so many tasks cannot be counted.
const (
	chaosQueues  = 4
	chaosRejects = 400
)

func newChaos(t *testing.T, length time.Duration, tasks int) *chaos {
	c := &chaos{
		world: newWorldOf(t, azsim.Config{Seed: *chaosSeed, Limits: azsim.NoLimits(), Latency: 2 * time.Millisecond}, 3, chaosQueues), length: length, tasks: tasks,
		random: rand.New(rand.NewPCG(*chaosSeed, 1)), each: max(tasks/16, 1000), // a run takes 2 s at least, because some put of it is delayed so long
		kills: map[string]int{}, stops: map[string]int{}, dark: map[string]int{},
	}
	t.Logf("-chaos.seed %d", *chaosSeed)
	appendText(t, c.config, "delivery: once\ncontrol: account1\n")
	c.configs = []string{c.config, reordered(t, c.world)}
	c.astray = c.path("astray.yaml")
	writeText(t, c.astray, strings.Replace(readText(t, c.configs[1]), "control: account1\n", "", 1))
	c.table = c.account("account1").Table(row.TableName)
	c.runs = workload.NewRuns(c.table, "test")
	c.input = c.path("tasks.jsonl")
	writeTasks(t, c.input, c.each)
	c.spoil()
	c.endpoint = newEndpoint(t)
	for _, path := range append(c.configs, c.astray) {
		writeText(t, path+callsEnding, strings.Replace(readText(t, path), "workload: test", "workload: calls", 1))
	}
	writeTasks(t, c.path("calls.jsonl"), callTasks)
	for i := range 7 {
		p := &part{role: "processor", args: append([]string{"run", "--config", c.config, "--count-by", "city", "--sum", "n", "--visibility", chaosVisibility, "--quiet"}, chaosLease...)}
		if i < 2 {
			p.role = "distributor"
			p.args = append([]string{"run", "--config", c.config, "--every", "1s", "--input", c.input, "--key", "id", "--pack", "10", "--quiet"}, chaosLease...)
		} else if i < 4 {
			p = c.endpoint.poster("--config", "")
			p.of = callsEnding
		}
		c.parts = append(c.parts, p)
		c.start(p)
	}
	return c
}

// spoil makes some tasks such that they cannot be counted, and are rejected.
func (c *chaos) spoil() {
	lines := strings.SplitAfter(readText(c.t, c.input), "\n")
	for i := chaosRejects / 2; i < len(lines)-1; i += chaosRejects {
		lines[i] = strings.Replace(lines[i], `"n":`, `"n":"no number","was":`, 1)
	}
	writeText(c.t, c.input, strings.Join(lines, ""))
}

func (c *chaos) start(p *part) {
	// A process that is started again may find its configuration written anew.
	p.astray = false
	if len(c.configs) > 0 {
		c.startWith(p, c.configs[c.random.IntN(len(c.configs))])
		return
	}
	c.startAny(p)
}

func (c *chaos) startWith(p *part, config string) {
	p.args[slices.Index(p.args, "--config")+1] = config + p.of
	p.astray = config == c.astray
	c.startAny(p)
}

// startAny starts one of the versions: a process that is started again may be upgraded by that, or
// be what it was before the upgrade.
func (c *chaos) startAny(p *part) {
	from := bin
	if *chaosOlder != "" && c.random.IntN(2) == 0 {
		from = *chaosOlder
		c.older++
	}
	p.process = startCommand(c.t, nil, p.role, filepath.Join(from, p.role), p.args...)
}

// faults are what goes wrong in the service all the time, each with few of a hundred requests.
var faults = []azsim.Rule{
	{Fault: azsim.AnswerLost, Probability: 0.01},
	{Fault: azsim.FailBefore, Probability: 0.01},
	{Fault: azsim.Answer, Probability: 0.01},      // 503
	{Fault: azsim.AnswerAfter, Probability: 0.01}, // 500, and it acted
	{Fault: azsim.CutBody, Probability: 0.005},
	{Fault: azsim.DelayBefore, Delay: 2 * time.Second, Probability: 0.005},
	{Fault: azsim.DelayAfter, Delay: 2 * time.Second, Probability: 0.005},
	{Fault: azsim.DeliverTwice, Operations: []string{"GetMessages"}, Probability: 0.02},
	{Fault: azsim.ReappearEarly, Operations: []string{"GetMessages"}, Probability: 0.02},
	{Fault: azsim.Reorder, Operations: []string{"GetMessages"}, Probability: 0.1},
}

// rage deals blows until the time is over and the tasks are sent. Blows come by the clock, and what
// they let happen between them by the machine: once the time is over they come ever more rarely, so
// that the tasks are sent however busy the machine is.
func (c *chaos) rage() {
	c.eventually("the workload exists", func() bool {
		_, err := workload.Load(c.t.Context(), c.table, "test")
		return err == nil
	})
	for _, rule := range faults {
		c.rules = append(c.rules, c.sim.Inject(rule))
	}
	end := time.Now().Add(c.length)
	deadline := end.Add(4*patience + c.length)
	longest := 3 * time.Second
	for looked := time.Now(); ; {
		time.Sleep(time.Duration(c.random.Int64N(int64(longest))))
		c.revive()
		c.blow()
		if now := time.Now(); now.After(end) && now.Sub(looked) > 3*time.Second {
			looked, longest = now, min(longest*5/4, time.Minute)
			if c.sent() >= c.tasks {
				return
			}
			if now.After(deadline) {
				c.t.Fatalf("only %d of %d tasks were sent in %v", c.sent(), c.tasks, now.Sub(end)+c.length)
			}
		}
	}
}

// sent is how many tasks the sealed runs hold.
func (c *chaos) sent() (n int) {
	for _, r := range c.list() {
		n += int(r.Tasks)
	}
	return n
}

// list gives the runs that are counted: not those that the operator ends, nor those whose leaders
// were killed between making their rows and beginning them: nothing of these was sent, and the next
// leader ends them.
func (c *chaos) list() []workload.Run {
	c.t.Helper()
	runs, err := c.runs.List(c.t.Context(), 10_000)
	must(c.t, err)
	return slices.DeleteFunc(runs, func(r workload.Run) bool {
		return isSide(r) || r.State == workload.RunBroken && r.Tasks == 0 && strings.Contains(r.Note, "nothing of it was sent")
	})
}

// blow does one thing to one process, or to an account.
func (c *chaos) blow() {
	p := c.parts[c.random.IntN(len(c.parts))]
	span := time.Duration(c.random.IntN(2000)) * time.Millisecond
	if c.random.IntN(3) == 0 {
		span *= 5 // beyond the lease and the visibility
	}
	c.blows++
	switch what := c.random.IntN(20); {
	case c.endpoint != nil && c.blows%4 == 0:
		c.trouble(time.Second + 2*span)
	case what == 0:
		name := c.names[c.random.IntN(len(c.names))]
		c.dark[name]++
		c.sim.Blackout(name, true)
		time.AfterFunc(min(span, 5*time.Second), func() { c.sim.Blackout(name, false) })
	case !p.until.IsZero():
	case what < 11:
		c.kills[p.role]++
		p.kill()
		p.until = time.Now().Add(span)
	default:
		c.stops[p.role]++
		p.signal(syscall.SIGSTOP)
		p.stopped, p.until = true, time.Now().Add(span)
	}
}

// revive lets go on what has been stopped, and starts what has been killed, when their time is
// over: now and then with the configuration that goes astray, until that is refused.
func (c *chaos) revive() {
	for _, p := range c.parts {
		switch due := !p.until.IsZero() && time.Now().After(p.until); {
		case due && !p.stopped && c.astray != "" && c.random.IntN(4) == 0:
			p.until = time.Time{}
			c.startWith(p, c.astray)
		case due:
			c.up(p)
		case p.astray && p.until.IsZero() && p.ended():
			c.requireRefused(p.process)
			c.start(p)
		case !p.astray && p.until.IsZero() && p.ended():
			c.t.Fatalf("a %s ended by itself: %v", p.role, p.cmd.ProcessState)
		}
	}
}

// requireRefused checks that a process which went astray was told where the workload is, or that the
// account in which it looks refuses the credential.
func (c *chaos) requireRefused(p *process) {
	c.t.Helper()
	c.refused++
	text := p.log.String()
	there := strings.Contains(text, "is in account account1, and not in account3") || strings.Contains(text, "read account3/") && strings.Contains(text, "(403 AuthenticationFailed)")
	if p.cmd.ProcessState.ExitCode() == 0 || !there {
		c.t.Errorf("a %s that expects the workload in another account: %v: %s", p.name, p.cmd.ProcessState, tail(text))
	}
}

// requireOneWorkload checks that nothing was made beside the workload, and that what goes astray
// is refused when nothing disturbs it.
func (c *chaos) requireOneWorkload() {
	c.t.Helper()
	for _, p := range []*part{c.parts[0], c.parts[len(c.parts)-1]} {
		c.startWith(p, c.astray)
		p.wait()
		c.requireRefused(p.process)
	}
	for _, name := range c.names[1:] {
		if _, err := workload.Load(c.t.Context(), c.account(name).Table(row.TableName), "test"); !errors.Is(err, pump.ErrNoWorkload) && !storage.Is(err, storage.Missing) {
			c.t.Errorf("in %s: %v, want no workload", name, err)
		}
	}
}

func (c *chaos) up(p *part) {
	p.until = time.Time{}
	if p.stopped {
		p.stopped = false
		p.signal(syscall.SIGCONT)
		return
	}
	c.start(p)
}

// calm ends the blows, and the distributions: one last distributor finishes what was begun.
func (c *chaos) calm() {
	began := time.Now()
	for _, rule := range c.rules {
		rule.Remove()
	}
	for _, name := range c.names {
		c.sim.Blackout(name, false)
		c.sim.SetState(name, azsim.Well)
	}
	c.endpoint.notNow(0)
	var send []*part
	for _, p := range c.parts {
		if p.astray { // whether it was refused by now or not
			p.kill()
			p.astray, p.stopped, p.until = false, false, time.Now()
		}
		killed := !p.until.IsZero() && !p.stopped
		switch {
		case p.role == "distributor" && killed: // started again, it might be told to stop before it listens to signals
			continue
		case p.role == "distributor":
			send = append(send, p)
		}
		if !p.until.IsZero() {
			c.up(p)
		}
	}
	for _, p := range send {
		// A process that was just started listens to signals when it is a member.
		c.eventually("a distributor is a member", func() bool { return c.isMember(p.process) })
		stop(p.process)
	}
	args := slices.Clone(c.parts[0].args)
	args[slices.Index(args, "1s")] = "1h"
	args[slices.Index(args, "--config")+1] = c.configs[0] // and not the one that goes astray
	last := start(c.t, "distributor", append(args, "--json")...)
	// It need not distribute anything: a leader of before may have sealed its run and not lived to
	// say that it is finished.
	last.until("it has finished a distribution, and no run is open", func() bool {
		finished := c.finishedBy(last)
		c.sealed = c.list()
		return finished &&
			!slices.ContainsFunc(c.sealed, func(r workload.Run) bool { return r.State == workload.RunOpen })
	})
	stop(last)
	c.emptyQuarantine()
	if c.length < wholeChaos {
		c.sim.SetClockOffset(5 * time.Minute) // what a killed command had taken is there again
	}
	looked := time.Now()
	hidden := time.Now().Add(5 * time.Minute) // what a killed command had taken
	for !c.complete() || c.inQuarantine()+c.leftovers() > 0 {
		if time.Now().After(hidden.Add(patience)) {
			c.t.Fatalf("not every task of every run is recorded, or %d messages are in quarantine and %d in work queues", c.inQuarantine(), c.leftovers())
		}
		time.Sleep(100 * time.Millisecond)
		if time.Since(looked) > 2*time.Second {
			c.emptyQuarantine()
			looked = time.Now()
		}
	}
	c.eventually("all tasks that were sent to be posted are done", func() bool { return c.endpoint.complete(callTasks) })
	c.took = time.Since(began)
	for _, p := range c.parts {
		if p.role == "processor" {
			stop(p.process)
		}
	}
}

// isMember reports whether the cluster knows a process.
func (c *chaos) isMember(p *process) bool {
	v, err := cluster.LoadView(c.t.Context(), c.table, "test")
	must(c.t, err)
	return slices.ContainsFunc(v.Members, func(m cluster.Member) bool { return p.is(m.Instance) })
}

// finishedBy reports whether a distributor was the last to lead and has finished what was begun.
func (c *chaos) finishedBy(p *process) bool {
	c.t.Helper()
	e := election.New(c.table, "test", election.Options{Instance: "observer"})
	s, err := e.Status(c.t.Context())
	must(c.t, err)
	return s.Phase == election.Idle && p.is(s.Leader)
}

// is reports whether an instance's name is that of this process.
func (p *process) is(instance string) bool {
	return strings.Contains(instance, fmt.Sprintf("-%d-", p.cmd.Process.Pid))
}

func (c *chaos) String() string {
	st := c.sim.Stats()
	var b strings.Builder
	total := 0
	for _, r := range c.sealed {
		total += int(r.Tasks)
	}
	fmt.Fprintf(&b, "%d tasks in %d runs, %v of blows: kill -9 %v, SIGSTOP %v, accounts dark %v, troubles %v; %d starts with a configuration that expects the workload elsewhere, all refused\n", total, len(c.sealed), c.length, c.kills, c.stops, c.dark, c.troubles(), c.refused)
	if c.older > 0 {
		fmt.Fprintf(&b, "%d starts of another version\n", c.older)
	}
	fmt.Fprintf(&b, "requests that went wrong: %v; puts %d, gets %d, transactions %d\n", st.Faults, st.Count("", "PutMessage"), st.Count("", "GetMessages"), st.Count("", "Batch"))
	fmt.Fprintf(&b, "lost 0, double effects 0; all done %v after the last blow", c.took.Round(100*time.Millisecond))
	return b.String()
}
