package processor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// inFencedWorld is a world in mode once of so many segments and queues of two accounts, in which a
// request to the table takes so long, and one to a queue 20 ms.
func inFencedWorld(t *testing.T, segments, queues int, table time.Duration, test func(t *testing.T, w *testworld.World)) {
	t.Helper()
	spec := workload.Spec{Delivery: string(pump.Once), Segments: segments}
	change := func(c *azsim.Config) { c.Latency = 20 * time.Millisecond }
	testworld.In(t, spec, 2, queues/2, change, func(t *testing.T, w *testworld.World) {
		w.Pinned = segments
		if more := table - 20*time.Millisecond; more > 0 {
			for _, op := range []string{"QueryEntities", "Batch", "GetEntity", "MergeEntity", "UpdateEntity", "InsertEntity"} {
				w.Sim.Inject(azsim.Rule{Operations: []string{op}, Fault: azsim.DelayBefore, Delay: more})
			}
		}
		test(t, w)
	})
}

// fill puts a message of so many tasks for every n-th segment and says how many tasks that is.
func fill(w *testworld.World, n, tasks int) (all int) {
	w.T.Helper()
	for s := 0; s < w.ShardMap().Segments; s += n {
		account, queue := w.Home(uint32(s))
		w.PutText(account, queue, w.Envelope(uint32(s), tasks))
		all += tasks
	}
	return all
}

// deliveredEach is how often a message was delivered, on the average, if each was handled once.
func deliveredEach(s processor.Summary, messages int) float64 {
	return float64(s.Envelopes) / float64(messages)
}

// A3: an owner that began to poll before it noted that it had fenced got its own messages again and
// again, 38,983 deliveries of 4,096, and split 3,584 of them as suspicious.
func TestP32AnOwnerPutsNothingOfItsOwnBackWhileItFences(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct {
		segments, queues int
		table            time.Duration
	}{{256, 8, 20 * time.Millisecond}, {256, 8, 500 * time.Millisecond}, {4096, 128, 20 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%d segments, %v", c.segments, c.table), func(t *testing.T) {
			inFencedWorld(t, c.segments, c.queues, c.table, func(t *testing.T, w *testworld.World) {
				messages := c.segments
				tasks := fill(w, 1, 2)
				began := time.Now()
				h := &testworld.Seen{}
				s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 20 * time.Second})
				h.Expect(t, tasks, tasks)
				t.Logf("%d deliveries of %d messages, first task after %v, %d split", s.Envelopes, messages, h.First.Sub(began), s.Split)
				if each := deliveredEach(s, messages); each > 1.05 {
					t.Errorf("each message was delivered %.2f times", each)
				}
				if s.Split > 0 {
					t.Errorf("%d envelopes were split", s.Split)
				}
				if first := h.First.Sub(began); c.table == 20*time.Millisecond && first > 2*time.Second {
					t.Errorf("the first task began after %v", first)
				}
				w.ExpectEmpty()
			})
		})
	}
}

// inUse waits until a processor works on all segments and gives how long that took.
func inUse(w *testworld.World, p *started, within time.Duration) time.Duration {
	w.T.Helper()
	began := time.Now()
	w.Within(within, "every segment is in use", func() bool {
		s := p.Of.State()
		return s.Cluster.Held == w.Segments() && s.Unfenced == 0
	})
	return time.Since(began)
}

// A4: one try read every page of a partition, or began anew.
func TestP32EverySegmentIsInUseWithinAMinuteThoughATableRequestTakesHalfASecond(t *testing.T) {
	inFencedWorld(t, 4096, 128, 500*time.Millisecond, func(t *testing.T, w *testworld.World) {
		before := w.Requests("QueryEntities")
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{})
		took := inUse(w, p, time.Minute)
		queries := w.Requests("QueryEntities") - before
		t.Logf("after %v, by %d queries", took, queries)
		if queries > 64+40 { // of the cluster's rows some
			t.Errorf("%d queries for 64 partitions", queries)
		}
		p.End()
	})
}

// A4: whatever is wrong with one segment, the others of its partition are worked on, and what is
// claimed later is fenced at once.
func TestP32ADamagedOrLockedSegmentDelaysNoOther(t *testing.T) {
	inFencedWorld(t, 256, 8, 20*time.Millisecond, func(t *testing.T, w *testworld.World) {
		w.FenceAt(7, 1<<53) // above which there is no epoch
		setHead(w, 9, "Format", int64(99))
		tasks := fill(w, 1, 1)
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Within(5*time.Second, "all others are done", func() bool { return h.Tasks() == tasks-2 })
		time.Sleep(5 * time.Minute)
		if w.Logged("ledger of segments cannot be read") == 0 || w.Logged("have not become this process's for long") == 0 {
			t.Error("nothing was said of the two segments")
		}
		if trouble := w.Status(status.Options{}).Instances[0].Trouble; !strings.Contains(trouble, "ledgers of 2 segments") {
			t.Errorf("the status says %q", trouble)
		}
		if s := p.Of.State().Done; s.Split > 0 || s.Envelopes > int64(tasks+2*40) {
			t.Errorf("%d deliveries, %d split", s.Envelopes, s.Split)
		}
		p.End()
		h.Expect(t, tasks-2, tasks-2)
	})
}

// setHead changes a property of a segment's head.
func setHead(w *testworld.World, segment uint32, property string, value any) {
	w.T.Helper()
	w.FenceAt(segment, 1)
	partition, row := fmt.Sprintf("work.ledger.%02d", segment/64), fmt.Sprintf("head.%04d", segment)
	proof.Must(w.T, proof.ErrOf(w.Table().Write(w.T.Context(), storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: partition, Row: row, Properties: map[string]any{property: value},
	}})))
}

// Two processes hand segments over while messages are in their queues and a request to the table
// takes a fifth of a second. Each message is put back once or twice on the way, and none is
// suspected.
func TestP32SegmentsThatAreHandedOverAreNotPutBackAgainAndAgain(t *testing.T) {
	inFencedWorld(t, 256, 8, 200*time.Millisecond, func(t *testing.T, w *testworld.World) {
		tasks := fill(w, 1, 2)
		h := &testworld.Seen{}
		h.Work = func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, 500*time.Millisecond) }
		o := processor.Options{Concurrency: 8}
		a := testworld.Begun(w, processor.New, "a", h, o)
		time.Sleep(5 * time.Second)
		b := testworld.Begun(w, processor.New, "b", h, o)
		w.Within(5*time.Minute, "all is done", func() bool { return w.Left() == 0 })
		sa, sb := a.End(), b.End()
		t.Logf("%d and %d deliveries of 256 messages", sa.Envelopes, sb.Envelopes)
		if sa.Split+sb.Split > 0 {
			t.Errorf("%d envelopes were split", sa.Split+sb.Split)
		}
		h.Expect(t, tasks, tasks)
	})
}
