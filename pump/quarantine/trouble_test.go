package quarantine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
)

// What cannot be redriven says so and stays; dropping takes it.
func TestQuarantineSaysWhatCannotBeRedrivenAndWhy(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		queue := workload.PoisonQueue("work")
		good := w.Envelope(3, 2)
		build := func(h codec.Header) []byte {
			return w.Sealed(h, codec.Task{Body: []byte("x")})
		}
		cause := func(text []byte, reason string) []byte {
			text, err := codec.Quarantined(text, codec.Cause{Reason: reason, Last: time.Now()})
			proof.Must(t, err)
			return text
		}
		bad := map[string]string{} // id to a part of the problem
		for _, c := range []struct {
			text []byte
			part string
		}{
			{cause(build(codec.Header{Workload: "other", Run: w.Run}), codec.ReasonOtherWorkload), `belongs to workload "other"`},
			{cause(build(codec.Header{Workload: "work", Run: w.Run, Segment: 4000}), codec.ReasonCorrupt), "segment 4000 of 64"},
			{cause(good[:len(good)-8], codec.ReasonTruncated), "it cannot be unpacked"},
			{good[:40], "it is damaged"},
			{cause(build(codec.Header{Workload: "work"}), codec.ReasonBadLine), "correct its source"},
		} {
			bad[w.PutText("accounta", queue, c.text)] = c.part
		}
		time.Sleep(time.Second)
		for _, dry := range []bool{true, false} {
			outs := redrive(w, quarantine.Filter{}, quarantine.Options{Dry: dry})
			proof.Same(t, len(outs), len(bad), "outcomes")
			for _, o := range outs {
				if o.Outcome != quarantine.Kept || !strings.Contains(o.Problem, bad[o.ID]) {
					t.Errorf("%s: %q, want %q", o.Outcome, o.Problem, bad[o.ID])
				}
			}
		}
		if w.Count("accounta", queue) != len(bad) || w.Left() != 0 {
			t.Error("something was moved")
		}
		drop(w, quarantine.Filter{})
		if w.Count("accounta", queue) != 0 || w.Left() != 0 {
			t.Error("something was not dropped")
		}
	})
}

// A text that is no envelope goes back as it is; the cause that stands in a row
// for want of room is shown, and goes with it.
func TestQuarantineOfAForeignTextWithItsCauseInARow(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		random := rand.New(rand.NewPCG(1, 2))
		full := make([]byte, storage.MaxText)
		for i := range full {
			full[i] = byte('0' + random.IntN(75))
			if full[i] == '<' || full[i] == '>' {
				full[i] = 'x'
			}
		}
		w.PutText("accountb", "work-01", full)
		var good atomic.Bool
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if !good.Load() {
				return pump.Reject(errors.New("no such city"))
			}
			return nil
		}}
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		ms := listed(w, quarantine.Filter{Reasons: []string{codec.ReasonRejected}})
		if len(ms) != 1 || ms[0].Detail != "no such city" || !bytes.Equal(ms[0].Text(), full) || ms[0].Segment != nil || ms[0].Attempts != 1 {
			t.Fatalf("%+v", ms)
		}
		good.Store(true)
		if outs := redrive(w, quarantine.Filter{}, quarantine.Options{}); len(outs) != 1 || outs[0].Outcome != quarantine.Redriven {
			t.Fatalf("%+v", outs)
		}
		for e, err := range w.Table().Query(t.Context(), storage.Query{Partition: "work.quarantine"}) {
			t.Errorf("a row is left: %v, %v", e.Row, err)
		}
		testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		if h.Deliveries() != 2 || !bytes.Equal(h.Order[1].Body, full) || w.Left() != 0 || len(listed(w, quarantine.Filter{})) != 0 {
			t.Errorf("%d deliveries, %d left", h.Deliveries(), w.Left())
		}
	})
}

