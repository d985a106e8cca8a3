package worlds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/source"
)

// mend repairs a run from a source, by a distributor with these options.
func (w *world) mend(run pump.RunID, s source.Source, o distributor.RepairOptions, d distributor.Options) (distributor.RepairSummary, error) {
	w.T.Helper()
	return w.distributor("mender", s, d).Repair(w.T.Context(), run, o)
}

// unsettled records all tasks of a sealed run but every k-th of each segment, and gives
// how many those are.
func (s *scribe) allBut(run workload.Run, k uint64) (missing int) {
	done := map[uint32]codec.NSet{}
	for segment, count := range run.Sealed {
		var set codec.NSet
		for n := range count {
			if n%k == k-1 {
				missing++
			} else {
				set.AddRange(n, n+1)
			}
		}
		done[uint32(segment)] = set
	}
	s.record(run.ID, done, nil)
	return missing
}

func TestRepairPutsWhatIsMissingUnderItsIdentityAndNothingElse(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "a", N: 2000}
		run, s := w.distributed(source.N), w.scribe()
		want := w.Collect()
		w.empty()
		missing := s.allBut(run, 5)
		poisoned := fullSegment(t, run.Sealed, 5)
		s.record(run.ID, nil, map[uint32]codec.NSet{poisoned: codec.MakeNSet(4)})
		missing--

		dry, err := w.mend(run.ID, source, distributor.RepairOptions{DryRun: true}, distributor.Options{})
		if err != nil || !dry.DryRun || dry.Tasks != 2000 || dry.Missing != uint64(missing) || dry.Quarantined != 1 || dry.Done != uint64(1999-missing) || dry.Put != 0 || w.Left() != w.hidden() {
			t.Fatalf("dry run: %+v, %v", dry, err)
		}
		sum, err := w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{})
		if err != nil || sum.State != "sealed" || sum.Put != int64(missing) || sum.Envelopes == 0 || sum.Sealed || len(sum.Lacking) != len(dry.Lacking) {
			t.Fatalf("%+v, %v", sum, err)
		}
		got := w.Collect()
		if len(got) != missing {
			t.Errorf("%d tasks were put, %d were missing", len(got), missing)
		}
		windowHit(t, len(got))
		for id, bodies := range got {
			if len(bodies) != 1 || bodies[0] != want[id][0] {
				t.Fatalf("%s was put as %q, and is %q", id, bodies, want[id])
			}
		}
		// When they are done too, nothing is left to repair.
		s.record(run.ID, below(run.Sealed), nil)
		if again, err := w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{}); err != nil || again.Missing != 0 || again.Put != 0 || len(again.Lacking) != 0 {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// hidden is how many messages collect has hidden for an hour.
func (w *world) hidden() int { return w.Left() - w.shown() }

func (w *world) shown() (n int) {
	for _, s := range setup.Shards(w.Cfg) {
		n += w.Visible(s.Account, s.Queue)
	}
	return n
}

// The whole way, with processors: a queue loses its messages, the run gets stuck, and a
// repair completes it; every task is done exactly once.
func TestAStuckRunIsCompleteAfterItsRepair(t *testing.T) {
	inOnceWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "a", N: 1000}
		run := w.distributed(source.N)
		lost := 0
		q := w.Queue("accounta", "work-02")
		for {
			ms, err := q.Get(t.Context(), 32, time.Minute)
			must(t, err)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				h, err := codec.ReadHeader(m.Text)
				must(t, err)
				lost += h.Tasks.Len()
				must(t, q.Delete(t.Context(), m.Receipt))
			}
		}
		var h testworld.Seen
		p := w.start(w.processor(&h, processor.Options{}))
		g := w.wait(t.Context(), run.ID, pump.WaitOptions{})
		<-g.done
		stuck, ok := errors.AsType[*pump.StuckError](g.err)
		if !ok || lost == 0 || stuck.Missing != uint64(lost) {
			t.Fatalf("%d tasks are lost: %+v, %v", lost, g.Completion, g.err)
		}
		sum, err := w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{})
		if err != nil || sum.Put != int64(lost) || *sum.Messages != 0 {
			t.Fatalf("%+v, %v", sum, err)
		}
		g = w.wait(t.Context(), run.ID, pump.WaitOptions{})
		if <-g.done; g.err != nil || g.State != pump.RunDone || !g.Closed {
			t.Errorf("%+v, %v", g.Completion, g.err)
		}
		p.End()
		h.Expect(t, 1000, 1000)
		if sum, err := w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{}); err != nil || sum.State != "closed" || sum.Put != 0 {
			t.Errorf("of a closed run: %+v, %v", sum, err)
		}
	})
}

