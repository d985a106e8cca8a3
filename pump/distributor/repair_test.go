package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/source"
)

// mend repairs a run from a source, by a distributor with these options.
func mend(w *testworld.World, run pump.RunID, s source.Source, o distributor.RepairOptions, d distributor.Options) (distributor.RepairSummary, error) {
	w.T.Helper()
	return testworld.Made(w, distributor.New, "mender", s, d).Repair(w.T.Context(), run, o)
}

// waited waits for the end of a run.
func waited(w *testworld.World, run pump.RunID) (pump.Completion, error) {
	return runs.Wait(w.T.Context(), w.Config("waiter", w.Cfg.Accounts[0].Queues), run, pump.WaitOptions{})
}

// The whole way, with processors: a queue loses its messages, the run gets stuck, and a
// repair completes it; every task is done exactly once.
func TestAStuckRunIsCompleteAfterItsRepair(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		source := &testworld.ListSource{Print: "a", N: 1000}
		run := testworld.Distributed(w, distributor.New, source.N)
		lost := 0
		q := w.Queue("accounta", "work-02")
		for {
			ms, err := q.Get(t.Context(), 32, time.Minute)
			proof.Must(t, err)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				h, err := codec.ReadHeader(m.Text)
				proof.Must(t, err)
				lost += h.Tasks.Len()
				proof.Must(t, q.Delete(t.Context(), m.Receipt))
			}
		}
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		g, err := waited(w, run.ID)
		stuck, ok := errors.AsType[*pump.StuckError](err)
		if !ok || lost == 0 || stuck.Missing != uint64(lost) {
			t.Fatalf("%d tasks are lost: %+v, %v", lost, g, err)
		}
		sum, err := mend(w, run.ID, source, distributor.RepairOptions{}, distributor.Options{})
		if err != nil || sum.Put != int64(lost) || *sum.Messages != 0 {
			t.Fatalf("%+v, %v", sum, err)
		}
		g, err = waited(w, run.ID)
		if err != nil || g.State != pump.RunDone || !g.Closed {
			t.Errorf("%+v, %v", g, err)
		}
		p.End()
		h.Expect(t, 1000, 1000)
		if sum, err := mend(w, run.ID, source, distributor.RepairOptions{}, distributor.Options{}); err != nil || sum.State != "closed" || sum.Put != 0 {
			t.Errorf("of a closed run: %+v, %v", sum, err)
		}
	})
}

// Copies of what a repair puts may be in the queues still: they are recognised.
func TestARepairOfARunThatIsNotStuckDoesNothingTwice(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		source := &testworld.ListSource{Print: "a", N: 600}
		run := testworld.Distributed(w, distributor.New, source.N)
		sum, err := mend(w, run.ID, source, distributor.RepairOptions{}, distributor.Options{})
		if err != nil || sum.Put != 600 || sum.Messages == nil || *sum.Messages == 0 || w.Logged("messages are left in the queues, and missing tasks may be in them") != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		var h testworld.Seen
		s := testworld.Ran(w, processor.New, "p", &h, processor.Options{UntilIdle: 2 * time.Minute})
		h.Expect(t, 600, 600)
		proof.Same(t, s.Duplicates, 600, "duplicates were recognised")
	})
}

// A run that broke, or was left by a distributor that died, is put to its end and sealed.
func TestARunThatWasNotSealedIsPutToItsEnd(t *testing.T) {
	for name, leave := range map[string]func(w *testworld.World, d *testworld.Started[*distributor.Distributor, distributor.Summary]){
		"broken": func(w *testworld.World, d *testworld.Started[*distributor.Distributor, distributor.Summary]) {
			d.Stop()
			if err := d.Wait(); err == nil || !strings.Contains(err.Error(), "stopped before the end of the source") {
				w.T.Fatal(err)
			}
		},
		"open": func(w *testworld.World, d *testworld.Started[*distributor.Distributor, distributor.Summary]) {
			w.Crash("d")
			d.Stop()
			_ = d.Wait()
			time.Sleep(time.Minute) // its row in the cluster grows old
		},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				slow := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond, Bad: map[int]bool{3: true}}
				d := testworld.Begun(w, distributor.New, "d", slow, distributor.Options{SealAge: time.Second, OnBadLine: distributor.BadLineSkip})
				time.Sleep(5 * time.Second)
				leave(w, d)
				var h testworld.Seen
				p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
				time.Sleep(10 * time.Second)
				source := &testworld.ListSource{Print: "a", N: 1000, Bad: slow.Bad}
				run := w.RunRow(d.Summary.Run)
				sum, err := mend(w, run.ID, source, distributor.RepairOptions{}, distributor.Options{OnBadLine: distributor.BadLineSkip})
				if err != nil || sum.State != name || sum.Tasks != 999 || sum.Done == 0 || sum.Missing == 0 || sum.Done+sum.Missing != 999 || !sum.Sealed {
					t.Fatalf("%+v, %v", sum, err)
				}
				g, err := waited(w, run.ID)
				if err != nil || g.State != pump.RunDone || g.Done != 999 {
					t.Errorf("%+v, %v", g, err)
				}
				p.End()
				h.Expect(t, 999, 999)
				if row := w.RunRow(run.ID); row.State != workload.RunClosed || row.Tasks != 999 || (row.Note != "") != (name == "broken") {
					t.Errorf("%+v", row)
				}
			})
		})
	}
}

