package base_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// Where each run is one task, the rows of the runs of what a get brought are read side by side: one
// after another they would be what the pace of a processor is.
func TestP13TheRowsOfManyRunsAreReadSideBySide(t *testing.T) {
	for _, discard := range []bool{false, true} {
		t.Run(fmt.Sprintf("discard %v", discard), func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				const runs = 128
				for i := range runs {
					id := codec.RunID{1, byte(i)}
					proof.Must(t, w.AllRuns().Create(t.Context(), workload.Run{ID: id, Mode: "client"}))
					segment := uint32(i % 64)
					account, queue := w.Home(segment)
					w.PutText(account, queue, w.Text(segment, func(h *codec.Header) { h.Run = id }, 0))
				}
				w.Fault(azsim.Rule{Instance: "p", Fault: azsim.DelayBefore, Delay: 200 * time.Millisecond}, "GetEntity")
				h := &testworld.Seen{}
				processor, err := processor.New(w.Config("p", 1), h, processor.Options{Discard: discard})
				proof.Must(t, err)
				p := testworld.Start(w.T, processor)
				handled := func() int64 { return processor.State().Done.Handled }
				for handled() == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				began := time.Now()
				for handled() < runs {
					time.Sleep(10 * time.Millisecond)
				}
				// Two at a time would be 13 s, one at a time in a get 25 s.
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the first of %d runs was handled %v before the last", runs, took)
				} else {
					t.Log(took)
				}
				p.End()
			})
		})
	}
}

// noted is what all processors have noted of the world's run.
func noted(w *testworld.World) (sum workload.Tally, rows int) {
	w.T.Helper()
	all, err := workload.Tallies(w.T.Context(), queues.Open(&w.Cfg).Control, "work", w.Run)
	proof.Must(w.T, err)
	for _, t := range all {
		sum = sum.Add(t)
	}
	return sum, len(all)
}

// TestTalliesSayWhatWasDoneOfARun (origins B1): while it goes on, a beat late,
// and at its end exactly; also by a processor that is started again under its old name.
func TestTalliesSayWhatWasDoneOfARun(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(2, 10)
		h := &testworld.Seen{Work: func(ctx context.Context, task *pump.Task) error {
			switch {
			case task.N%10 == 3:
				return pump.Reject(testworld.ErrFlop)
			case task.N%10 == 4 && task.Attempt == 1:
				return testworld.ErrFlop
			}
			return testworld.Pause(ctx, time.Second)
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 1})
		time.Sleep(40 * time.Second)
		under := h.Deliveries()
		time.Sleep(7 * time.Second) // a beat and its jitter
		if sum, rows := noted(w); rows != 1 || int(sum.Handled+sum.Failed) < under-10 || int(sum.Handled) >= tasks {
			t.Errorf("after %d tasks: %+v in %d rows", under, sum, rows)
		}
		first := p.End()
		sum, _ := noted(w)
		if int64(sum.Handled) != first.Handled || int64(sum.Failed) != first.Failed+first.Rejected || int64(sum.Retried) != first.Retried || int64(sum.Quarantined) != first.Quarantined {
			t.Errorf("stopped: %+v of %+v", sum, first)
		}
		second := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		want := workload.Tally{
			Handled: uint64(first.Handled + second.Handled), Failed: uint64(first.Failed + second.Failed + first.Rejected + second.Rejected),
			Retried: uint64(first.Retried + second.Retried), Quarantined: uint64(first.Quarantined + second.Quarantined),
		}
		sum, rows := noted(w)
		sum.Met, sum.Spent, sum.Hides = 0, 0, 0
		if sum != want || rows != 2 {
			t.Errorf("in the end %+v in %d rows, want %+v", sum, rows, want)
		}
		proof.Same(t, int(want.Handled+want.Quarantined), tasks, "tasks are done")
	})
}

// TestTalliesDelayNothing: a control account that hangs keeps no task from being
// settled and no processor from ending.
func TestTalliesDelayNothing(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(time.Minute)
		w.Put("accountb", "work-00", 1, 1)
		time.Sleep(10 * time.Second) // the run is known
		w.Fault(azsim.Rule{Account: "accounta", Service: "table", Fault: azsim.HangBefore})
		w.Put("accountb", "work-00", 20, 10)
		time.Sleep(20 * time.Second)
		proof.Same(t, w.Count("accountb", "work-00"), 0, "messages are not settled")
		began := time.Now()
		p.End()
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the end took %v", took)
		}
		h.Expect(t, 201, 201)
	})
}

