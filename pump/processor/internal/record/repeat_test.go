package record_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// killed is a processor that dies with its so-manieth effect: neither its requests nor its handlers
// do anything from then on.
type killed struct {
	mu     sync.Mutex
	at     int             // effects
	die    func()          // called with the last
	done   map[string]bool // by the one that dies
	others map[string]int
}

func (k *killed) first(each time.Duration) pump.Handler {
	return pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		if err := testworld.Pause(ctx, each); err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.done) >= k.at {
			return testworld.ErrFlop
		}
		if k.done[testworld.Identity(t)] = true; len(k.done) == k.at {
			k.die()
		}
		return nil
	})
}

func (k *killed) Handle(_ context.Context, t *pump.Task) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.others[testworld.Identity(t)]++
	return nil
}

func (k *killed) repeats() (tasks, again int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tasks = len(k.done)
	for id, n := range k.others {
		if !k.done[id] {
			tasks, n = tasks+1, n-1
		}
		again += n
	}
	return tasks, again
}

// What a process does that dies is done again as far as it is on no record: with once hardly more
// than with at least once.
func TestACrashOfOnceRepeatsHardlyMoreThanOfAtLeastOnce(t *testing.T) {
	for _, c := range []struct {
		each     time.Duration
		handlers int
	}{{time.Millisecond, 4}, {2 * time.Millisecond, 8}, {100 * time.Millisecond, 256}} {
		for _, packed := range []int{1, 100} {
			t.Run(fmt.Sprintf("%v, %d a message", c.each, packed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(uint64(c.each), uint64(packed)))
				for range 2 {
					at := 800 + random.IntN(1200)
					least := repeated(t, workload.Spec{}, c.each, c.handlers, packed, at)
					once := repeated(t, workload.Spec{Delivery: string(pump.Once)},
						c.each, c.handlers, packed, at)
					t.Logf("killed at %d: at least once repeats %d, once %d", at, least, once)
					if once > least*3/2+200 {
						t.Errorf("killed at %d: at least once repeats %d, once %d", at, least, once)
					}
				}
			})
		}
	}
}

// repeated is how many tasks are done again after a processor died with its effect number at.
func repeated(
	t *testing.T, spec workload.Spec, each time.Duration, handlers, packed, at int,
) (again int) {
	testworld.In(t, spec, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := 0
		for tasks < 2200 {
			tasks += w.PutHome(w.EverySegment(), packed)
		}
		k := &killed{at: at, done: map[string]bool{}, others: map[string]int{}}
		k.die = func() { w.Crash("p") }
		p := testworld.Begun(w, processor.New, "p", k.first(each), processor.Options{Concurrency: handlers})
		w.Within(time.Minute, "it is dead", func() bool { n, _ := k.repeats(); return n == at })
		p.Stop()
		q := testworld.Begun(w, processor.New, "q", k, processor.Options{})
		w.Within(10*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		q.End()
		<-p.Done
		n, more := k.repeats()
		if again = more; n != tasks {
			t.Errorf("%d of %d tasks were done", n, tasks)
		}
	})
	return again
}
