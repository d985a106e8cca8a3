package processor_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

// idleCluster says how large the cluster is whose idle cost is measured
// while there is nothing to do, and how soon it begins what then comes.
type idleCluster struct {
	accounts, queues, segments, processors int

	settle         time.Duration // until every queue is at its longest back-off
	measure        time.Duration // what the idle cluster costs
	nudged, silent int           // tasks put with nudges, and while all are blocked
	apart          time.Duration // half of it to three halves between two tasks
}

// stopwatch notes when each task was put and when it was begun.
type stopwatch struct {
	mu                 sync.Mutex
	order              []string // as given
	given, acked       map[string]time.Time
	begun              map[string]time.Time
	begins             map[string]int
	segments, handlers map[string]bool // that had a task
}

func newStopwatch() *stopwatch {
	return &stopwatch{
		given: map[string]time.Time{}, acked: map[string]time.Time{}, begun: map[string]time.Time{}, begins: map[string]int{},
		segments: map[string]bool{}, handlers: map[string]bool{},
	}
}

// give is the moment when a task is there for its distributor.
func (s *stopwatch) give(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given[id] = time.Now()
	s.order = append(s.order, id)
}

// ack is a hook of the distributors: a put was answered, which is that of the task
// given last, since no other is given as long as that takes.
func (s *stopwatch) ack(_, _, operation string, _ time.Duration, err error) {
	if operation != queues.OpPut.String() || err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked[s.order[len(s.order)-1]] = time.Now()
}

// handler is that of one instance.
func (s *stopwatch) handler(instance string) pump.Handler {
	return pump.HandlerFunc(func(_ context.Context, t *pump.Task) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		id := t.ID
		if t.Foreign != "" {
			id = string(t.Body)
		}
		if _, again := s.begun[id]; !again {
			s.begun[id] = time.Now()
		}
		s.begins[id]++
		s.segments[fmt.Sprint(t.Segment)] = true
		s.handlers[instance] = true
		return nil
	})
}

// delays are sorted times from put to begun.
type delays []time.Duration

func (d delays) percentile(p int) time.Duration { return d[(len(d)*p+99)/100-1] }

func (d delays) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%d tasks: p50 %v, p99 %v, max %v", len(d), round(d.percentile(50)), round(d.percentile(99)), round(d[len(d)-1]))
}

// delays lists how long after the times of from each task was begun.
func (s *stopwatch) delays(from map[string]time.Time) (all delays) {
	for id, at := range s.begun {
		// Less than nothing: begun before the answer to its put had come.
		all = append(all, max(0, at.Sub(from[id])))
	}
	slices.Sort(all)
	return all
}

// check verifies that each of so many tasks was put, and begun once.
func (s *stopwatch) check(t *testing.T, tasks int) {
	t.Helper()
	for _, id := range s.order {
		if s.begins[id] != 1 || s.acked[id].IsZero() {
			t.Errorf("task %s was begun %d times, its put answered at %v", id, s.begins[id], s.acked[id])
		}
	}
	if len(s.order) != tasks || len(s.begun) != tasks {
		t.Errorf("of %d tasks %d were put and %d begun", tasks, len(s.order), len(s.begun))
	}
}

// idleCosts are what was measured of an idle cluster: requests a second of all
// processors together, and how long after its put a task was begun.
type idleCosts struct {
	tables, queues float64
	nudged, silent *stopwatch
	bound          time.Duration // of what takes longest without nudges
}

// run builds the cluster and measures it.
func (c idleCluster) run(t *testing.T) (costs idleCosts) {
	names := func(sc *azsim.Config) {
		sc.Accounts = nil
		for i := range c.accounts {
			sc.Accounts = append(sc.Accounts, azsim.Account{Name: fmt.Sprintf("account%02d", i+1)})
		}
	}
	testworld.In(t, workload.Spec{Segments: c.segments}, c.accounts, c.queues, names, func(t *testing.T, w *testworld.World) {
		board := &switchboard{}
		var watch atomic.Pointer[stopwatch] // the one in use
		board.blocked.Store(true)           // 200 that join in 2 s have nothing to tell each other that the beats do not
		all := c.join(w, board, &watch)
		w.Settled(c.processors)
		board.blocked.Store(false)
		time.Sleep(c.settle)

		before := w.Sim.Stats()
		time.Sleep(c.measure)
		costs.tables, costs.queues = c.rates(t, before, w.Sim.Stats())

		costs.nudged = newStopwatch()
		watch.Store(costs.nudged)
		c.put(w, board, costs.nudged, c.nudged)
		if board.carried.Load() == 0 {
			t.Error("no nudge was carried")
		}
		time.Sleep(c.settle)
		board.blocked.Store(true)
		costs.silent = newStopwatch()
		watch.Store(costs.silent)
		c.put(w, board, costs.silent, c.silent)

		// An idle queue is left alone for its bound and a quarter of it at most. Then
		// there are the get that was under way when the put landed, the one after it,
		// and the reading of the run's row, of which each takes 10 to 12.5 ms.
		costs.bound = idleBound(c.accounts*c.queues)*5/4 + 40*time.Millisecond
		endAll(all)
	})
	return costs
}