// These are figures of the code under test, which no caller can name.
const (
	runKnownFor = 5 * time.Minute
)

// edited changes the bytes of an envelope's gzip file.
func edited(t *testing.T, text []byte, edit func(b []byte) []byte) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(string(text))
	proof.Must(t, err)
	return []byte(base64.StdEncoding.EncodeToString(edit(b)))
}

// headLen is the size of the header of an envelope's gzip file.
func headLen(b []byte) int { return 12 + int(b[10]) + int(b[11])<<8 }

// newer makes an envelope of a later version: its header and checksum are
// intact, its fields are of no meaning to this reader.
func newer(t *testing.T, text []byte) []byte {
	return edited(t, text, func(b []byte) []byte {
		b[21] = codec.Version + 1
		putCRC(b[:headLen(b)])
		return b
	})
}

func TestAnEnvelopeOfANewerVersionWaitsWithAnAlarmAndIsNeverQuarantined(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		text := newer(t, w.Envelope(2, 5))
		if _, err := codec.ReadHeader(text); err == nil || !strings.Contains(err.Error(), "newer") {
			t.Fatalf("the test's envelope reads as %v", err)
		}
		w.PutText("accounta", "work-00", text)
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(time.Hour)
		s := p.End()
		if s.Quarantined != 0 || w.Left() != 1 || h.Tasks() != 0 || len(w.Poisoned("accounta")) != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
		if n := s.Envelopes; n < 40 || n > 90 {
			t.Errorf("delivered %d times in an hour, want about once a minute", n)
		}
		if w.Logged("must be upgraded") == 0 {
			t.Error("no alarm")
		}
	})
}

func TestAMessageOfAnotherWorkloadIsQuarantined(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.PutText("accounta", "work-00", w.Sealed(codec.Header{Workload: "other", Run: w.Run, Segment: 1}, codec.Task{Body: []byte("x")}))
		testworld.Ran(w, processor.New, "p", &testworld.Seen{}, processor.Options{UntilIdle: 2 * time.Minute})
		if _, cause := w.Cause("accounta"); cause.Reason != codec.ReasonOtherWorkload {
			t.Errorf("%+v", cause)
		}
	})
}

func TestP13ARunWithoutARowIsQuarantined(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		known := w.Run
		w.Run = codec.NewRunID()
		w.Put("accounta", "work-00", 1, 7)
		w.Run = known
		w.Put("accounta", "work-00", 1, 5)
		h := &testworld.Seen{}
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, 5, 5)
		head, cause := w.Cause("accounta")
		if cause.Reason != codec.ReasonUnknownRun || head.Tasks.Len() != 7 || s.Quarantined != 7 {
			t.Errorf("%+v, %+v", cause, s)
		}
	})
}

func TestP13ARunRowIsReadOnceAndAgainWhenItIsOld(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		reads := func() int {
			return int(w.Sim.Stats().Count("", "GetEntity")) // the cluster is read by queries
		}
		tasks := w.Spread(20, 2)
		before := reads()
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(10 * time.Second)
		h.Expect(t, tasks, tasks)
		if n := reads() - before; n != 3 { // the workload's row, whether there is a muster, and the run's row
			t.Errorf("%d reads of the table for 40 messages of one run", n)
		}
		time.Sleep(runKnownFor)
		w.Spread(1, 1)
		time.Sleep(10 * time.Second)
		// One of the run's row, and one of the clock, for the rows that may go by their age.
		proof.Same(t, reads()-before, 5, "reads of the table after", runKnownFor)
		p.End()
	})
}

func TestP56ADarkControlPlaneStopsNothing(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.FailBefore, azsim.HangBefore} {
		t.Run(string(fault), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				h := &testworld.Seen{}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
				time.Sleep(time.Second)
				dark := w.Sim.Inject(azsim.Rule{Service: "table", Fault: fault})
				tasks := w.Spread(10, 3)
				time.Sleep(20 * time.Second)
				h.Expect(t, tasks, tasks)
				if dark.Hits() == 0 || w.Left() != 0 {
					t.Errorf("%v, %d left", dark, w.Left())
				}
				p.End()
			})
		})
	}
}

