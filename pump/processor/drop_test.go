package processor_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
)

// dropTasks makes the test of a large run as large as it is meant: make play WHAT=drop plays ten millions.
var dropTasks = flag.Int("drop.tasks", 1_000_000, "how many tasks the run has that is ended with --drop")

// dropFleet is a fleet whose processors are told of what is put.
type dropFleet struct {
	*testworld.World
	push switchboard
	all  []*started

	mu   sync.Mutex           // guards what follows
	puts map[string]time.Time // tasks of the other runs, until they are begun
	wait []time.Duration      // and how long those have waited that were
}

// begins notes how long a task has waited.
func (f *dropFleet) begins(t *pump.Task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := testworld.Identity(t)
	if at, ok := f.puts[key]; ok {
		f.wait = append(f.wait, time.Since(at))
		delete(f.puts, key)
	}
}

// waited gives the 99th percentile and the longest wait, once all have begun.
func (f *dropFleet) waited() (p99, worst time.Duration) {
	f.T.Helper()
	f.Within(5*time.Minute, "the others are begun", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.puts) == 0 })
	slices.Sort(f.wait)
	p99, worst = f.wait[len(f.wait)*99/100], f.wait[len(f.wait)-1]
	f.wait = nil
	return p99, worst
}

// dropPerMessage is how many tasks a message of the large run has.
const dropPerMessage = 640

// fleet starts processors that can be nudged.
func fleet(w *testworld.World, work func(context.Context, *pump.Task) error) *dropFleet {
	f := &dropFleet{World: w, puts: map[string]time.Time{}}
	h := pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		f.begins(t)
		return work(ctx, t)
	})
	for i := range 4 {
		cfg := w.Config(fmt.Sprintf("p%d", i), w.Cfg.Accounts[0].Queues)
		p := f.push.join(w, cfg, h, processor.Options{Concurrency: 16})
		f.all = append(f.all, testworld.Start(w.T, p))
	}
	w.Settled(4)
	return f
}

