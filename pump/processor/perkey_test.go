package processor_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// keyJudge counts the handlers of each key in all processors.
type keyJudge struct {
	testworld.Seen
	mu     sync.Mutex
	now    map[string]int
	most   map[string]int
	starts map[string][]time.Time
	late   map[string][]time.Duration // from its record until it is started
	given  map[string]time.Time       // by id
	work   func(ctx context.Context, t *pump.Task) error
}

func newKeyJudge(work time.Duration) *keyJudge {
	j := &keyJudge{
		now: map[string]int{}, most: map[string]int{}, starts: map[string][]time.Time{},
		late: map[string][]time.Duration{}, given: map[string]time.Time{},
		work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, work) },
	}
	j.Seen.Work = func(ctx context.Context, t *pump.Task) error { return j.work(ctx, t) }
	return j
}

// atOnce is how many tasks of a key were in handlers at once at most.
func (j *keyJudge) atOnce(key string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.most[key]
}

func (j *keyJudge) Handle(ctx context.Context, t *pump.Task) error {
	key, now := string(t.Key), time.Now()
	j.mu.Lock()
	j.now[key]++
	j.most[key] = max(j.most[key], j.now[key])
	j.starts[key] = append(j.starts[key], now)
	if at, ok := j.given[t.ID]; ok {
		j.late[key] = append(j.late[key], now.Sub(at))
	}
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		j.now[key]--
		j.mu.Unlock()
	}()
	return j.Seen.Handle(ctx, t)
}

