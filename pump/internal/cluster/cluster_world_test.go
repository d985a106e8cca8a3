package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

// clusterWorld plays one script: the simulated service with the control account,
// machines with a process each, and somebody who looks at all of them at once,
// which no member of a real cluster can (cluster_check_test.go).
type clusterWorld struct {
	script   *clusterScript
	sim      *azsim.Sim
	observer storage.Table // of somebody who reads what stands there
	operator storage.Table // of somebody who changes the map
	began    time.Time
	goes     sync.WaitGroup // requests under way
	lives    sync.WaitGroup

	mu       sync.Mutex
	machines map[int]*clusterMachine
	all      []*clusterLife // in the order in which they began
	darkTo   time.Time
	busyTo   time.Time // when the last fault that has been ordered is over
	history  []clusterEvent
	over     bool // what comes is only the end of the processes
	requests int
	lasted   time.Duration
	faults   map[string]int // requests that went wrong, by kind
	events   map[string]int // what happened to machines
	wrong    []string
	judge    clusterJudge
}

// clusterEvent is one line of the history: a request as its sender saw it.
type clusterEvent struct {
	sent, done  time.Duration
	who, op, on string
	number      int
	result      string
}

func (e clusterEvent) String() string {
	return fmt.Sprintf("%v %v %s %s %s #%d: %s", e.sent, e.done, e.who, e.op, e.on, e.number, e.result)
}

// The times of every process: the defaults, and a shorter period of the election
// so that leaders change.
const (
	clusterBeat   = 5 * time.Second
	clusterLease  = 20 * time.Second
	clusterMargin = 3 * time.Second
	clusterEvery  = 15 * time.Second
)

// playCluster plays a script in a bubble of virtual time.
func playCluster(t *testing.T, s *clusterScript) *clusterWorld {
	w := &clusterWorld{script: s, machines: map[int]*clusterMachine{}, faults: map[string]int{}, events: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		w.began = time.Now()
		w.judge.begin(s.segments)
		w.play(t.Context())
		w.tidy()
	})
	slices.SortFunc(w.history, func(a, b clusterEvent) int {
		if a.done != b.done {
			return int(a.done - b.done)
		}
		return strings.Compare(a.String(), b.String())
	})
	return w
}

func (w *clusterWorld) now() time.Duration { return time.Since(w.began) }

func (w *clusterWorld) play(ctx context.Context) {
	w.sim = azsim.New(azsim.Config{
		Accounts: []azsim.Account{{Name: "control"}}, Seed: w.script.seed, Latency: 10 * time.Millisecond,
		Tables: azsim.TableOptions{ScanLimit: w.script.pages, EmptyPages: w.script.pages%2 == 1},
	})
	spec := workload.Spec{Name: "city", Segments: w.script.segments, Delivery: string(pump.AtLeastOnce)}
	for a := range w.script.accounts {
		spec.Shards = append(spec.Shards, w.queues(fmt.Sprintf("acct%02d", a+1))...)
	}
	w.observer = row.Seeded(w.driver("observer"), testkit.SeededDraw(w.script.seed, "observer"))
	w.operator = row.Seeded(w.driver("operator"), testkit.SeededDraw(w.script.seed, "operator"))
	if _, err := workload.Ensure(ctx, w.observer, spec); err != nil {
		w.wrongf("setting up: %v", err)
		return
	}
	stop := w.watch()
	defer stop()
	for i, step := range w.script.steps {
		w.note("script", step.String())
		if err := w.do(ctx, step); err != nil {
			w.wrongf("step %d, %s: %v", i+1, step, err)
			return
		}
		w.look()
	}
}

func (w *clusterWorld) queues(account string) (shards []shardmap.Shard) {
	for q := range w.script.queues {
		shards = append(shards, shardmap.Shard{Account: account, Queue: fmt.Sprintf("city-%02d", q), Weight: 1})
	}
	return shards
}

// driver is the control table over the driver that ships.
func (w *clusterWorld) driver(client string) storage.Table {
	account, err := azure.Open(azure.Options{ConnectionString: w.sim.ConnectionString("control"), Transport: w.sim.Transport().As(client)})
	if err != nil {
		panic(err) // the simulator's own connection string
	}
	return account.Table(row.TableName)
}

// tidy ends every process as a crash does, and waits for what is under way.
func (w *clusterWorld) tidy() {
	w.mu.Lock()
	w.over, w.lasted = true, w.now()
	w.mu.Unlock()
	w.sim.Blackout("control", false)
	for _, l := range w.living() {
		l.kill()
	}
	w.lives.Wait()
	w.goes.Wait()
}

// living are the processes that are there, as they began.
func (w *clusterWorld) living() (living []*clusterLife) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.all {
		if !l.dead {
			living = append(living, l)
		}
	}
	return living
}

func clusterName(machine int) string { return fmt.Sprintf("m%02d", machine) }

func (w *clusterWorld) machine(n int) *clusterMachine {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[n]
	if m == nil {
		m = &clusterMachine{world: w, number: n, name: clusterName(n), rate: 1}
		w.machines[n] = m
	}
	return m
}

// wrongf notes a broken promise; the first few say enough.
func (w *clusterWorld) wrongf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrongLocked(format, args...)
}

func (w *clusterWorld) wrongLocked(format string, args ...any) {
	if len(w.wrong) < 20 {
		w.wrong = append(w.wrong, fmt.Sprintf("%v ", w.now())+fmt.Sprintf(format, args...))
	}
}

// record is a line of the history.
func (w *clusterWorld) record(l *clusterLife, sent time.Duration, op, on string, n int, err error) {
	e := clusterEvent{sent: sent, done: w.now(), who: fmt.Sprintf("%s/%d", l.machine.name, l.number), op: op, on: on, number: n, result: "ok"}
	if err != nil {
		e.result = storage.CodeOf(err).String()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || l.dead {
		return
	}
	w.requests++
	w.history = append(w.history, e)
}

// note is a line of the history that is no request.
func (w *clusterWorld) note(who, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(who, what)
}

func (w *clusterWorld) noteLocked(who, what string) {
	if !w.over {
		w.history = append(w.history, clusterEvent{sent: w.now(), done: w.now(), who: who, op: what})
	}
}