// Copies of what a repair puts may be in the queues still: they are recognised.
func TestARepairOfARunThatIsNotStuckDoesNothingTwice(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "a", N: 600}
		run := w.distributed(source.N)
		sum, err := w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{})
		if err != nil || sum.Put != 600 || sum.Messages == nil || *sum.Messages == 0 || w.Logged("messages are left in the queues, and missing tasks may be in them") != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		var h testworld.Seen
		s := w.drain(&h, processor.Options{})
		h.Expect(t, 600, 600)
		if s.Duplicates != 600 {
			t.Errorf("%d duplicates were recognised", s.Duplicates)
		}
	})
}

// A run that broke, or was left by a distributor that died, is put to its end and sealed.
func TestARunThatWasNotSealedIsPutToItsEnd(t *testing.T) {
	for name, leave := range map[string]func(w *world, d *working){
		"broken": func(w *world, d *working) {
			d.cancel()
			if err := d.wait(); err == nil || !strings.Contains(err.Error(), "stopped before the end of the source") {
				w.T.Fatal(err)
			}
		},
		"open": func(w *world, d *working) {
			w.crash("d")
			d.cancel()
			_ = d.wait()
			time.Sleep(time.Minute) // its row in the cluster grows old
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				slow := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond, Bad: map[int]bool{3: true}}
				d := w.startDistributor(w.distributor("d", slow, distributor.Options{SealAge: time.Second, OnBadLine: distributor.BadLineSkip}))
				time.Sleep(5 * time.Second)
				leave(w, d)
				var h testworld.Seen
				p := w.start(w.processor(&h, processor.Options{}))
				time.Sleep(10 * time.Second)
				source := &testworld.ListSource{Print: "a", N: 1000, Bad: slow.Bad}
				run := w.RunRow(d.summary.Run)
				sum, err := w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{OnBadLine: distributor.BadLineSkip})
				if err != nil || sum.State != name || sum.Tasks != 999 || sum.Done == 0 || sum.Missing == 0 || sum.Done+sum.Missing != 999 || !sum.Sealed {
					t.Fatalf("%+v, %v", sum, err)
				}
				g := w.wait(t.Context(), run.ID, pump.WaitOptions{})
				if <-g.done; g.err != nil || g.State != pump.RunDone || g.Done != 999 {
					t.Errorf("%+v, %v", g.Completion, g.err)
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
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				source := &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}
				d := w.startDistributor(w.distributor("d", source, distributor.Options{Every: every}))
				time.Sleep(10 * time.Second)
				f := queues.Open(&w.Cfg)
				runs, err := workload.NewRuns(f.Control, "work").List(t.Context(), 1)
				must(t, err)
				left := w.Left()
				_, err = w.mend(runs[0].ID, &testworld.ListSource{Print: "a", N: 10_000}, distributor.RepairOptions{}, distributor.Options{})
				if !errors.Is(err, pump.ErrRunState) || !strings.Contains(err.Error(), "d is at work on it") || w.Left() != left {
					t.Errorf("got %v", err)
				}
				d.cancel()
				_ = d.wait()
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
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				run := w.distributed(500)
				w.empty()
				_, err := w.mend(run.ID, c.source, distributor.RepairOptions{}, c.o)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v", err)
				}
				if n := w.Left(); n > 0 {
					t.Errorf("%d messages were put", n)
				}
			})
		})
	}
}

func TestASourceThatChangesWhileItIsReadAgainIsAnError(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		run := w.distributed(500)
		_, err := w.mend(run.ID, &shrinking{testworld.ListSource{Print: "a", N: 500}, 0}, distributor.RepairOptions{}, distributor.Options{})
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
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		summary, err := w.distributor("d", &testworld.ListSource{N: 10}, distributor.Options{}).Run(t.Context())
		must(t, err)
		if _, err := w.mend(summary.Run, &testworld.ListSource{Print: "a", N: 10}, distributor.RepairOptions{}, distributor.Options{}); !errors.Is(err, source.ErrNotReplayable) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRepairNeedsDeliveryModeOnce(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		run := w.distributed(10)
		if _, err := w.mend(run.ID, &testworld.ListSource{Print: "a", N: 10}, distributor.RepairOptions{}, distributor.Options{}); err == nil || !strings.Contains(err.Error(), "a repair needs delivery mode once") {
			t.Errorf("got %v", err)
		}
	})
}