// give distributes tasks of keys at a rate; the id of each is its number.
func (j *keyJudge) give(w *testworld.World, keys []string, rate float64) {
	w.T.Helper()
	cfg := w.Cfg
	cfg.Instance = "d"
	began := time.Now()
	d, err := distributor.New(cfg, source.FromSeq(func(yield func(source.Record, error) bool) {
		for i, key := range keys {
			time.Sleep(time.Until(began.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
			id := fmt.Sprint(i)
			j.mu.Lock()
			j.given[id] = time.Now()
			j.mu.Unlock()
			if !yield(source.Record{Key: []byte(key), ID: id, Body: []byte("body")}, nil) {
				return
			}
		}
	}), distributor.Options{SealAge: time.Second})
	proof.Must(w.T, err)
	proof.Must(w.T, proof.ErrOf(d.Run(w.T.Context())))
}

// keyRun is what a fleet did with tasks of many keys.
type keyRun struct {
	judge    *keyJudge
	requests int64
	hot      int64 // of the account of the hot key's queue
	others   time.Duration
	p99      time.Duration
	over     pump.KeysOver
	took     time.Duration
}

const hotKey = "hot"

// ofQueues is how many requests the only queue of an account has had.
func ofQueues(s azsim.Stats, account string) (n int64) {
	for _, r := range s.Requests {
		if r.Account == account && r.Service == "queue" {
			n += r.Count
		}
	}
	return n
}

// zipf are keys of which one has half of all tasks.
func zipf(tasks, keys int) []string {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 1, uint64(keys-1))
	all := make([]string, tasks)
	for i := range all {
		if all[i] = hotKey; i%2 == 1 {
			all[i] = fmt.Sprintf("k%d", z.Uint64())
		}
	}
	return all
}

// playKeys has processors work on tasks of keys for a time, within limits.
func playKeys(t *testing.T, processors int, keys []string, rate float64, lasts time.Duration, limits pump.PerKey) (out keyRun) {
	testworld.In(t, workload.Spec{}, 16, 1, nil, func(t *testing.T, w *testworld.World) {
		out.judge = newKeyJudge(50 * time.Millisecond)
		var all []*started
		for i := range processors {
			all = append(all, testworld.Begun(w, processor.New, fmt.Sprint("p", i), out.judge,
				processor.Options{Concurrency: 64, PerKey: limits}))
		}
		w.Settled(processors)
		time.Sleep(30 * time.Second)
		m := w.ShardMap()
		hot := m.Shards[m.Home(shardmap.Segment([]byte(hotKey), m.Segments))]
		began, before := time.Now(), w.Sim.Stats()
		out.judge.give(w, keys, rate)
		w.Within(lasts, "all is done", func() bool {
			for _, p := range all {
				if over := p.Of.State().KeysOver; over.Tasks > out.over.Tasks {
					out.over = over
				}
			}
			return out.judge.Tasks() == len(keys)
		})
		out.took = time.Since(began)
		time.Sleep(time.Until(began.Add(lasts)))
		after := w.Sim.Stats()
		out.requests = after.Count("", "") - before.Count("", "")
		out.hot = ofQueues(after, hot.Account) - ofQueues(before, hot.Account)
		testworld.StopAll(all)
		w.ExpectEmpty()
		var others []time.Duration
		for key, late := range out.judge.late {
			if key != hotKey {
				others = append(others, late...)
				out.others = max(out.others, slices.MaxFunc(out.judge.starts[key], time.Time.Compare).Sub(began))
			}
		}
		slices.Sort(others)
		out.p99 = others[len(others)*99/100]
	})
	return out
}

// expectKeys judges a run within limits by the same run without.
func expectKeys(t *testing.T, free, bound keyRun, limits pump.PerKey) {
	t.Helper()
	starts := bound.judge.starts[hotKey]
	tasks := len(starts)
	rate := float64(tasks-1) / starts[tasks-1].Sub(starts[0]).Seconds()
	t.Logf("without: %d requests, %d of the hot account, p99 %v, others done after %v", free.requests, free.hot, free.p99, free.others)
	t.Logf("with %+v: %d requests (%.3f), %d of the hot account (%.2f), p99 %v (%.2f), others done after %v, hot rate %.2f, all after %v",
		limits, bound.requests, float64(bound.requests)/float64(free.requests), bound.hot, float64(bound.hot)/float64(free.hot),
		bound.p99, float64(bound.p99)/float64(free.p99), bound.others, rate, bound.took)
	t.Logf("%+v", bound.over)
	if n := limits.Concurrent; n > 0 {
		if most := slices.Max(slices.Collect(maps.Values(bound.judge.most))); most > n {
			t.Errorf("%d handlers of a key were at work at once, want %d at most", most, n)
		}
	}
	if limits.Rate > 0 && (rate < limits.Rate*0.98 || rate > limits.Rate*1.02) {
		t.Errorf("the hot key was started %.2f times a second, want %v", rate, limits.Rate)
	}
	if float64(bound.p99) > 1.5*float64(free.p99) {
		t.Errorf("p99 of the others is %v, without limits %v", bound.p99, free.p99)
	}
	if free.others < bound.others*95/100 {
		t.Errorf("the others took %v, without limits %v", bound.others, free.others)
	}
	if float64(bound.requests) > 1.15*float64(free.requests) || float64(bound.hot) > 2*float64(free.hot) {
		t.Errorf("%d requests, %d of the hot account; without limits %d and %d", bound.requests, bound.hot, free.requests, free.hot)
	}
	if bound.over.Keys == 0 || bound.over.Top[0].Key != hotKey {
		t.Errorf("the hot key was not seen: %+v", bound.over)
	}
}

// One key has half of all tasks and a limit far below. Others do not notice.
func TestAHotKeyKeepsItsLimitAndOthersDoNotNotice(t *testing.T) {
	keys := zipf(6000, 1000)
	free := playKeys(t, 4, keys, 200, 5*time.Minute, pump.PerKey{})
	both := []pump.PerKey{{Rate: 25}, {Concurrent: 2}}
	if proof.Less(t) {
		both = both[:1]
	}
	for _, limits := range both {
		bound := playKeys(t, 4, keys, 200, 5*time.Minute, limits)
		expectKeys(t, free, bound, limits)
	}
}

// The same at the size that the documentation speaks of.
func TestAHotKeyKeepsItsLimitAtScale(t *testing.T) {
	if !*scale {
		t.Skip("takes minutes; go test -scale runs it")
	}
	keys := zipf(48_000, 10_000)
	free := playKeys(t, 16, keys, 400, 15*time.Minute, pump.PerKey{})
	for _, limits := range []pump.PerKey{{Rate: 50}, {Concurrent: 3}, {Concurrent: 4, Rate: 40}} {
		expectKeys(t, free, playKeys(t, 16, keys, 400, 15*time.Minute, limits), limits)
	}
}

// limited plays tasks of one key within a limit of one at a time, in both modes.
func limited(t *testing.T, tasks int, play func(t *testing.T, w *testworld.World, j *keyJudge)) {
	for _, spec := range []workload.Spec{testworld.Plain, testworld.Once} {
		t.Run(cmp.Or(spec.Delivery, "at least once"), func(t *testing.T) {
			testworld.In(t, spec, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				j := newKeyJudge(time.Second)
				w.PutHome([]uint32{testworld.SomeSegment}, tasks)
				play(t, w, j)
				if j.atOnce("key") != 1 || j.Tasks() != tasks {
					t.Errorf("%d at once, %d of %d tasks", j.atOnce("key"), j.Tasks(), tasks)
				}
				w.ExpectEmpty()
			})
		})
	}
}

