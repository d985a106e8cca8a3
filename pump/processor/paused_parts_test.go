package processor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

// of counts such tasks that were begun after a time.
func (b *begun) of(is func(*pump.Task) bool, after time.Time) (n int) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for i, at := range b.at {
		if at.After(after) && is(&b.Order[i]) {
			n++
		}
	}
	return n
}

func pausePart(w *testworld.World, part workloads.Part) {
	w.T.Helper()
	c, err := workloads.PausePart(w.T.Context(), w.Operator(), part, "me")
	if err != nil || !c.Paused || !c.Changed || c.By != "me" {
		w.T.Fatalf("%+v, %v", c, err)
	}
}

func resumePart(w *testworld.World, part workloads.Part) {
	w.T.Helper()
	c, err := workloads.ResumePart(w.T.Context(), w.Operator(), part)
	if err != nil || c.Paused || !c.Changed {
		w.T.Fatalf("%+v, %v", c, err)
	}
}

// At any moment: after two beats nothing of a paused run is started, while another run goes on; within
// five minutes of the resume each of its tasks is done, once and in its first attempt, and no mark is
// left.
func TestARunThatIsPausedWaitsOutOfTheWay(t *testing.T) {
	proof.Only(t)
	for _, way := range []workload.Spec{{Delivery: string(pump.Once)}, {}, {Shared: true}} {
		for _, moment := range []time.Duration{0, 20 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second, 11300 * time.Millisecond} {
			t.Run(fmt.Sprint(way.Delivery, way.Shared, " ", moment), func(t *testing.T) {
				testworld.In(t, way, 2, 2, nil, func(t *testing.T, w *testworld.World) {
					run := w.Run
					held := w.PutHome(w.EverySegment(), 4)
					w.Run = w.NewRun()
					other := w.PutHome(w.EverySegment(), 4)
					waitsOutOfTheWay(w, moment, pausedCase{
						part: workloads.Part{Run: run.String()}, held: held, all: held + other,
						is: func(task *pump.Task) bool { return task.Run == run },
					})
				})
			})
		}
	}
}

// pausedCase is a run or a key that is paused, with how many tasks it has of all that there are.
type pausedCase struct {
	part      workloads.Part
	held, all int
	is        func(*pump.Task) bool
}

// waitsOutOfTheWay pauses a run or a key at a moment of two processors' work, and resumes it.
func waitsOutOfTheWay(w *testworld.World, moment time.Duration, c pausedCase) {
	t := w.T
	h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
		return testworld.Pause(ctx, 500*time.Millisecond)
	}}}
	o := processor.Options{Concurrency: 2}
	a, b := testworld.Begun(w, processor.New, "a", h, o), testworld.Begun(w, processor.New, "b", h, o)
	time.Sleep(3*time.Second + moment)
	pausePart(w, c.part)
	at := time.Now()
	time.Sleep(12 * time.Minute)
	if n := h.of(c.is, at.Add(twoBeats)); n > 0 {
		t.Errorf("%d paused tasks were begun later than two beats after", n)
	}
	begun := h.of(c.is, time.Time{})
	if others := h.Tasks() - begun; begun == c.held || others != c.all-c.held {
		t.Errorf("%d of %d paused tasks are done, and %d of %d others", begun, c.held, others, c.all-c.held)
	}
	s, err := status.Read(t.Context(), w.Operator(), status.Options{})
	if list := s.PausedParts; err != nil || len(list) != 1 || list[0].Run != c.part.Run || list[0].Key != string(c.part.Key) || list[0].By != "me" {
		t.Errorf("%+v, %v", list, err)
	}
	resumePart(w, c.part)
	working := time.Duration(c.all) * 500 * time.Millisecond / 2
	w.Within(putOffMost+working, "all is done", func() bool { return h.Tasks() == c.all })
	noneIsPaused(w)
	sa, sb := a.End(), b.End()
	undisturbed(w, h, c.all, sa, sb)
}

