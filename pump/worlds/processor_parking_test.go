package worlds

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

// ofRun counts the tasks of a run that were begun after a time.
func (b *begun) ofRun(run pump.RunID, after time.Time) (n int) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for i, at := range b.at {
		if at.After(after) && b.Order[i].Run == run {
			n++
		}
	}
	return n
}

func (w *world) pausePart(part workloads.Part) {
	w.T.Helper()
	c, err := workloads.PausePart(w.T.Context(), w.Operator(), part, "me")
	if err != nil || !c.Paused || !c.Changed || c.By != "me" {
		w.T.Fatalf("%+v, %v", c, err)
	}
}

func (w *world) resumePart(part workloads.Part) {
	w.T.Helper()
	c, err := workloads.ResumePart(w.T.Context(), w.Operator(), part)
	if err != nil || c.Paused || !c.Changed {
		w.T.Fatalf("%+v, %v", c, err)
	}
}

// parked is what the status says of what is paused by itself.
func (w *world) parked() []status.Parked {
	w.T.Helper()
	s, err := status.Read(w.T.Context(), w.Operator(), status.Options{})
	if err != nil {
		w.T.Fatal(err)
	}
	return s.Parked
}

// comesHome checks that the marks go, and their queues leave the map, once all is home.
func (w *world) comesHome() {
	w.T.Helper()
	w.Within(5*time.Minute, "the mark and its queues are gone", func() bool {
		wl, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
		return err == nil && len(wl.Parkings) == 0 && len(wl.Returning()) == 0
	})
	for _, a := range w.Cfg.Accounts {
		n, err := w.Queue(a.Name, "work-park-1").Count(w.T.Context())
		if n > 0 || err != nil && !queues.NotThere(err) {
			w.T.Errorf("%d messages are left in the parking queue of %s: %v", n, a.Name, err)
		}
	}
}

// At any moment: after two beats nothing of a paused run is started and its messages are out of the
// queues, while another run goes on; after the resume each of its tasks is done, once and in its
// first attempt, and nothing of the pause is left.
func TestARunThatIsPausedWaitsOutOfTheWay(t *testing.T) {
	verify.Only(t)
	ways := []struct {
		name string
		spec workload.Spec
	}{
		{"once", workload.Spec{Delivery: workload.DeliverOnce}},
		{"at least once", workload.Spec{}},
		{"without owners", workload.Spec{Shared: true}},
	}
	for _, way := range ways {
		for _, moment := range []time.Duration{0, 20 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second, 11300 * time.Millisecond} {
			t.Run(fmt.Sprint(way.name, " ", moment), func(t *testing.T) {
				inWorldOf(t, way.spec, 2, 2, nil, func(t *testing.T, w *world) {
					held := w.Run
					ofHeld := w.PutHome(w.EverySegment(), 4)
					w.Run = w.NewRun()
					ofOther := w.PutHome(w.EverySegment(), 4)
					h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
						return testworld.Pause(ctx, 500*time.Millisecond)
					}}}
					o := processor.Options{Concurrency: 4}
					a, b := w.start(w.processorOf("a", h, o)), w.start(w.processorOf("b", h, o))
					time.Sleep(3*time.Second + moment)
					w.pausePart(workloads.Part{Run: held.String()})
					at := time.Now()
					time.Sleep(5 * time.Minute)
					if n := h.ofRun(held, at.Add(twoBeats)); n > 0 {
						t.Errorf("%d tasks of the paused run were begun later than two beats after", n)
					}
					if n := h.ofRun(w.Run, time.Time{}); n != ofOther {
						t.Errorf("%d of %d tasks of the other run were done", n, ofOther)
					}
					w.ExpectEmpty()
					list := w.parked()
					if len(list) != 1 || list[0].Run != held.String() || *list[0].Messages == 0 || list[0].By != "me" {
						t.Errorf("%+v", list)
					}
					w.resumePart(workloads.Part{Run: held.String()})
					w.Within(20*time.Minute, "all is done", func() bool { return h.Tasks() == ofHeld+ofOther })
					w.comesHome()
					sa, sb := a.End(), b.End()
					h.Expect(t, ofHeld+ofOther, ofHeld+ofOther)
					for _, task := range h.Order {
						if task.Attempt != 1 {
							t.Errorf("a pause was counted as an attempt: %+v", task)
						}
					}
					if n := sa.Failed + sb.Failed + sa.Quarantined + sb.Quarantined + sa.Split + sb.Split + sa.Lost + sb.Lost; n > 0 {
						t.Errorf("%+v %+v", sa, sb)
					}
					if sa.Parked+sb.Parked == 0 {
						t.Error("nothing was parked")
					}
					w.ExpectEmpty()
				})
			})
		}
	}
}