// An account that does not answer is named, and the others are done.
func TestQuarantineGoesOnWithoutAnAccountThatIsDark(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 1, nil, func(t *testing.T, w *testworld.World) {
		for _, a := range w.Cfg.Accounts {
			w.Poison(a.Name, 1, codec.ReasonAttempts, time.Now(), "k")
		}
		time.Sleep(time.Second)
		w.Sim.Blackout("accountb", true)
		n := 0
		err := quarantineOf(w).List(t.Context(), quarantine.Filter{}, func(*quarantine.Message) bool { n++; return true })
		if n != 2 || err == nil || !strings.Contains(err.Error(), "accountb") {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// A message with an empty text is a task as any other: it is handled, quarantined, listed, redriven
// and dropped.
func TestAMessageWithAnEmptyTextIsAMessage(t *testing.T) {
	for name, spec := range map[string]workload.Spec{"at least once": {}, "once": {Delivery: string(pump.Once)}} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, spec, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				var well atomic.Bool
				h := &testworld.Seen{Work: func(context.Context, *pump.Task) error {
					if !well.Load() {
						return pump.Reject(errors.New("it is empty"))
					}
					return nil
				}}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				account, poison := "accounta", workload.PoisonQueue("work")
				w.PutText(account, "work-01", []byte{})
				w.Within(time.Minute, "it is in quarantine", func() bool { return w.Count(account, poison) == 1 })
				w.PutText(account, poison, []byte{}) // as another program may leave it
				time.Sleep(time.Second)
				for _, m := range listed(w, quarantine.Filter{}) {
					tasks, err := m.Open()
					if m.Matching != 1 || m.Problem != "" || err != nil || len(tasks) != 1 || len(tasks[0].Body) != 0 {
						t.Errorf("%+v, %v, %v", m, tasks, err)
					}
				}
				well.Store(true)
				before := h.Deliveries()
				for _, out := range redrive(w, quarantine.Filter{}, quarantine.Options{}) {
					proof.Same(t, out.Outcome, quarantine.Redriven, out)
				}
				w.Within(time.Minute, "nothing is left", func() bool { return w.Left() == 0 && w.Count(account, poison) == 0 })
				time.Sleep(time.Minute)
				proof.Same(t, h.Deliveries()-before, 2, "of 2 empty messages that were redriven … were done")
				w.PutText(account, poison, []byte{})
				time.Sleep(time.Second)
				if outs := drop(w, quarantine.Filter{}); len(outs) != 1 || outs[0].Outcome != quarantine.Dropped || w.Count(account, poison) != 0 {
					t.Errorf("%+v", outs)
				}
				p.End()
			})
		})
	}
}

// A processor that dies between the put into quarantine and the record leaves a copy there of a
// task that may be done later. A redrive knows that for as long as the run's row is there. After that
// it cannot know, and redrives the copy on purpose only (docs/operations.md, "Its limits").
func TestACopyInQuarantineOfATaskThatIsDoneIsRedrivenOnPurposeOnly(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Retention = 2 * time.Hour
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		run := w.OneTask(7)
		text := w.Text(7, func(h *codec.Header) { h.Run = run }, 0)
		cause := codec.Cause{Reason: codec.ReasonAttempts, Instance: "p", Last: time.Now()}
		text, err := codec.Quarantined(text, cause)
		proof.Must(t, err)
		w.PutText("accounta", workload.PoisonQueue("work"), text)
		for _, c := range []struct {
			after   time.Duration
			o       quarantine.Options
			outcome string
			why     string
			done    int
		}{
			{time.Minute, quarantine.Options{}, quarantine.Kept, "its run is closed", 1},
			{time.Hour, quarantine.Options{}, quarantine.Kept, "its run is closed", 1},
			{2 * time.Hour, quarantine.Options{}, quarantine.Kept, "--again", 1},
			{time.Minute, quarantine.Options{Dry: true}, quarantine.Kept, "--again", 1},
			{time.Minute, quarantine.Options{Again: true}, quarantine.Redriven, "", 2},
		} {
			time.Sleep(c.after)
			outs := redrive(w, quarantine.Filter{}, c.o)
			if len(outs) != 1 || outs[0].Outcome != c.outcome || !strings.Contains(outs[0].Problem, c.why) {
				t.Errorf("%v later: %+v", c.after, outs)
			}
			time.Sleep(time.Minute)
			proof.Same(t, h.Deliveries(), c.done, c.after, "later the task was done … times")
		}
		p.End()
	})
}

