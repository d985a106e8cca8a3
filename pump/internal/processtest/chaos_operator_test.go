package processtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/workload"
)

// operator gives the commands of a person, one after the other, while the processes are killed.
// They are about tasks in quarantine, the second account, which is drained, removed and added
// again, small runs of clients, which are ended, and runs that are paused for a while. At times the
// command is killed too.
type operator struct {
	*chaos
	random *rand.Rand
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	did     map[string]int // commands that succeeded, or did what could be done
	tried   map[string]int
	killed  map[string]int
	refused map[string]string // the last word of those that did not succeed

	sides []*sideRun // of sideRuns alone until that has ended
	// ends is how many side runs came to which end, and endsLeft how many of their tasks were not
	// done.
	ends     map[string]int
	endsLeft map[string]uint64
}

// newOperator begins an operator's work; end ends it.
func (c *chaos) newOperator() *operator {
	o := &operator{
		chaos: c, random: rand.New(rand.NewPCG(*chaosSeed, 2)),
		did: map[string]int{}, tried: map[string]int{}, killed: map[string]int{}, refused: map[string]string{},
		ends: map[string]int{}, endsLeft: map[string]uint64{},
	}
	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	o.ended.Go(func() { o.quarantine(ctx) })
	o.ended.Go(func() { o.accounts(ctx) })
	o.ended.Go(func() { o.sideRuns(ctx) })
	o.ended.Go(func() { o.pauses(ctx) })
	o.ended.Go(func() { o.posts(ctx) })
	return o
}

func (o *operator) end() {
	o.stop()
	o.ended.Wait()
}

func (o *operator) roll(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.random.IntN(n)
}

func (o *operator) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// quarantine redrives what is there, which fails again, and drops it. It only drops a task that is
// there because its run was ended. Redriven, that is done under the identity of a foreign message,
// which is forgotten when the message is deleted. So the other copy that a killed command leaves
// would be done again.
func (o *operator) quarantine(ctx context.Context) {
	for ctx.Err() == nil {
		switch o.roll(4) {
		case 0:
			o.command(ctx, 20*time.Second, "quarantine", "drop", "--yes")
		case 1: // or the second account would hardly ever be empty
			o.command(ctx, 20*time.Second, "quarantine", "drop", "--yes", "--cause", "run-ended")
		default:
			o.command(ctx, 20*time.Second, "quarantine", "redrive", "--cause", "rejected")
		}
		o.pause(ctx, time.Duration(o.roll(3000))*time.Millisecond)
	}
}

// accounts takes an account away and brings it back. It is removed half a minute after it was
// drained at the earliest, and only when somebody has emptied its quarantine.
func (o *operator) accounts(ctx context.Context) {
	name := o.names[1]
	for ctx.Err() == nil {
		drained := o.command(ctx, 20*time.Second, "accounts", "drain", name, "--yes")
		for removed := !drained; !removed && ctx.Err() == nil; {
			removed = o.command(ctx, 80*time.Second, "accounts", "remove", name, "--yes", "--wait")
			o.pause(ctx, time.Second)
		}
		o.pause(ctx, time.Duration(o.roll(4000))*time.Millisecond)
		o.command(ctx, 20*time.Second, "accounts", "add", name)
		o.pause(ctx, time.Duration(o.roll(4000))*time.Millisecond)
	}
}

// pauses lets a run that is counted wait for a while, and then go on.
func (o *operator) pauses(ctx context.Context) {
	for ctx.Err() == nil {
		o.pause(ctx, time.Duration(o.roll(10_000))*time.Millisecond)
		runs, err := o.runs.List(ctx, 20)
		runs = slices.DeleteFunc(runs, func(r workload.Run) bool { return isSide(r) || r.State == workload.RunClosed })
		if err != nil || len(runs) == 0 {
			continue
		}
		run := runs[o.roll(len(runs))].ID.String()
		if !o.command(ctx, 20*time.Second, "workload", "pause", "--run", run) {
			// It may have been paused nevertheless.
			o.pause(ctx, time.Second)
		}
		o.pause(ctx, time.Duration(o.roll(5000))*time.Millisecond)
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
			if o.command(ctx, 20*time.Second, "workload", "resume", "--run", run) {
				break
			}
		}
	}
}