// Of a segment whose record is damaged it is not known what is missing.
func TestADamagedLedgerIsNotRepairedAround(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		run, s := w.distributed(100), w.scribe()
		s.record(run.ID, below(run.Sealed), nil)
		w.damageHead("head.0001")
		if _, err := w.mend(run.ID, &testworld.ListSource{Print: "a", N: 100}, distributor.RepairOptions{}, distributor.Options{}); !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), "head.0001") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnInterruptedRepairGoesOnWhereItWas(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "a", N: 3000, Pace: 2 * time.Millisecond} // 6 s each time
		run := w.distributed(source.N)
		w.empty()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(8*time.Second, func() { cancel(io.ErrClosedPipe) })
		sum, err := w.distributor("mender", source, distributor.Options{Pack: 10, Grace: time.Second}).Repair(ctx, run.ID, distributor.RepairOptions{})
		if !errors.Is(err, io.ErrClosedPipe) || sum.Put == 0 || sum.Put == 3000 {
			t.Fatalf("%+v, %v", sum, err)
		}
		var h testworld.Seen
		p := w.start(w.processor(&h, processor.Options{}))
		time.Sleep(5 * time.Minute)
		if sum, err = w.mend(run.ID, source, distributor.RepairOptions{}, distributor.Options{}); err != nil || sum.Done == 0 || sum.Put != int64(sum.Missing) {
			t.Fatalf("%+v, %v", sum, err)
		}
		g := w.wait(t.Context(), run.ID, pump.WaitOptions{})
		if <-g.done; g.err != nil || g.Done != 3000 {
			t.Errorf("%+v, %v", g.Completion, g.err)
		}
		p.End()
		h.Expect(t, 3000, 3000)
	})
}

// The source of a broken run takes hours to read again. Meanwhile it gives no other sign of life,
// and what is done of it is not forgotten and put again.
func TestARunWhoseSourceTakesHoursToReadIsRepaired(t *testing.T) {
	for name, dry := range map[string]bool{"repaired": false, "looked at": true} {
		t.Run(name, func(t *testing.T) {
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				var h testworld.Seen
				run, p := w.stoppedHalfWay(&h)
				did := h.Tasks()
				source := &testworld.ListSource{Print: "a", N: 200, Pace: 40 * time.Second}
				sum, err := w.mend(run, source, distributor.RepairOptions{DryRun: dry}, distributor.Options{})
				time.Sleep(time.Minute)
				w.redrive(quarantine.Filter{}, quarantine.Options{})
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
func (w *world) stoppedHalfWay(h pump.Handler) (run pump.RunID, p *started) {
	w.T.Helper()
	slow := &testworld.ListSource{Print: "a", N: 200, Pace: 50 * time.Millisecond}
	d := w.startDistributor(w.distributor("d", slow, distributor.Options{SealAge: time.Second}))
	time.Sleep(5 * time.Second)
	d.cancel()
	_ = d.wait()
	p = w.start(w.processor(h, processor.Options{}))
	time.Sleep(time.Minute)
	return d.summary.Run, p
}

// An operator ends a run while it is repaired: nothing more of it is put.
func TestTheRepairOfARunThatIsEndedStops(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		var h testworld.Seen
		run, p := w.stoppedHalfWay(&h)
		time.AfterFunc(5*time.Minute, func() {
			if _, err := runs.End(t.Context(), w.Operator(), run.String(), false, "by hand"); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		sum, err := w.mend(run, &testworld.ListSource{Print: "a", N: 200, Pace: time.Minute}, distributor.RepairOptions{},
			distributor.Options{})
		if took := time.Since(began); took > 8*time.Minute || sum.Put > 0 || !errors.Is(err, pump.ErrRunState) ||
			!strings.Contains(err.Error(), "by hand") {
			t.Errorf("after %v: %+v, %v", took, sum, err)
		}
		p.End()
	})
}