// A late copy of a task that was done is in quarantine as that of an ended run. It came after the
// run was over, so no processor knew it any more.
func TestALateCopyOfARunThatIsOverIsRedrivenOnPurposeOnly(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.PutTasks(3, 0)
		w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 1 })
		proof.Must(t, w.AllRuns().End(t.Context(), w.Run, false, "by hand"))
		time.Sleep(time.Minute)
		w.PutTasks(3, 1) // which is not done, and the owner of the segment knows it
		time.Sleep(2 * time.Hour)
		w.PutTasks(3, 0)
		time.Sleep(time.Minute)
		outs := redrive(w, quarantine.Filter{}, quarantine.Options{})
		time.Sleep(time.Minute)
		if n := h.Deliveries(); n != 2 || len(outs) != 2 || len(w.Condemned()) != 1 {
			t.Errorf("%d handlings, %+v", n, outs)
		}
		p.End()
	})
}

func TestQuarantineIsPeekedAtWithoutTakingAnything(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		both, asked := []string{"accounta", "accountb"}, 0
		peek := func() ([]*quarantine.Message, error) {
			var mu sync.Mutex
			return quarantineOf(w).Peek(t.Context(), both, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return nil
			})
		}
		if ms, err := peek(); asked != 2 || len(ms) != 0 || err != nil {
			t.Fatalf("%v, %v", ms, err)
		}
		for account, n := range map[string]int{"accounta": 40, "accountb": 3} {
			proof.Must(t, w.Queue(account, "work-poison").Create(t.Context()))
			for i := range n {
				w.PutText(account, "work-poison", fmt.Appendf(nil, "m%d", i))
			}
		}
		gets, updates := w.Requests("GetMessages"), w.Requests("UpdateMessage")
		ms, err := peek()
		if err != nil || len(ms) != 35 || ms[34].Account != "accountb" || ms[34].Matching != 1 {
			t.Fatalf("%d messages, %v", len(ms), err)
		}
		tasks, err := ms[0].Open()
		if err != nil || string(tasks[0].Body) != "m0" {
			t.Errorf("%v, %v", tasks, err)
		}
		if w.Requests("GetMessages") != gets || w.Requests("UpdateMessage") != updates {
			t.Error("messages were taken")
		}
		proof.Same(t, len(listed(w, quarantine.Filter{})), 43, "that are left")
		w.Sim.Blackout("accountb", true)
		if ms, err = peek(); err == nil || len(ms) != 32 {
			t.Errorf("with a dark account: %d messages, %v", len(ms), err)
		}
	})
}

// quarantine opens the quarantine as the instance "operator".
func quarantineOf(w *testworld.World) *quarantine.Quarantine {
	w.T.Helper()
	q, err := quarantine.Open(w.T.Context(), w.Config("operator", w.Cfg.Accounts[0].Queues))
	proof.Must(w.T, err)
	return q
}

func listed(w *testworld.World, f quarantine.Filter) (ms []*quarantine.Message) {
	w.T.Helper()
	proof.Must(w.T, quarantineOf(w).List(w.T.Context(), f, func(m *quarantine.Message) bool {
		ms = append(ms, m)
		return true
	}))
	return ms
}

func redrive(w *testworld.World, f quarantine.Filter, o quarantine.Options) (outs []quarantine.Outcome) {
	w.T.Helper()
	proof.Must(w.T, quarantineOf(w).Redrive(w.T.Context(), f, o, func(o quarantine.Outcome) bool {
		outs = append(outs, o)
		return true
	}))
	return outs
}

func drop(w *testworld.World, f quarantine.Filter) (outs []quarantine.Outcome) {
	w.T.Helper()
	proof.Must(w.T, quarantineOf(w).Drop(w.T.Context(), f, quarantine.Options{}, func(o quarantine.Outcome) bool {
		outs = append(outs, o)
		return true
	}))
	return outs
}

// recorded is how many tasks of the world's run the ledger has as done and as quarantined.
func recorded(w *testworld.World) (done, quarantined uint64) {
	w.T.Helper()
	all, err := ledger.ReadProgress(w.T.Context(), w.Table(), w.Cfg.Workload, w.ShardMap().Segments, w.Run)
	proof.Must(w.T, err)
	for i := range all[w.Run].Done {
		done, quarantined = done+all[w.Run].Done[i], quarantined+all[w.Run].Quarantined[i]
	}
	return done, quarantined
}
