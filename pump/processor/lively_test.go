package processor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/shardmap"
)

// A set of 64 queues: the test measures what it costs while it is idle and how soon
// a lone task is begun in it.
func fleetOf64(nudged, silent int) idleCluster {
	return idleCluster{
		accounts: 8, queues: 8, segments: 256, processors: 8,
		settle: 2 * time.Minute, measure: 5 * time.Minute, nudged: nudged, silent: silent, apart: 5 * time.Second,
	}
}

// polledWithin is how many gets a second it takes to ask that many queues so often that a task
// waits for a second at most: what queues cost that are only polled.
func polledWithin(queues int, d time.Duration) float64 { return float64(queues) / d.Seconds() }

func TestP82AnIdleFleetOf64QueuesCostsASixthOfPollingAndBeginsATaskWithinASecond(t *testing.T) {
	proof.Only(t)
	c := fleetOf64(300, 20)
	costs := c.run(t)
	costs.check(t, c)
	delays := costs.nudged.delays(costs.nudged.acked)
	alone := polledWithin(64, time.Second)
	t.Logf("polling alone would need %.0f gets a second, the idle queues cost %.1f", alone, costs.queues)
	if costs.queues > 11 {
		t.Errorf("the idle queues cost %.1f requests a second to its queues, want 10 at most", costs.queues)
	}
	if p99 := delays.percentile(99); p99 > time.Second {
		t.Errorf("a lone task is begun %v after its put (p99), want a second", p99)
	}
}

// foreign puts lone messages as other programs do, that never nudge: each into the queue
// that is read for its text's segment.
func (c idleCluster) foreign(w *testworld.World, watch *stopwatch, of *shardmap.Map, from, to int) {
	random := rand.New(rand.NewPCG(2, uint64(from)))
	for i := range to - from {
		body := fmt.Sprint("foreign-", from+i)
		s := of.Shards[of.Home(shardmap.Segment([]byte(body), of.Segments))]
		watch.mu.Lock()
		watch.order = append(watch.order, body)
		watch.mu.Unlock()
		w.PutText(s.Account, s.Queue, []byte(body))
		watch.mu.Lock()
		watch.acked[body] = time.Now()
		watch.mu.Unlock()
		time.Sleep(c.apart/2 + time.Duration(random.Int64N(int64(c.apart))))
	}
}

// Once messages come without a nudge, none waits for the longest back-off any more;
// when they end, the queues are as cheap as before.
func TestP82MessagesWithoutNudgesMakeIdleQueuesBeAskedMoreOften(t *testing.T) {
	proof.Only(t)
	c := fleetOf64(0, 0)
	c.apart = time.Second
	testworld.In(t, workload.Spec{Segments: c.segments}, c.accounts, c.queues, nil, func(t *testing.T, w *testworld.World) {
		board := &switchboard{}
		watch := newStopwatch()
		var in atomic.Pointer[stopwatch]
		in.Store(watch)
		all := c.join(w, board, &in)
		of := w.Settled(c.processors).Workload.Map
		time.Sleep(c.settle)
		gets := func(during func()) float64 {
			before, began := w.Requests("GetMessages"), time.Now()
			during()
			return float64(w.Requests("GetMessages")-before) / time.Since(began).Seconds()
		}
		idle := gets(func() { time.Sleep(time.Minute) })
		c.foreign(w, watch, of, 0, 20)
		busy := gets(func() { c.foreign(w, watch, of, 20, 320) })
		time.Sleep(livelyFor + 2*idleBound(64)) // the last look at what is lively
		again := gets(func() { time.Sleep(time.Minute) })
		endAll(all)

		watch.check(t, 320)
		first := watch.begun[watch.order[0]].Sub(watch.acked[watch.order[0]])
		delete(watch.begun, watch.order[0])
		later := watch.delays(watch.acked)
		t.Logf("gets a second of %d processors: idle %.1f, with a message a second %.1f, idle again %.1f", c.processors, idle, busy, again)
		t.Logf("the first message was begun after %v, the others: %v", first, later)
		if first > idleBound(64)*5/4+100*time.Millisecond {
			t.Errorf("the first message was begun after %v", first)
		}
		if p99 := later.percentile(99); p99 > time.Second {
			t.Errorf("of the others one in a hundred is begun after more than %v, want a second", p99)
		}
		// A tenth more than the bound: what brings messages is followed by a get or two.
		if most := 1.1 * pollIdleRate * livelyMore; busy > most || idle > 1.1*pollIdleRate || again > 1.1*pollIdleRate {
			t.Errorf("gets a second: idle %.1f, busy %.1f, idle again %.1f", idle, busy, again)
		}
	})
}

// A message that was put back and comes again is no other program's doing.
func TestP82RetriesDoNotMakeIdleQueuesBeAskedMoreOften(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 8, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt < 20 {
				return pump.RetryAfter(20*time.Second, nil)
			}
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 100}})
		w.Settled(1)
		w.Put("accounta", "work-03", 1, 1)
		time.Sleep(time.Minute)
		before := w.Requests("GetMessages")
		time.Sleep(5 * time.Minute)
		// 8 queues at 5 s make 1.6 a second, the one that gives something a few more.
		if rate := float64(w.Requests("GetMessages")-before) / 300; rate > 2.5 {
			t.Errorf("%.1f gets a second", rate)
		}
		p.End()
	})
}