// A count is given back however a handler ends, and not before it has returned.
func TestAKeyGoesOnHoweverItsHandlersEnd(t *testing.T) {
	limited(t, 12, func(t *testing.T, w *testworld.World, j *keyJudge) {
		j.work = func(ctx context.Context, task *pump.Task) error {
			switch {
			case task.N == 0 && task.Attempt == 1:
				panic("flop")
			case task.N == 3 && task.Attempt == 1:
				runtime.Goexit()
			case task.N == 5 && task.Attempt == 1:
				return testworld.Pause(ctx, time.Hour) // it is timed out
			case task.N == 7 && task.Attempt == 1:
				time.Sleep(2 * time.Minute) // it is given up and returns much later
			case task.N == 9 && task.Attempt == 1:
				return testworld.ErrFlop
			}
			return testworld.Pause(ctx, time.Second)
		}
		p := testworld.Begun(w, processor.New, "p", j, processor.Options{Timeout: 10 * time.Second, PerKey: pump.PerKey{Concurrent: 1}})
		w.Within(20*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		if s := p.End(); s.Handled != 12 || s.Failed != 5 || s.Quarantined+s.Split != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A key's handlers of two owners are not at work together, though they take longer than a lease. The
// key goes on at the next owner, and at the first when its segment comes back.
func TestAHandOverWaitsForHandlersOfLimitedKeys(t *testing.T) {
	turns, tasks := 8, 30
	if proof.Less(t) {
		turns, tasks = 4, 12
	}
	handOvers(t, processor.Options{}, turns, tasks, func(n int) bool { return n == tasks })
}

// A hand-over that does not wait for long ends the handlers. Their counts are given back.
func TestAHandOverAtItsBoundEndsHandlersOfLimitedKeys(t *testing.T) {
	turns, tasks := 8, 30
	if proof.Less(t) {
		turns, tasks = 4, 12
	}
	handOvers(t, processor.Options{HandOver: time.Second}, turns, tasks, func(n int) bool { return n > tasks })
}

// handOvers hands the segment of a key over, to and fro, while its tasks are handled.
func handOvers(t *testing.T, o processor.Options, turns, tasks int, ok func(deliveries int) bool) {
	limited(t, tasks, func(t *testing.T, w *testworld.World, j *keyJudge) {
		j.work = func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 50*time.Second) }
		o.PerKey, o.Grace = pump.PerKey{Concurrent: 1}, time.Minute
		a, b := testworld.Begun(w, processor.New, "a", j, o), (*started)(nil)
		w.Within(time.Minute, "it has begun", func() bool { return j.Deliveries() > 0 })
		for i := range turns {
			if i%2 == 0 { // the plan gives it to one of them
				b = testworld.Begun(w, processor.New, []string{"0", "b", "c", "z"}[i/2], j, o)
			} else {
				b.End()
			}
			n := j.Deliveries()
			w.Within(8*time.Minute, "the key goes on", func() bool { return j.Deliveries() > n+1 || w.Left() == 0 })
		}
		began, before := time.Now(), j.Deliveries()
		w.Within(time.Hour, "all is done", func() bool { return w.Left() == 0 })
		t.Log(j.Deliveries()-before, time.Since(began))
		a.End()
		if n := j.Deliveries(); !ok(n) {
			t.Errorf("%d deliveries", n)
		}
	})
}

// A handler of batches gets one task at a time, a reducer and claims know nothing of limits, and a
// task on trial is put off, not held.
func TestLimitsByKeyGoWithEachKindOfWork(t *testing.T) {
	limited(t, 12, func(t *testing.T, w *testworld.World, j *keyJudge) {
		p := testworld.Begun(w, processor.New, "p", &batches{t: t, keyJudge: j}, processor.Options{PerKey: pump.PerKey{Concurrent: 1}})
		w.Within(20*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		p.End()
	})
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		j := newKeyJudge(time.Second)
		w.PutSuspects(testworld.SomeSegment, 6, 2)
		p := testworld.Begun(w, processor.New, "p", j, processor.Options{PerKey: pump.PerKey{Concurrent: 1, Rate: 0.5}})
		w.Within(20*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		if s := p.End(); s.Handled != 6 || s.Quarantined != 0 || j.atOnce("key") != 1 {
			t.Errorf("%+v, %d at once", s, j.atOnce("key"))
		}
	})
}

// batches is a judge that takes batches.
type batches struct {
	*keyJudge
	t *testing.T
}

func (b *batches) HandleBatch(ctx context.Context, tasks []*pump.Task) []error {
	proof.Same(b.t, len(tasks), 1, "tasks at once")
	return []error{b.Handle(ctx, tasks[0])}
}

// What cannot hold a limit refuses it.
func TestALimitByKeyThatCannotBeHeldIsRefused(t *testing.T) {
	testworld.In(t, testworld.Shared, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		for field, o := range map[string]processor.Options{
			"perKey":            {PerKey: pump.PerKey{Concurrent: 1}},
			"perKey.concurrent": {PerKey: pump.PerKey{Concurrent: -1}},
		} {
			cfg := w.Config("p", 1)
			if field != "perKey" {
				cfg.Segments = 0
			}
			_, err := processor.New(cfg, newKeyJudge(0), o)
			if ce, is := errors.AsType[*pump.ConfigError](err); !is || ce.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		_, err := processor.New(w.Config("p", 1), nil, processor.Options{Discard: true, PerKey: pump.PerKey{Rate: 1}})
		if ce, is := errors.AsType[*pump.ConfigError](err); !is || ce.Field != "perKey" {
			t.Error(err)
		}
	})
	for text, want := range map[string]float64{"10/s": 10, "90/m": 1.5, "10": 10, "1/h": 0, "x/s": 0, "0/s": 0, "-1/s": 0, "0.5/m": 0, "NaN/s": 0, "Inf": 0} {
		var got pump.PerKey
		if err := got.SetRate(text); (err == nil) != (want > 0) || err == nil && got.Rate != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