func TestAnOpenRunWhoseDistributorIsAtWorkIsNotRepaired(t *testing.T) {
	for name, every := range map[string]time.Duration{"once": 0, "elected": time.Hour} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				source := &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}
				d := testworld.Begun(w, distributor.New, "d", source, distributor.Options{Every: every})
				time.Sleep(10 * time.Second)
				f := queues.Open(&w.Cfg)
				runs, err := workload.NewRuns(f.Control, "work").List(t.Context(), 1)
				proof.Must(t, err)
				left := w.Left()
				_, err = mend(w, runs[0].ID, &testworld.ListSource{Print: "a", N: 10_000}, distributor.RepairOptions{}, distributor.Options{})
				if !errors.Is(err, pump.ErrRunState) || !strings.Contains(err.Error(), "d is at work on it") || w.Left() != left {
					t.Errorf("got %v", err)
				}
				d.Stop()
				_ = d.Wait()
			})
		})
	}
}

func TestWhatIsNotTheRunsSourceRepairsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		source source.Source
		o      distributor.Options
		want   string
	}{
		"another fingerprint":   {&testworld.ListSource{Print: "b", N: 500}, distributor.Options{}, "another one"},
		"another policy":        {&testworld.ListSource{Print: "a", N: 500}, distributor.Options{OnBadLine: distributor.BadLineSkip}, "--on-bad-line) was fail and is skip"},
		"one task less":         {&testworld.ListSource{Print: "a", N: 499}, distributor.Options{}, "sealed with 500"},
		"one task more":         {&testworld.ListSource{Print: "a", N: 501}, distributor.Options{}, "sealed with 500"},
		"as many, other keys":   {&testworld.ListSource{Print: "a", N: 500, Key: func(i int) string { return fmt.Sprint(i) }}, distributor.Options{}, "sealed with 500"},
		"a bad line":            {&testworld.ListSource{Print: "a", N: 500, Bad: map[int]bool{7: true}}, distributor.Options{}, "list:8"},
		"can be read only once": {source.FromSeq(func(func(source.Record, error) bool) {}), distributor.Options{}, "cannot be read again"},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				run := testworld.Distributed(w, distributor.New, 500)
				w.Empty()
				_, err := mend(w, run.ID, c.source, distributor.RepairOptions{}, c.o)
				proof.Says(t, err, c.want)
				if n := w.Left(); n > 0 {
					t.Errorf("%d messages were put", n)
				}
			})
		})
	}
}

func TestASourceThatChangesWhileItIsReadAgainIsAnError(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run := testworld.Distributed(w, distributor.New, 500)
		_, err := mend(w, run.ID, &shrinking{testworld.ListSource{Print: "a", N: 500}, 0}, distributor.RepairOptions{}, distributor.Options{})
		if !errors.Is(err, source.ErrSourceChanged) || !strings.Contains(err.Error(), "while it was read") {
			t.Errorf("got %v", err)
		}
	})
}

// shrinking is a source with a task less each time but the first.
type shrinking struct {
	testworld.ListSource
	opened int
}

func (s *shrinking) Open(ctx context.Context, cursor []byte) (source.Reader, error) {
	s.opened++
	of := s.ListSource
	of.N -= s.opened - 1
	return of.Open(ctx, cursor)
}

// A source that cannot be read again has no fingerprint, and its run none to compare with.
func TestARunOverAStreamIsNotRepaired(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		summary, err := testworld.Made(w, distributor.New, "d", &testworld.ListSource{N: 10}, distributor.Options{}).Run(t.Context())
		proof.Must(t, err)
		proof.Is(t, proof.ErrOf(mend(w, summary.Run, &testworld.ListSource{Print: "a", N: 10}, distributor.RepairOptions{}, distributor.Options{})), source.ErrNotReplayable)
	})
}

func TestRepairNeedsDeliveryModeOnce(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run := testworld.Distributed(w, distributor.New, 10)
		proof.Says(t, proof.ErrOf(mend(w, run.ID, &testworld.ListSource{Print: "a", N: 10}, distributor.RepairOptions{}, distributor.Options{})), "a repair needs delivery mode once")
	})
}