// putKeyed puts envelopes of a segment of a key, with tasks of it and of others between them.
func (w *world) putKeyed(key string, envelopes, of, others int) (tasks, held int) {
	w.T.Helper()
	m := w.ShardMap()
	segment := shardmap.Segment([]byte(key), m.Segments)
	home := m.Shards[m.Home(segment)]
	for range envelopes {
		b := codec.NewBuilder(0)
		b.Reset(codec.Header{Workload: w.Cfg.Workload, Run: w.Run, Segment: segment, MapVersion: 1})
		for i := range of + others {
			k := key
			if i%2 == 1 && i/2 < others || i >= 2*of {
				k = fmt.Sprint("other", i)
			} else {
				held++
			}
			n := w.Ns[segment]
			w.Ns[segment]++
			if fits, err := b.Add(codec.Task{N: n, Key: []byte(k), Body: fmt.Append(nil, n)}); !fits || err != nil {
				w.T.Fatal(err)
			}
			tasks++
		}
		text, _, err := b.Seal(nil)
		if err != nil {
			w.T.Fatal(err)
		}
		w.PutText(home.Account, home.Queue, text)
	}
	return tasks, held
}

// ofKey counts the tasks of a key that were begun after a time.
func (b *begun) ofKey(key string, after time.Time) (n int) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for i, at := range b.at {
		if at.After(after) && string(b.Order[i].Key) == key {
			n++
		}
	}
	return n
}

// The same of a key: those beside it in its messages are done.
func TestAKeyThatIsPausedWaitsOutOfTheWay(t *testing.T) {
	verify.Only(t)
	for _, way := range []workload.Spec{{Delivery: workload.DeliverOnce}, {}, {Shared: true}} {
		for _, moment := range []time.Duration{0, 20 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second} {
			t.Run(fmt.Sprint(way.Delivery, way.Shared, " ", moment), func(t *testing.T) {
				inWorldOf(t, way, 2, 2, nil, func(t *testing.T, w *world) {
					const key = "customer-17"
					mixed, held := w.putKeyed(key, 8, 5, 7)
					alone, more := w.putKeyed(key, 3, 4, 0)
					tasks := mixed + alone + w.PutHome(w.EverySegment(), 2)
					held += more
					h := &begun{Seen: testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
						return testworld.Pause(ctx, 500*time.Millisecond)
					}}}
					o := processor.Options{Concurrency: 2}
					a, b := w.start(w.processorOf("a", h, o)), w.start(w.processorOf("b", h, o))
					time.Sleep(3*time.Second + moment)
					w.pausePart(workloads.Part{Key: []byte(key)})
					at := time.Now()
					time.Sleep(5 * time.Minute)
					if n := h.ofKey(key, at.Add(twoBeats)); n > 0 {
						t.Errorf("%d tasks of the paused key were begun later than two beats after", n)
					}
					begun := h.ofKey(key, time.Time{})
					if others := h.Tasks() - begun; begun == held || others != tasks-held {
						t.Errorf("%d of %d tasks of the key are done, and %d of %d others", begun, held, others, tasks-held)
					}
					w.ExpectEmpty()
					if list := w.parked(); len(list) != 1 || list[0].Key != key || *list[0].Messages == 0 {
						t.Errorf("%+v", list)
					}
					w.resumePart(workloads.Part{Key: []byte(key)})
					w.Within(20*time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
					w.comesHome()
					sa, sb := a.End(), b.End()
					h.Expect(t, tasks, tasks)
					for _, task := range h.Order {
						if task.Attempt != 1 {
							t.Errorf("a pause was counted as an attempt: %+v", task)
						}
					}
					if n := sa.Failed + sb.Failed + sa.Quarantined + sb.Quarantined + sa.Split + sb.Split + sa.Lost + sb.Lost; n > 0 {
						t.Errorf("%+v %+v", sa, sb)
					}
					if n := sa.Parked + sb.Parked; n != int64(held-begun) {
						t.Errorf("%d tasks were parked, and %d were not begun", n, held-begun)
					}
					w.ExpectEmpty()
				})
			})
		}
	}
}