// didPart matches the output of a command that moved messages of quarantine. Its exit status is 1 if
// an account was disabled meanwhile, which is so during a third of the blows.
var didPart = regexp.MustCompile(`(?m)^[1-9]\d* messages? with \d+ tasks? (redriven|dropped)`)

// command runs a command of the distributor, which is killed now and then, and says whether it
// succeeded.
func (o *operator) command(ctx context.Context, most time.Duration, args ...string) bool {
	what := strings.Join(args[:2], " ")
	if o.roll(6) == 0 {
		most = time.Duration(o.roll(3000)) * time.Millisecond
	}
	if args[0] == "quarantine" || what == "workload resume" {
		ctx = context.WithoutCancel(ctx) // the last one is let finish, or what it has taken is hidden when all is judged
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(limited, filepath.Join(bin, "distributor"), append(args, "--config", o.configs[o.roll(len(o.configs))])...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried[what]++
	switch {
	case err == nil:
		o.did[what]++
	case limited.Err() != nil:
		o.killed[what]++
	case didPart.Match(out):
		o.did[what]++
	default:
		o.refused[what] = fmt.Sprintf("%v: %s", err, tail(string(out)))
	}
	return err == nil
}

// fewTries are too few in the short form to say anything: beside other tests a command may be tried
// once, be killed or come before the workload is made.
const fewTries = 4

// requireDone checks that the operator's work was some: a command that never succeeds tests
// nothing.
func (o *operator) requireDone() {
	o.t.Helper()
	for _, what := range []string{"quarantine redrive", "quarantine drop", "accounts drain", "runs end", "workload pause", "a post"} {
		if o.did[what] == 0 && (o.length >= wholeChaos || o.tried[what] >= fewTries) {
			o.t.Errorf("no %q of %d succeeded: %s", what, o.tried[what], o.refused[what])
		}
	}
	// A removal takes half a minute without a change of the map, and as long as blows let messages
	// lie: on a busy machine the account may be gone only when the blows are over.
	if o.length >= wholeChaos && o.did["accounts remove"] == 0 {
		o.removesInCalm()
	}
}

// removesInCalm takes the account away that was not gone while blows fell.
func (o *operator) removesInCalm() {
	o.t.Helper()
	name := o.names[1]
	steps := [][]string{ // the first two may have been done, and are refused then
		{"accounts", "add", name},
		{"accounts", "drain", name, "--yes"},
		{"quarantine", "drop", "--yes"},
		{"accounts", "remove", name, "--yes", "--wait"},
	}
	var said []byte
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		var err error
		for _, args := range steps {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			said, err = exec.CommandContext(ctx, filepath.Join(bin, "distributor"), append(args, "--config", o.config)...).CombinedOutput()
			cancel()
		}
		if err == nil {
			return
		}
	}
	o.t.Errorf("no removal of %d succeeded, and none in calm: %s", o.tried["accounts remove"], tail(string(said)))
}

// emptyQuarantine drops what is left in quarantine, as somebody does who has seen enough of it.
func (c *chaos) emptyQuarantine() {
	out, err := exec.Command(filepath.Join(bin, "distributor"), "quarantine", "drop", "--yes", "--config", c.config).CombinedOutput()
	if err != nil {
		c.t.Logf("quarantine drop: %v: %s", err, tail(string(out)))
	}
}

// leftovers counts what is in the work queues of all accounts, in use or removed: copies that
// are recognised and deleted, if nothing is wrong.
func (c *chaos) leftovers() int64 {
	var queues []string
	for i := range chaosQueues {
		queues = append(queues, fmt.Sprintf("test-%02d", i))
	}
	return c.held(queues...)
}

// reordered writes the same configuration with its accounts in another order.
func reordered(t *testing.T, w *world) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(readText(t, w.config)), "\n")
	first := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "  - ") })
	last := first
	for last < len(lines) && strings.HasPrefix(lines[last], "  ") {
		last++
	}
	var accounts [][]string
	for _, l := range lines[first:last] {
		if strings.HasPrefix(l, "  - ") {
			accounts = append(accounts, nil)
		}
		accounts[len(accounts)-1] = append(accounts[len(accounts)-1], l)
	}
	slices.Reverse(accounts)
	path := w.path("reordered.yaml")
	writeText(t, path, strings.Join(slices.Concat(lines[:first], slices.Concat(accounts...), lines[last:]), "\n")+"\n")
	return path
}