// join starts the processors. They share the drivers, of which 200 x 50 would be
// most of the memory of the test.
func (c idleCluster) join(w *testworld.World, board *switchboard, watch *atomic.Pointer[stopwatch]) (all []*started) {
	for i := range c.processors {
		name := fmt.Sprintf("p%03d", i)
		cfg := w.Cfg
		cfg.Instance, cfg.Log = name, warnings(w)
		h := pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error { return watch.Load().handler(name).Handle(ctx, t) })
		all = append(all, testworld.Start(w.T, board.join(w, cfg, h, processor.Options{})))
		time.Sleep(10 * time.Millisecond)
	}
	return all
}

// rates prints what was requested by operation, and gives the sums by service.
func (c idleCluster) rates(t *testing.T, before, after azsim.Stats) (tables, queues float64) {
	type key struct{ service, operation string }
	count := map[key]int64{}
	for _, r := range after.Requests {
		count[key{r.Service, r.Operation}] += r.Count
	}
	for _, r := range before.Requests {
		count[key{r.Service, r.Operation}] -= r.Count
	}
	for k, n := range count {
		rate := float64(n) / c.measure.Seconds()
		switch k.service {
		case "table":
			tables += rate
		case "queue":
			queues += rate
		}
		if n > 0 {
			t.Logf("idle: %-16s %6.2f a second", k.operation, rate)
		}
	}
	return tables, queues
}

// put has tasks distributed one by one, half of them each by a distributor of its
// own, which is started for it, and half by one that has been there for long.
func (c idleCluster) put(w *testworld.World, board *switchboard, watch *stopwatch, tasks int) {
	random := rand.New(rand.NewPCG(1, uint64(tasks)))
	pause := func() { time.Sleep(c.apart/2 + time.Duration(random.Int64N(int64(c.apart)))) }
	record := func(id string) source.Record {
		return source.Record{Key: fmt.Append(nil, random.Uint64()), ID: id, Body: []byte("body")}
	}
	distribute := func(instance string, records iter.Seq2[source.Record, error]) {
		cfg := w.Cfg
		cfg.Instance, cfg.Nudge, cfg.Hooks, cfg.Log = instance, board.carry, pump.Hooks{Request: watch.ack}, warnings(w)
		d, err := distributor.New(cfg, source.FromSeq(records), distributor.Options{Pack: 1})
		proof.Must(w.T, err)
		proof.Must(w.T, proof.ErrOf(d.Run(w.T.Context())))
	}
	for i := range tasks / 2 {
		id := fmt.Sprint("short-", i)
		watch.give(id)
		distribute(id, func(yield func(source.Record, error) bool) { yield(record(id), nil) })
		pause()
	}
	distribute("long", func(yield func(source.Record, error) bool) {
		for i := range tasks - tasks/2 {
			pause()
			id := fmt.Sprint("long-", i)
			watch.give(id)
			if !yield(record(id), nil) {
				return
			}
		}
	})
	time.Sleep(2 * idleBound(c.accounts*c.queues))
}

// warnings logs what is worth one.
func warnings(w *testworld.World) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// check verifies that all was begun, and without nudges within the bound, and prints
// what was measured.
func (costs idleCosts) check(t *testing.T, c idleCluster) {
	t.Helper()
	t.Logf("%d processors on %d accounts x %d queues, idle: %.2f table and %.2f queue requests a second in all", c.processors, c.accounts, c.queues, costs.tables, costs.queues)
	t.Logf("by nudge a task is begun after its put was answered: %v", costs.nudged.delays(costs.nudged.acked))
	t.Logf("by nudge a task is begun after its distributor was given it: %v", costs.nudged.delays(costs.nudged.given))
	unaided := costs.silent.delays(costs.silent.acked)
	t.Logf("without nudges a task is begun after its put was answered: %v, bound %v", unaided, costs.bound)
	t.Logf("segments that had tasks: %d, processors: %d", len(costs.nudged.segments), len(costs.nudged.handlers))
	costs.nudged.check(t, c.nudged)
	costs.silent.check(t, c.silent)
	if longest := unaided[len(unaided)-1]; longest > costs.bound {
		t.Errorf("without nudges a task was begun %v after its put, the bound is %v", longest, costs.bound)
	}
}

func TestP82AnIdleClusterCostsLittleAndBeginsAtOnce(t *testing.T) {
	proof.Only(t)
	c := idleCluster{
		accounts: 8, queues: 4, segments: 64, processors: 10,
		settle: 2 * time.Minute, measure: 5 * time.Minute, nudged: 200, silent: 60, apart: 5 * time.Second,
	}
	costs := c.run(t)
	costs.check(t, c)
	if costs.tables >= 5 || costs.queues >= 20 {
		t.Errorf("%.2f table and %.2f queue requests a second, want fewer than 5 and 20", costs.tables, costs.queues)
	}
	if p99 := costs.nudged.delays(costs.nudged.acked).percentile(99); p99 > time.Second {
		t.Errorf("by nudge one task of a hundred is begun later than after %v", p99)
	}
}

var scale = flag.Bool("scale", false, "also test what takes minutes, at the size that the documentation speaks of")

func TestP82ALargeIdleClusterBeginsWithinItsBound(t *testing.T) {
	if !*scale {
		t.Skip("takes minutes: make play WHAT=scale")
	}
	c := idleCluster{
		accounts: 50, queues: 20, processors: 200,
		settle: 4 * time.Minute, measure: 2 * time.Minute, nudged: 120, silent: 40, apart: 3 * time.Second,
	}
	c.run(t).check(t, c)
}
