package worlds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

// editRow changes a row of the cluster's partition as no program does.
func (w *world) editRow(key string, mode storage.Mode, edit func(e *storage.Entity)) {
	w.T.Helper()
	e, err := w.Table().Read(w.T.Context(), w.Cfg.Workload, key)
	if err != nil {
		w.T.Fatal(err)
	}
	edit(&e)
	if _, err := w.Table().Write(w.T.Context(), storage.Write{Mode: mode, Entity: e}); err != nil {
		w.T.Fatal(err)
	}
}

// Messages of other programs keep their names while they are parked, so each is recorded once.
func TestForeignMessagesOfAPausedKeyWaitOutOfTheWay(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		w.makeForeign()
		const all = 170
		h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			return testworld.Pause(ctx, 100*time.Millisecond)
		}}}
		p := w.shopProcessor("p", h)
		time.Sleep(10 * time.Second)
		operator := w.shop("operator")
		part := workloads.Part{Key: []byte("city 3")}
		if _, err := workloads.PausePart(t.Context(), operator, part, "me"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(twoBeats)
		w.putOrders(all)
		w.Within(3*time.Minute, "all others are done", func() bool { return h.Tasks() == all-10 })
		time.Sleep(time.Hour)
		if n := h.ofKey("city 3", time.Time{}); n > 0 {
			t.Errorf("%d tasks of the paused key were begun", n)
		}
		if n := w.inForeign() + w.inShopQueues(); n > 0 {
			t.Errorf("%d messages stand in the way", n)
		}
		if n := w.Count("accounta", "shop-park-1") + w.Count("accountb", "shop-park-1"); n != 10 {
			t.Errorf("%d messages are parked", n)
		}
		if _, err := workloads.ResumePart(t.Context(), operator, part); err != nil {
			t.Fatal(err)
		}
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == all })
		p.End()
		h.Expect(t, all, all)
	})
}

// A run or key that cannot be paused is refused, and nothing has changed.
func TestWhatCannotBePausedIsRefused(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		version := w.ShardMap().Version
		refused := func(part workloads.Part, words string) {
			t.Helper()
			_, err := workloads.PausePart(t.Context(), w.Operator(), part, "me")
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v, want %q", err, words)
			}
		}
		refused(workloads.Part{Run: "abcd"}, workload.ErrNoRun.Error())
		refused(workloads.Part{Run: "xyz"}, "is not the id of a run")
		refused(workloads.Part{}, "0 bytes")
		refused(workloads.Part{Key: make([]byte, workload.MaxParkedKey+1)}, "513 bytes")
		ended := w.NewRun()
		if err := w.AllRuns().End(t.Context(), ended, false, "by hand"); err != nil {
			t.Fatal(err)
		}
		refused(workloads.Part{Run: ended.String()}, "nothing of it is started any more")
		if v := w.ShardMap().Version; v != version {
			t.Errorf("the map has version %d, and had %d", v, version)
		}
		for i := range workload.MaxParkings {
			w.pausePart(workloads.Part{Key: fmt.Appendf(nil, "key %d", i)})
		}
		refused(workloads.Part{Key: []byte("one more")}, "8 runs and keys are paused")
		again, err := workloads.PausePart(t.Context(), w.Operator(), workloads.Part{Key: []byte("key 3")}, "another")
		if err != nil || again.Changed || !again.Paused || again.By != "me" {
			t.Errorf("%+v, %v", again, err)
		}
		if c, err := workloads.ResumePart(t.Context(), w.Operator(), workloads.Part{Key: []byte("key 9")}); err != nil || c.Changed || c.Paused {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// A mark is written once, also if its answer is lost; one that comes home can be paused again, and
// its messages stay parked.
func TestARunIsPausedAgainWhileItComesHome(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome(w.EverySegment(), 3)
		part := workloads.Part{Run: w.Run.String()}
		w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.AnswerLost, First: 1}, "UpdateEntity", "MergeEntity")
		w.pausePart(part)
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(2 * time.Minute)
		w.ExpectEmpty()
		w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.AnswerLost, First: 1}, "UpdateEntity", "MergeEntity")
		w.resumePart(part)
		w.pausePart(part)
		windowHit(t, len(w.EverySegment())) // messages, each on its way
		time.Sleep(time.Hour)
		w.ExpectEmpty()
		if n := h.Tasks(); n > 0 {
			t.Errorf("%d tasks were begun", n)
		}
		w.resumePart(part)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		w.comesHome()
		p.End()
		h.Expect(t, tasks, tasks)
	})
}

