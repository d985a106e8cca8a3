package worlds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/storage"
)

// empty takes everything out of the work queues for good, as an account does that loses its data.
func (w *world) empty() {
	w.T.Helper()
	for _, s := range setup.Shards(w.Cfg) {
		q := w.Queue(s.Account, s.Queue)
		for {
			ms, err := q.Get(w.T.Context(), storage.MaxGet, time.Minute)
			must(w.T, err)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				must(w.T, q.Delete(w.T.Context(), m.Receipt))
			}
		}
	}
}

func TestARunIsStuckWhenTheQueuesAreEmptyAndTasksAreMissing(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		run, s := w.distributed(500), w.scribe()
		lost := fullSegment(t, run.Sealed, 3)
		done := below(run.Sealed)
		done[lost] = codec.MakeNSet(1)
		s.record(run.ID, done, nil)
		began := time.Now()
		g := w.wait(t.Context(), run.ID, pump.WaitOptions{})
		time.Sleep(15 * time.Minute) // its messages are there: somebody may get them yet
		if g.over() {
			t.Fatalf("it gave up while messages were left: %v", g.err)
		}
		if n := w.Logged("messages are left in the queues"); n < 10 || n > 15 {
			t.Errorf("in 15 minutes the log said %d times why nothing happens", n)
		}
		w.empty()
		emptied := time.Now()
		<-g.done
		stuck, ok := errors.AsType[*pump.StuckError](g.err)
		if !ok || g.State != pump.RunStuck || stuck.Missing != run.Sealed[lost]-1 || len(stuck.Lacking) != 1 || g.Lacking[0] != (pump.SegmentLack{Segment: lost, Tasks: run.Sealed[lost] - 1}) {
			t.Fatalf("%+v, %v", g.Completion, g.err)
		}
		for _, want := range []string{"distributor runs repair " + run.ID.String(), fmt.Sprintf("%d of segment %d", run.Sealed[lost]-1, lost)} {
			if !strings.Contains(stuck.Error(), want) {
				t.Errorf("%q does not say %q", stuck, want)
			}
		}
		if took := time.Since(emptied); took < closing.StuckAfter || took > 2*closing.StuckAfter {
			t.Errorf("it took %v of %v", took, time.Since(began))
		}
	})
}

// Other programs' queues hold no task of a run, however many messages they put there.
func TestARunIsStuckWhateverWaitsInForeignQueues(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		run, _ := w.distributed(50), w.scribe()
		must(t, w.Queue("accounta", "orders").Create(t.Context()))
		cfg := w.Operator()
		cfg.Accounts[0].Foreign = []string{"orders"}
		must(t, errOf(accounts.Add(t.Context(), cfg, "accounta")))
		w.PutText("accounta", "orders", []byte("{}"))
		w.empty()
		g := w.wait(t.Context(), run.ID, pump.WaitOptions{Timeout: time.Hour})
		<-g.done
		if _, ok := errors.AsType[*pump.StuckError](g.err); !ok || g.State != pump.RunStuck {
			t.Errorf("%+v, %v", g.Completion, g.err)
		}
	})
}

// A processor at work may have what is missing: an approximate count of zero, once, says nothing.
func TestARunIsNotStuckWhileAnythingIsRecordedOrAQueueMayHoldSomething(t *testing.T) {
	t.Run("something is recorded", func(t *testing.T) {
		inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
			run, s := w.distributed(500), w.scribe()
			w.empty()
			lost := fullSegment(t, run.Sealed, 3)
			g := w.wait(t.Context(), run.ID, pump.WaitOptions{StuckAfter: 30 * time.Second})
			done := below(run.Sealed)
			done[lost] = codec.NSet{}
			s.record(run.ID, done, nil)
			for n := range run.Sealed[lost] {
				time.Sleep(50 * time.Second) // nearly too long, each time
				if g.over() {
					t.Fatalf("it gave up before task %d: %v", n, g.err)
				}
				s.record(run.ID, map[uint32]codec.NSet{lost: codec.MakeNSet(n)}, nil)
			}
			if <-g.done; g.err != nil || g.Done != 500 {
				t.Errorf("%+v, %v", g.Completion, g.err)
			}
		})
	})
	t.Run("an account is dark", func(t *testing.T) {
		inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
			run := w.distributed(100)
			w.empty()
			w.Fault(azsim.Rule{Instance: "waiter", Account: "accountb", Service: "queue", Fault: azsim.FailBefore})
			g := w.wait(t.Context(), run.ID, pump.WaitOptions{})
			time.Sleep(10 * closing.StuckAfter)
			if g.over() || w.Logged("whether messages are left could not be learned") == 0 {
				t.Errorf("it gave up: %v", g.err)
			}
		})
	})
	t.Run("a queue is not always empty", func(t *testing.T) {
		inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
			run := w.distributed(100)
			w.empty()
			g := w.wait(t.Context(), run.ID, pump.WaitOptions{})
			for range 20 { // another run's, or one that is passed on
				time.Sleep(closing.StuckAfter / 2)
				w.Put("accounta", "work-01", 1, 1)
				time.Sleep(closing.StuckAfter / 2)
				w.empty()
			}
			if g.over() {
				t.Errorf("it gave up: %v", g.err)
			}
		})
	})
}