// putLarge puts the messages of a large run, as many into each queue.
func (f *dropFleet) putLarge(id pump.RunID, tasks int) (messages int) {
	m := f.ShardMap()
	ns := make([]uint64, m.Segments)
	b := codec.NewBuilder(0)
	for left := tasks; left > 0; messages++ {
		segment := uint32(messages % m.Segments)
		b.Reset(codec.Header{Workload: f.Cfg.Workload, Run: id, Segment: segment, MapVersion: 1})
		for range min(left, dropPerMessage) {
			if fits, err := b.Add(codec.Task{N: ns[segment], Key: []byte("key"), Body: []byte("a large run's")}); err != nil || !fits {
				f.T.Fatal(fits, err)
			}
			ns[segment]++
			left--
		}
		text, _, err := b.Seal(nil)
		proof.Must(f.T, err)
		home := m.Shards[m.Home(segment)]
		account, queue := home.Account, home.Queue
		for {
			_, err := f.Queue(account, queue).Put(f.T.Context(), text, 0)
			if err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return messages
}

// stream puts one task of another run after the other, each told to its owner, for a minute.
func (f *dropFleet) stream() {
	id := f.ManyRun()
	m, v := f.ShardMap(), f.View()
	at := time.Now()
	for i := 0; time.Since(at) < time.Minute; i++ {
		segment, n := uint32(i%m.Segments), uint64(i/m.Segments)
		home := m.Shards[m.Home(segment)]
		account, queue := home.Account, home.Queue
		f.mu.Lock()
		f.puts[testworld.Identity(&pump.Task{Run: id, Segment: segment, N: n})] = time.Now()
		f.mu.Unlock()
		f.PutText(account, queue, f.Text(segment, func(h *codec.Header) { h.Run = id }, n))
		if owner, ok := v.OwnerOf(segment); ok {
			f.push.by[owner.Instance].Nudged(pump.Nudge{Queue: account + "/" + queue})
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// dropped is what the end of a large run came to.
type dropped struct {
	freed time.Duration // from the command until nothing of it was left in a queue
	// p99 and worst are how long tasks of another run waited that were put in the minute from the
	// command on, and alone is the former of a minute without the large run.
	alone, p99, worst time.Duration
}

// playDrop ends a large run with --drop while another one goes on.
func playDrop(w *testworld.World, tasks int) (got dropped) {
	w.T.Helper()
	var large pump.RunID
	f := fleet(w, func(ctx context.Context, t *pump.Task) error {
		if t.Run == large {
			return testworld.Pause(ctx, 100*time.Millisecond)
		}
		return testworld.Pause(ctx, 50*time.Millisecond)
	})
	f.stream()
	got.alone, _ = f.waited()
	large = w.ManyRun()
	messages := f.putLarge(large, tasks)
	time.Sleep(20 * time.Second) // all handlers are at work on it
	began := time.Now()
	operator := w.Operator()
	operator.Nudge = f.push.carry
	freed := make(chan time.Duration)
	go func() {
		if _, err := runs.End(w.T.Context(), operator, large.String(), true, "too many"); err != nil {
			w.T.Error(err)
		}
		for w.Left() > 50 && time.Since(began) < 10*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		freed <- time.Since(began)
	}()
	f.stream()
	got.freed = <-freed
	got.p99, got.worst = f.waited()
	w.Within(time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
	var sum processor.Summary
	for _, p := range f.all {
		s := p.End()
		sum.Dropped, sum.Handled, sum.Quarantined, sum.Failed = sum.Dropped+s.Dropped, sum.Handled+s.Handled, sum.Quarantined+s.Quarantined, sum.Failed+s.Failed
	}
	w.T.Logf("%d tasks in %d messages: freed in %v; others alone p99 %v, in the minute from the command on p99 %v, worst %v; %d dropped, %d handled",
		tasks, messages, got.freed, got.alone, got.p99, got.worst, sum.Dropped, sum.Handled)
	if int(sum.Dropped)+int(sum.Handled) < tasks || sum.Quarantined+sum.Failed > 0 {
		w.T.Errorf("%+v", sum)
	}
	return got
}

// A run of very many tasks is thrown away within a minute, and meanwhile the others hardly wait.
func TestALargeRunThatIsDroppedIsGoneSoonAndHoldsUpNoOther(t *testing.T) {
	proof.Only(t)
	for _, delivery := range []string{string(pump.AtLeastOnce), string(pump.Once)} {
		t.Run(delivery, func(t *testing.T) {
			// Each message costs its part of a get and a delete, of the 2,000 that a queue gives in a
			// second: what is put behind 488 messages of it waits for half a second.
			testworld.In(t, workload.Spec{Delivery: delivery}, 10, 8, nil, func(t *testing.T, w *testworld.World) {
				got := playDrop(w, *dropTasks)
				if got.freed > time.Minute {
					t.Errorf("the run was gone after %v", got.freed)
				}
				if got.p99 > 2*got.alone {
					t.Errorf("the others waited %v, and %v without it", got.p99, got.alone)
				}
			})
		})
	}
}

// A script ends many runs, one after the other. The workload's row names the last 32, and a
// processor that looked before the first and after the last has missed some.
func TestManyRunsThatEndBetweenTwoLooksAreAllNoticed(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		const many = 40
		ids := make([]pump.RunID, many)
		account, queue := w.Home(3)
		put := func(id pump.RunID, n uint64) {
			w.PutText(account, queue, w.Text(3, func(h *codec.Header) { h.Run = id }, n))
		}
		for i := range ids {
			ids[i] = w.ManyRun()
			put(ids[i], 0)
		}
		w.Within(time.Minute, "the first tasks are done", func() bool { return h.Deliveries() == many })
		for _, id := range ids {
			proof.Must(t, w.AllRuns().End(t.Context(), id, true, "by a script"))
			proof.Must(t, workload.NoteEnded(t.Context(), w.Table(), w.Cfg.Workload, id))
		}
		time.Sleep(15 * time.Second)
		for _, id := range ids {
			put(id, 1)
		}
		time.Sleep(15 * time.Second)
		if n := h.Deliveries() - many; n > 0 {
			t.Errorf("%d tasks of ended runs were begun", n)
		}
		p.End()
	})
}