// A processor and a distributor that come while a run is paused take part, though the map has
// queues that no configuration names.
func TestWhoComesWhileARunIsPausedTakesPart(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		held := w.PutHome(w.EverySegment(), 1)
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		d := w.distributor("d", &testworld.ListSource{Print: "a", N: 50}, distributor.Options{})
		if _, err := d.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Within(3*time.Minute, "what was sent is done", func() bool { return h.Tasks() == 50 })
		time.Sleep(time.Minute)
		if n := h.ofRun(w.Run, time.Time{}); n > 0 {
			t.Errorf("%d tasks of the paused run were begun", n)
		}
		w.resumePart(part)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == 50+held })
		w.comesHome()
		p.End()
		h.Expect(t, 50+held, 50+held)
	})
}

// A run that is ended while it is paused comes home and meets its end.
func TestAPausedRunThatIsDroppedComesHomeAndIsDropped(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome(w.EverySegment(), 2)
		w.pausePart(workloads.Part{Run: w.Run.String()})
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(time.Minute)
		w.ExpectEmpty()
		if _, err := runs.End(t.Context(), w.Operator(), w.Run.String(), true, "not wanted"); err != nil {
			t.Fatal(err)
		}
		w.comesHome()
		s := p.End()
		if s.Dropped != int64(tasks) || h.Tasks() > 0 {
			t.Errorf("%d of %d tasks were dropped, and %d begun", s.Dropped, tasks, h.Tasks())
		}
		w.ExpectEmpty()
	})
}

// No run ends for being quiet while tasks of one are parked, and the parked ones are done hours
// later.
func TestNoRunEndsForBeingQuietWhileItIsParked(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		h := &begun{}
		p := w.start(w.processor(h, processor.Options{}))
		time.Sleep(15 * time.Second)
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		time.Sleep(twoBeats)
		tasks := w.PutHome(w.EverySegment()[:8], 5)
		if err := w.AllRuns().Break(t.Context(), w.Run, "its source is gone"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		if run := w.RunRow(w.Run); run.Over || run.State != workload.RunBroken {
			t.Errorf("%+v", run)
		}
		w.resumePart(part)
		w.Within(time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		w.comesHome()
		w.Within(5*time.Hour, "the run ends", func() bool { return w.RunRow(w.Run).Over })
		p.End()
		if list := w.Condemned(); len(list) > 0 {
			t.Errorf("%v", list)
		}
	})
}

// An account is not removed while something is parked in it, and what is parked in none that drains
// becomes no home of segments when the account is added again.
func TestAnAccountWithParkedMessagesIsNotRemoved(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome(w.EverySegment(), 2)
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(time.Minute)
		for _, again := range []bool{true, false} {
			if _, err := accounts.Drain(t.Context(), w.Operator(), "accountb"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			_, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{})
			if e, ok := errors.AsType[*accounts.Error](err); !ok || !strings.Contains(e.Problem, "is paused are left") {
				t.Errorf("%v", err)
			}
			if again {
				if _, err := accounts.Add(t.Context(), w.Operator(), "accountb"); err != nil {
					t.Fatal(err)
				}
				for i, s := range w.ShardMap().Shards {
					if parks := s.Queue == "work-park-1"; parks != (s.State == shardmap.Draining) {
						t.Errorf("shard %d: %+v", i, s)
					}
				}
			}
		}
		w.resumePart(part)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		w.comesHome()
		time.Sleep(2 * time.Minute)
		if _, err := accounts.Remove(t.Context(), w.Operator(), "accountb", accounts.RemoveOptions{}); err != nil {
			t.Error(err)
		}
		p.End()
		h.Expect(t, tasks, tasks)
	})
}

// An account that is added while a run is paused has no parking queue: what is met there is parked
// in another one.
func TestWhatIsMetInAnAddedAccountIsParkedInAnother(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		w.Without("accountb")
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(30 * time.Second)
		if _, err := accounts.Add(t.Context(), w.Operator(), "accountb"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		tasks := w.PutHome(w.EverySegment(), 2)
		time.Sleep(3 * time.Minute)
		w.ExpectEmpty()
		if n := h.Tasks(); n > 0 {
			t.Errorf("%d tasks were begun", n)
		}
		w.resumePart(part)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		w.comesHome()
		p.End()
		h.Expect(t, tasks, tasks)
	})
}