// noneIsPaused checks that the marks are gone, or go by themselves.
func noneIsPaused(w *testworld.World) {
	w.T.Helper()
	w.Within(time.Minute, "no mark is left", func() bool {
		wl, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
		return err == nil && len(wl.PausedParts) == 0
	})
}

// putKeyed puts envelopes of a segment of a key, with tasks of it and of others between them.
func putKeyed(w *testworld.World, key string, envelopes, of, others int) (tasks, held int) {
	w.T.Helper()
	m := w.ShardMap()
	segment := shardmap.Segment([]byte(key), m.Segments)
	home := m.Shards[m.Home(segment)]
	for range envelopes {
		var sent []codec.Task
		for i := range of + others {
			k := key
			if i%2 == 1 && i/2 < others || i >= 2*of {
				k = fmt.Sprint("other", i)
			} else {
				held++
			}
			n := w.Ns[segment]
			w.Ns[segment]++
			sent = append(sent, codec.Task{N: n, Key: []byte(k), Body: fmt.Append(nil, n)})
			tasks++
		}
		header := codec.Header{Workload: w.Cfg.Workload, Run: w.Run, Segment: segment, MapVersion: 1}
		w.PutText(home.Account, home.Queue, w.Sealed(header, sent...))
	}
	return tasks, held
}

func ofKey(key string) func(*pump.Task) bool {
	return func(t *pump.Task) bool { return string(t.Key) == key }
}

// The same of a key: those beside it in its messages are done.
func TestAKeyThatIsPausedWaitsOutOfTheWay(t *testing.T) {
	proof.Only(t)
	for _, way := range []workload.Spec{{Delivery: string(pump.Once)}, {}, {Shared: true}} {
		for _, moment := range []time.Duration{0, 20 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second} {
			t.Run(fmt.Sprint(way.Delivery, way.Shared, " ", moment), func(t *testing.T) {
				testworld.In(t, way, 2, 2, nil, func(t *testing.T, w *testworld.World) {
					const key = "customer-17"
					mixed, held := putKeyed(w, key, 8, 5, 7)
					alone, more := putKeyed(w, key, 3, 4, 0)
					waitsOutOfTheWay(w, moment, pausedCase{
						part: workloads.Part{Key: []byte(key)}, held: held + more,
						all: mixed + alone + w.PutHome(w.EverySegment(), 2), is: ofKey(key),
					})
				})
			})
		}
	}
}

// Messages of other programs keep their names while they are put back, so each is recorded once.
// They do not stay in queues into which nothing may be put.
func TestForeignMessagesOfAPausedKeyWaitOutOfTheWay(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		makeForeign(w)
		const all = 170
		h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			return testworld.Pause(ctx, 100*time.Millisecond)
		}}}
		p := shopProcessor(w, "p", h)
		time.Sleep(10 * time.Second)
		operator := shop(w, "operator")
		part := workloads.Part{Key: []byte("city 3")}
		proof.Must(t, proof.ErrOf(workloads.PausePart(t.Context(), operator, part, "me")))
		time.Sleep(twoBeats)
		putOrders(w, all)
		w.Within(3*time.Minute, "all others are done", func() bool { return h.Tasks() == all-10 })
		time.Sleep(time.Hour)
		if n := h.of(ofKey("city 3"), time.Time{}); n > 0 || inForeign(w) > 0 || inShopQueues(w) != 10 {
			t.Errorf("%d paused tasks were begun, %d messages are where they came, %d at home", n, inForeign(w), inShopQueues(w))
		}
		proof.Must(t, proof.ErrOf(workloads.ResumePart(t.Context(), operator, part)))
		w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == all })
		if s := p.End(); s.Split+s.Quarantined+s.Failed > 0 || w.Logged("so often") > 0 {
			t.Errorf("%+v", s)
		}
		h.Expect(t, all, all)
	})
}