// putCRC writes the checksum that ends an envelope's header.
func putCRC(head []byte) {
	n := len(head) - 4
	binary.LittleEndian.PutUint32(head[n:], crc32.ChecksumIEEE(head[:n]))
}

// However long a task takes, a lone processor gets through: nothing is fetched
// only to be given back, and the handlers are kept busy.
func TestSlowHandlersAreKeptBusyAndNothingIsFetchedInVain(t *testing.T) {
	proof.Only(t)
	for _, took := range []time.Duration{time.Second, 20 * time.Second, 60 * time.Second, 10 * time.Minute} {
		for _, each := range []int{1, 10, 200} {
			t.Run(fmt.Sprintf("%v, %d a message", took, each), func(t *testing.T) {
				testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
					const rounds = 6
					tasks := w.Spread(64*rounds/each/4+1, each)
					h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, took) }}
					s := testworld.Ran(w, processor.New, "p", h, processor.Options{Concurrency: 64, Timeout: -1, UntilIdle: 10 * time.Second})
					h.Expect(t, tasks, tasks)
					ideal := time.Duration((tasks+63)/64) * took
					spent := time.Duration(s.Seconds*float64(time.Second)) - 10*time.Second
					t.Logf("%d tasks in %v, at best %v; %d messages taken, %d tasks released", tasks, spent, ideal, s.Envelopes, s.Released)
					if s.Released > 0 || s.Lost > 0 || s.Envelopes != int64(tasks/each) {
						t.Errorf("%d messages of %d tasks: %+v", tasks/each, tasks, s)
					}
					if spent > ideal+ideal/10+took+5*time.Second {
						t.Errorf("%d tasks of %v took %v, at best %v", tasks, took, spent, ideal)
					}
				})
			})
		}
	}
}

// Memory is bounded also where the handlers are not what holds things up: what
// waits to be settled is in memory as well.
func TestMemoryForWhatWaitsToBeSettledIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		text func(w *testworld.World) []byte
	}{
		{"failed tasks that cannot be put back", func(*testworld.World) []byte { return testworld.Incompressible(40 << 10) }},
		{"messages that cannot be quarantined", func(w *testworld.World) []byte {
			return w.Sealed(codec.Header{Workload: "other", Run: w.Run}, codec.Task{Body: testworld.Incompressible(40 << 10)})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
				text := c.text(w)
				for range 50 {
					for _, s := range setup.Shards(w.Cfg) {
						w.PutText(s.Account, s.Queue, text)
					}
				}
				w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "PutMessage", "UpdateMessage", "DeleteMessage")
				h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return testworld.ErrFlop }}
				p := testworld.Begun(w, processor.New, "p", h, processor.Options{MaxBytes: 4 << 20, Grace: time.Second})
				time.Sleep(20 * time.Second)
				// None was settled, so all that were taken are held.
				taken := int(p.End().Envelopes)
				if most := (4 << 20) / (40 << 10); taken > most || taken < 20 {
					t.Errorf("%d messages of 40 KiB or more were held, at most %d may be", taken, most)
				}
			})
		})
	}
}

func TestWhatOneAccountCannotSettleLeavesMemoryForTheOthers(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		text := testworld.Incompressible(40 << 10)
		for range 60 {
			for _, s := range setup.Shards(w.Cfg) {
				w.PutText(s.Account, s.Queue, text)
			}
		}
		w.Fault(azsim.Rule{Account: "accounta", Fault: azsim.FailBefore}, "PutMessage", "UpdateMessage", "DeleteMessage")
		h := &testworld.Seen{Work: func(context.Context, *pump.Task) error { return testworld.ErrFlop }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{MaxBytes: 4 << 20, Grace: time.Second, Retry: pump.RetryPolicy{Base: time.Hour}})
		time.Sleep(30 * time.Second)
		left := 0
		for _, q := range []string{"work-00", "work-01"} {
			left += w.Visible("accountb", q)
		}
		if left > 0 {
			t.Errorf("%d or more messages of the healthy account are left after 30 s", left)
		}
		p.End()
	})
}