// While the control account is dark nothing is parked, and nothing of a paused run is begun.
func TestNothingIsParkedByAnOldMap(t *testing.T) {
	verify.Only(t)
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(time.Minute)
		dark := w.Fault(azsim.Rule{Fault: azsim.Answer}, "QueryEntities", "GetEntity", "UpdateEntity", "MergeEntity", "InsertEntity", "Batch")
		time.Sleep(3 * time.Minute)
		tasks := w.PutHome(w.EverySegment()[:16], 2)
		time.Sleep(3 * time.Minute)
		if n := w.Count("accounta", "work-park-1") + w.Count("accountb", "work-park-1"); n > 0 || h.Tasks() > 0 {
			t.Errorf("%d messages are parked and %d tasks begun", n, h.Tasks())
		}
		windowHit(t, w.Left())
		dark.Remove()
		w.Within(3*time.Minute, "all is parked", func() bool { return w.Left() == 0 })
		w.resumePart(part)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		s := p.End()
		h.Expect(t, tasks, tasks)
		if s.Quarantined+s.Split > 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A row that came back as it was may lack the mark: what is parked comes home.
func TestWhatIsParkedWithoutAMarkComesHome(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome(w.EverySegment(), 2)
		w.pausePart(workloads.Part{Run: w.Run.String()})
		h := &begun{}
		p := w.start(w.processorOf("p", h, processor.Options{}))
		time.Sleep(time.Minute)
		w.ExpectEmpty()
		w.editRow("workload", storage.Upsert, func(e *storage.Entity) { delete(e.Properties, "Parkings") })
		windowHit(t, 1)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		w.comesHome()
		p.End()
		h.Expect(t, tasks, tasks)
	})
}

// A14: while a key is paused no name goes for its age, since a copy of its task may be parked. Once
// all is home they do.
func TestANameIsKnownWhileACopyOfItIsParked(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		w.fillNames(ledger.MaxForeign)
		part := workloads.Part{Key: []byte("key")}
		w.pausePart(part)
		account, queue := w.Home(testworld.Greeted)
		for range 3 {
			w.PutText(account, queue, testworld.Greeting)
		}
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{Grace: 5 * time.Second}))
		time.Sleep(2 * namesKept)
		h.Expect(t, 0, 0)
		w.resumePart(part)
		w.comesHome()
		w.Within(10*time.Minute, "all are handled", func() bool { return h.Tasks() == 3 })
		p.End()
	})
}

// A message in hand that is not started goes back, and is parked when it comes again.
func TestWhatIsInHandOfARunThatIsPausedIsParked(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		tasks := w.PutHome([]uint32{3}, 100)
		h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			return testworld.Pause(ctx, time.Second)
		}}}
		p := w.start(w.processor(h, processor.Options{Concurrency: 1}))
		time.Sleep(8 * time.Second)
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		at := time.Now()
		time.Sleep(time.Minute)
		if n := h.ofRun(w.Run, at.Add(twoBeats)); n > 0 || h.Tasks() == 0 {
			t.Errorf("%d tasks were begun later than two beats after the pause, %d in all", n, h.Tasks())
		}
		if n := w.Count("accounta", "work-park-1"); n != 1 {
			t.Errorf("%d messages are parked", n)
		}
		w.resumePart(part)
		w.Within(3*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		w.comesHome()
		if s := p.End(); s.Failed > 0 {
			t.Errorf("%+v", s)
		}
		h.Expect(t, tasks, tasks)
	})
}

// A mark stays while a processor works on what came out of its queues.
func TestAMarkStaysUntilItsQueuesAreEmpty(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		part := workloads.Part{Run: w.Run.String()}
		w.pausePart(part)
		tasks := w.PutHome([]uint32{3, 4, 5}, 1)
		h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			return testworld.Pause(ctx, 5*time.Minute)
		}}}
		p := w.start(w.processor(h, processor.Options{Concurrency: 1}))
		time.Sleep(time.Minute)
		w.resumePart(part)
		time.Sleep(8 * time.Minute)
		if list := w.parked(); len(list) != 1 || list[0].Returning == nil || *list[0].Messages != 2 {
			t.Errorf("%+v", list)
		}
		w.Within(20*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		time.Sleep(6 * time.Minute)
		w.comesHome()
		p.End()
		h.Expect(t, tasks, tasks)
	})
}