// What is paused costs little, is never suspected of ending its processes, and is not waited for.
func TestWhatIsPausedIsMetEveryFewMinutes(t *testing.T) {
	proof.Only(t)
	for _, ofKey := range []bool{false, true} {
		t.Run(fmt.Sprint(ofKey), func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				const key = "customer-17"
				const messages = 8
				tasks, _ := putKeyed(w, key, messages, 4, 0)
				part := workloads.Part{Run: w.Run.String()}
				if ofKey {
					part = workloads.Part{Key: []byte(key)}
				}
				pausePart(w, part)
				h := &begun{}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				time.Sleep(time.Hour)
				ends := w.Requests("UpdateMessage") + w.Requests("DeleteMessage")
				if ends < 12*messages || ends > 32*messages || w.Left() != messages {
					t.Errorf("%d messages went back %d times in an hour", w.Left(), ends)
				}
				idle := &begun{}
				proof.Must(t, proof.ErrOf(testworld.Made(w, processor.New, "idle", idle, processor.Options{UntilIdle: time.Minute}).Run(t.Context())))
				resumePart(w, part)
				w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
				s := p.End()
				h.Expect(t, tasks, tasks)
				if s.Split+s.Quarantined+s.Failed > 0 || w.Logged("so often") > 0 || idle.Tasks() > 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Processors leave while something is paused. What they passed on to each other, which is innocent
// among many, is not suspected by the one that stays: messages of one task would not be put anew
// any more, and be tried alone for good. (Among many a message can meet its owner so late that it is
// suspected. That is over when it is put back.)
func TestWhatIsPausedIsNotSuspectedWhenProcessorsLeave(t *testing.T) {
	proof.Only(t)
	for _, ofKey := range []bool{false, true} {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			const key = "customer-17"
			tasks, _ := putKeyed(w, key, 12, 1, 0)
			part := workloads.Part{Run: w.Run.String()}
			if ofKey {
				part = workloads.Part{Key: []byte(key)}
			}
			pausePart(w, part)
			h := &begun{}
			stays := testworld.Begun(w, processor.New, "a", h, processor.Options{})
			var leave []*started
			for _, name := range []string{"b", "c", "d", "e", "f"} {
				leave = append(leave, testworld.Begun(w, processor.New, name, h, processor.Options{}))
			}
			time.Sleep(30 * time.Minute)
			for _, p := range leave {
				p.End()
			}
			amongMany := w.Logged("so often") // also by one that was about to leave
			time.Sleep(time.Hour)
			resumePart(w, part)
			w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
			stays.End()
			h.Expect(t, tasks, tasks)
			if n := w.Logged("so often"); amongMany > tasks || n > amongMany {
				t.Errorf("of a key: %v: messages are suspected %d times, then %d", ofKey, amongMany, n)
			}
		})
	}
}

// Thousands of messages of a paused run lie before those of another one, whose handlers are slow:
// they stand in its way no longer than it takes to put them back.
func TestWhatIsPausedIsPutBackQuickly(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 10, func(c *azsim.Config) {
		c.Limits, c.Latency = azsim.PublishedLimits(), 20*time.Millisecond
	}, func(t *testing.T, w *testworld.World) {
		part := workloads.Part{Run: w.Run.String()}
		pausePart(w, part)
		held := 0
		for range 16 {
			held += w.PutHome(w.EverySegment(), 1)
		}
		w.Run = w.NewRun()
		other := w.PutHome(w.EverySegment(), 1)
		h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
			return testworld.Pause(ctx, time.Second)
		}}}
		var ps []*started
		for _, name := range []string{"a", "b", "c", "d"} {
			ps = append(ps, testworld.Begun(w, processor.New, name, h, processor.Options{Concurrency: 16}))
		}
		w.Within(40*time.Second, "the other run is done", func() bool { return h.Tasks() == other })
		resumePart(w, part)
		h.Work = nil
		w.Within(putOffMost, "all is done", func() bool { return h.Tasks() == held+other })
		endEach(ps)
		h.Expect(t, held+other, held+other)
	})
}