// Of a segment whose record is damaged it is not known what is missing.
func TestADamagedLedgerIsNotRepairedAround(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run, s := testworld.Distributed(w, distributor.New, 100), w.Scribe()
		s.Record(run.ID, testworld.Below(run.Sealed), nil)
		w.DamageHead("head.0001")
		if _, err := mend(w, run.ID, &testworld.ListSource{Print: "a", N: 100}, distributor.RepairOptions{}, distributor.Options{}); !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), "head.0001") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnInterruptedRepairGoesOnWhereItWas(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		source := &testworld.ListSource{Print: "a", N: 3000, Pace: 2 * time.Millisecond} // 6 s each time
		run := testworld.Distributed(w, distributor.New, source.N)
		w.Empty()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(8*time.Second, func() { cancel(io.ErrClosedPipe) })
		sum, err := testworld.Made(w, distributor.New, "mender", source, distributor.Options{Pack: 10, Grace: time.Second}).Repair(ctx, run.ID, distributor.RepairOptions{})
		if !errors.Is(err, io.ErrClosedPipe) || sum.Put == 0 || sum.Put == 3000 {
			t.Fatalf("%+v, %v", sum, err)
		}
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		time.Sleep(5 * time.Minute)
		if sum, err = mend(w, run.ID, source, distributor.RepairOptions{}, distributor.Options{}); err != nil || sum.Done == 0 || sum.Put != int64(sum.Missing) {
			t.Fatalf("%+v, %v", sum, err)
		}
		g, err := waited(w, run.ID)
		if err != nil || g.Done != 3000 {
			t.Errorf("%+v, %v", g, err)
		}
		p.End()
		h.Expect(t, 3000, 3000)
	})
}

// The source of a broken run takes hours to read again. Meanwhile it gives no other sign of life,
// and what is done of it is not forgotten and put again.
func TestARunWhoseSourceTakesHoursToReadIsRepaired(t *testing.T) {
	ways := map[string]bool{"repaired": false, "looked at": true}
	if proof.Less(t) {
		delete(ways, "looked at")
	}
	for name, dry := range ways {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				var h testworld.Seen
				run, p := stoppedHalfWay(w, &h)
				did := h.Tasks()
				source := &testworld.ListSource{Print: "a", N: 200, Pace: 40 * time.Second}
				sum, err := mend(w, run, source, distributor.RepairOptions{DryRun: dry}, distributor.Options{})
				time.Sleep(time.Minute)
				q, opened := quarantine.Open(t.Context(), w.Operator())
				proof.Must(t, opened)
				every := func(quarantine.Outcome) bool { return true }
				proof.Must(t, q.Redrive(t.Context(), quarantine.Filter{}, quarantine.Options{}, every))
				time.Sleep(time.Minute)
				p.End()
				if dry {
					h.Expect(t, did, did)
					if !errors.Is(err, pump.ErrRunState) || !strings.Contains(err.Error(), "it has ended") {
						t.Errorf("%+v, %v", sum, err)
					}
					return
				}
				h.Expect(t, 200, 200)
				if err != nil || sum.Missing != uint64(200-did) || !sum.Sealed {
					t.Errorf("%+v, %v", sum, err)
				}
			})
		})
	}
}

// stoppedHalfWay distributes about a half of 200 tasks and has them handled.
func stoppedHalfWay(w *testworld.World, h pump.Handler) (run pump.RunID, p *testworld.Started[*processor.Processor, processor.Summary]) {
	w.T.Helper()
	slow := &testworld.ListSource{Print: "a", N: 200, Pace: 50 * time.Millisecond}
	d := testworld.Begun(w, distributor.New, "d", slow, distributor.Options{SealAge: time.Second})
	time.Sleep(5 * time.Second)
	d.Stop()
	_ = d.Wait()
	p = testworld.Begun(w, processor.New, "p", h, processor.Options{})
	time.Sleep(time.Minute)
	return d.Summary.Run, p
}

// An operator ends a run while it is repaired: nothing more of it is put.
func TestTheRepairOfARunThatIsEndedStops(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var h testworld.Seen
		run, p := stoppedHalfWay(w, &h)
		time.AfterFunc(5*time.Minute, func() {
			if _, err := runs.End(t.Context(), w.Operator(), run.String(), false, "by hand"); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		sum, err := mend(w, run, &testworld.ListSource{Print: "a", N: 200, Pace: time.Minute}, distributor.RepairOptions{},
			distributor.Options{})
		if took := time.Since(began); took > 8*time.Minute || sum.Put > 0 || !errors.Is(err, pump.ErrRunState) ||
			!strings.Contains(err.Error(), "by hand") {
			t.Errorf("after %v: %+v, %v", took, sum, err)
		}
		p.End()
	})
}
