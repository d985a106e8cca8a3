package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

func lookRow(w *testworld.World) election.Status {
	w.T.Helper()
	f := queues.Open(&w.Cfg)
	s, err := election.New(f.Control, w.Cfg.Workload, election.Options{Instance: "look"}).Status(w.T.Context())
	proof.Must(w.T, err)
	return s
}

// Origins H4 (docs/protocols.md): every distributor wakes, and exactly one runs each distribution.
func TestOfManyDistributorsOneRunsEachDistribution(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var e ended
		s := &testworld.ListSource{Print: "a", N: 500}
		var all []*testworld.Started[*distributor.Distributor, distributor.Summary]
		for _, who := range []string{"d1", "d2", "d3"} {
			all = append(all, testworld.Begun(w, distributor.New, who, s, distributor.Options{Every: time.Minute, OnRun: e.by(who)}))
		}
		time.Sleep(4*time.Minute + 30*time.Second)
		for _, d := range all {
			d.Stop()
			proof.Is(t, d.Wait(), nil, "a distributor that is stopped while idle")
		}
		runs := e.all()
		proof.Same(t, len(runs), 5, "distributions in 4.5 minutes", runs)
		got := w.Collect()
		for i, r := range runs {
			got.Expect(t, w.Segments(), r.Run, s, 500, 500)
			if row := w.RunRow(r.Run); r.err != nil || row.State != workload.RunSealed || row.Mode != "every" {
				t.Errorf("run %d: %v, row %+v", i, r.err, row)
			}
			if i > 0 && r.at.Sub(runs[i-1].at) < time.Minute {
				t.Errorf("run %d ended %v after the one before", i, r.at.Sub(runs[i-1].at))
			}
		}
	})
}

// Origins H1, P2.1: when the leader dies another picks the load up at the checkpoint,
// and no task gets a second identity.
func TestADeadLeadersRunIsContinuedFromItsCheckpoint(t *testing.T) {
	for _, quarantine := range []bool{false, true} {
		t.Run(fmt.Sprintf("quarantine %v", quarantine), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				var e ended
				w.Engine.BarrierAge = 2 * time.Second
				s := &testworld.ListSource{Print: "a", N: 4000, Pace: 10 * time.Millisecond}
				o := distributor.Options{Every: time.Hour}
				if quarantine {
					o.OnBadLine, s.Bad = distributor.BadLineQuarantine, map[int]bool{}
					for i := 0; i < s.N; i += 100 {
						s.Bad[i] = true
					}
				}
				o.OnRun = e.by("d1")
				one := testworld.Begun(w, distributor.New, "d1", s, o)
				time.Sleep(time.Second)
				o.OnRun = e.by("d2")
				two := testworld.Begun(w, distributor.New, "d2", s, o)
				time.Sleep(14 * time.Second)
				w.Crash("d1")
				r := e.until(t, succeeded)
				if r.who != "d2" || !r.Resumed || int(r.Tasks) != s.N-len(s.Bad) || int(r.Quarantined) != len(s.Bad) {
					t.Errorf("finished: %+v", r)
				}
				got := w.Collect()
				got.Expect(t, w.Segments(), r.Run, s, s.N, -1)
				copies := 0
				for _, b := range got {
					copies += len(b)
				}
				// Checkpoints are at most a second and the barrier's age old, that
				// is 300 tasks, and the acknowledgements.
				if extra := copies - (s.N - len(s.Bad)); extra > 400 {
					t.Errorf("%d tasks were sent again", extra)
				}
				if row := w.RunRow(r.Run); row.State != workload.RunSealed || int(row.Tasks) != s.N-len(s.Bad) || row.Instance != "d1" {
					t.Errorf("the run's row: %+v", row)
				}
				one.Stop()
				two.Stop()
				_, _ = one.Wait(), two.Wait()
			})
		})
	}
}

// A leader that comes back after it was declared dead is a zombie. It may add
// duplicates and nothing else.
func TestAZombieAddsNothingButDuplicates(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var e ended
		w.Engine.BarrierAge = time.Second
		s := &testworld.ListSource{Print: "a", N: 6000, Pace: 10 * time.Millisecond}
		o := distributor.Options{Every: time.Hour, OnRun: e.by("d")}
		one := testworld.Begun(w, distributor.New, "d1", s, o)
		time.Sleep(time.Second)
		two := testworld.Begun(w, distributor.New, "d2", s, o)
		time.Sleep(9 * time.Second)
		// Only the table is out of its reach: it goes on putting until its trust ends.
		dark := w.Sim.Inject(azsim.Rule{Instance: "d1", Service: "table", Fault: azsim.FailBefore})
		time.Sleep(30 * time.Second)
		dark.Remove()
		r := e.until(t, succeeded)
		w.Collect().Expect(t, w.Segments(), r.Run, s, s.N, -1)
		one.Stop()
		two.Stop()
		_, _ = one.Wait(), two.Wait()
		if n := len(e.all()); n != 2 {
			t.Errorf("%d ends of a distribution, want the lost one and the finished one: %+v", n, e.all())
		}
	})
}

// A leader told to stop sends what it read, saves, and leaves: the next one
// continues at once and sends nothing twice.
func TestALeaderToldToStopHandsOverWithoutDuplicates(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		var e ended
		s := &testworld.ListSource{Print: "a", N: 2000, Pace: 10 * time.Millisecond}
		o := distributor.Options{Every: time.Hour, OnRun: e.by("d1")}
		one := testworld.Begun(w, distributor.New, "d1", s, o)
		time.Sleep(time.Second)
		o.OnRun = e.by("d2")
		two := testworld.Begun(w, distributor.New, "d2", s, o)
		time.Sleep(9 * time.Second)
		one.Stop()
		proof.Must(t, one.Wait())
		stopped := time.Now()
		r := e.until(t, succeeded)
		if r.who != "d2" || !r.Resumed {
			t.Errorf("finished: %+v", r)
		}
		if r.at.Sub(stopped) > 18*time.Second {
			t.Errorf("10 s of work took %v after the stop", r.at.Sub(stopped))
		}
		w.Collect().Expect(t, w.Segments(), r.Run, s, s.N, s.N)
		two.Stop()
		_ = two.Wait()
	})
}

// P2.3, P2.4: what cannot be read again as it was is not continued. The run is
// broken, loudly, and the next leader begins a new one.
func TestARunIsNotContinuedOnAnotherSource(t *testing.T) {
	for name, c := range map[string]struct {
		before, after *testworld.ListSource
		options       func(*distributor.Options)
		want          error
	}{
		"changed source":   {before: &testworld.ListSource{Print: "a", N: 2000}, after: &testworld.ListSource{Print: "b", N: 2001}, want: source.ErrSourceChanged},
		"changed settings": {before: &testworld.ListSource{Print: "a", N: 2000}, after: &testworld.ListSource{Print: "a", N: 2000}, options: func(o *distributor.Options) { o.OnBadLine = distributor.BadLineSkip }, want: source.ErrSourceChanged},
		"not replayable":   {before: &testworld.ListSource{N: 2000}, after: &testworld.ListSource{N: 2000}, want: source.ErrNotReplayable},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				var e ended
				w.Engine.BarrierAge = time.Second
				c.before.Pace = 10 * time.Millisecond
				o := distributor.Options{Every: time.Hour, OnRun: e.by("d1")}
				one := testworld.Begun(w, distributor.New, "d1", c.before, o)
				time.Sleep(10 * time.Second)
				w.Crash("d1")
				o.OnRun = e.by("d2")
				if c.options != nil {
					c.options(&o)
				}
				two := testworld.Begun(w, distributor.New, "d2", c.after, o)
				r := e.until(t, succeeded)
				one.Stop()
				two.Stop()
				_, _ = one.Wait(), two.Wait()
				refused := e.until(t, func(r endedRun) bool { return errors.Is(r.err, c.want) })
				if refused.who != "d2" || refused.Run == r.Run || r.Resumed {
					t.Errorf("refused %+v, then finished %+v", refused, r)
				}
				row := w.RunRow(refused.Run)
				if row.State != workload.RunBroken || refused.Tasks == 0 || !strings.Contains(row.Note, fmt.Sprintf("read %d tasks, acknowledged %[1]d of them", refused.Tasks)) {
					t.Errorf("the broken run's row: %+v", row)
				}
				proof.Same(t, w.Logged("a run cannot be continued"), 1, "the log does not say so")
				w.Collect().Expect(t, w.Segments(), r.Run, c.after, c.after.N, c.after.N)
			})
		})
	}
}

// A leader that dies between sealing the run and finishing leaves nothing to
// send: the next one only finishes.
func TestASealedRunIsOnlyFinished(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		f := queues.Open(&w.Cfg)
		runs := workload.NewRuns(f.Control, w.Cfg.Workload)
		term, _, err := election.New(f.Control, w.Cfg.Workload, election.Options{Instance: "former"}).Try(t.Context())
		if err != nil || term == nil {
			t.Fatal(err)
		}
		id := codec.NewRunID()
		proof.Must(t, errors.Join(runs.Create(t.Context(), workload.Run{ID: id}), term.Begin(t.Context(), id), runs.Seal(t.Context(), id, make([]uint64, w.Segments()))))
		term.Abandon(t.Context())
		var e ended
		d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 10}, distributor.Options{Every: time.Minute, OnRun: e.by("d")})
		time.Sleep(50 * time.Second)
		if len(e.all()) > 0 || w.Left() > 0 {
			t.Errorf("something was distributed: %+v", e.all())
		}
		if s := lookRow(w); s.Phase != election.Idle {
			t.Errorf("the row: %+v", s)
		}
		r := e.until(t, succeeded)
		d.Stop()
		if err := d.Wait(); err != nil || r.Run == id {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A leader that dies between making a run's row and beginning the run leaves an open row; the
// next leader ends it, and neither what another sends without an election nor what was begun.
func TestARunThatNeverBeganIsEnded(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		f := queues.Open(&w.Cfg)
		runs := workload.NewRuns(f.Control, w.Cfg.Workload)
		ids := map[string]codec.RunID{"once": codec.NewRunID(), closing.ModeEvery: codec.NewRunID()}
		for mode, id := range ids {
			proof.Must(t, runs.Create(t.Context(), workload.Run{ID: id, Mode: mode, Instance: "former"}))
		}
		var first, second ended
		lead := func(name string, e *ended) *testworld.Started[*distributor.Distributor, distributor.Summary] {
			return testworld.Begun(w, distributor.New, name, &testworld.ListSource{Print: "a", N: 10, Pace: time.Second}, distributor.Options{Every: time.Minute, OnRun: e.by(name)})
		}
		a := lead("a", &first)
		time.Sleep(5 * time.Second)
		proof.Same(t, w.Logged("a run that never began was ended"), 1, "runs were ended")
		b := lead("b", &second)
		time.Sleep(time.Second)
		a.Stop() // in mid-run: b continues it
		_ = a.Wait()
		r := second.until(t, succeeded)
		b.Stop()
		_ = b.Wait()
		if row := w.RunRow(r.Run); !r.Resumed || row.State != workload.RunSealed {
			t.Errorf("%+v, the run is %s", r, row.State)
		}
		if row := w.RunRow(ids["once"]); row.State != workload.RunOpen {
			t.Errorf("the run without an election is %s", row.State)
		}
		if row := w.RunRow(ids[closing.ModeEvery]); row.State != workload.RunBroken || row.Note != neverBegun {
			t.Errorf("the run that never began is %s: %s", row.State, row.Note)
		}
	})
}

// P2.5: past the cap the distributor waits for the control plane.
func TestUnsavedWorkIsCapped(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var mu sync.Mutex
		var p distributor.Progress
		w.Engine.CheckpointEvery = 100 * time.Millisecond
		w.Engine.BarrierAge, w.Engine.MaxUnsaved = time.Second, 200
		s := &testworld.ListSource{Print: "a", N: 3000, Pace: time.Millisecond}
		o := distributor.Options{Every: time.Hour, Progress: func(now distributor.Progress) {
			mu.Lock()
			defer mu.Unlock()
			p = now
		}}
		read := func() int64 {
			mu.Lock()
			defer mu.Unlock()
			return p.Tasks
		}
		var e ended
		o.OnRun = e.by("d")
		d := testworld.Begun(w, distributor.New, "d", s, o)
		time.Sleep(time.Second)
		dark := w.Sim.Inject(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.FailBefore})
		time.Sleep(500 * time.Millisecond) // what was on its way
		before := read()
		if before == 0 {
			t.Fatal("nothing was read")
		}
		time.Sleep(5 * time.Second)
		if after := read(); after-before > 200 {
			t.Errorf("%d tasks were read while the control plane was dark, the cap is 200", after-before)
		}
		dark.Remove()
		r := e.until(t, succeeded)
		w.Collect().Expect(t, w.Segments(), r.Run, s, s.N, -1)
		d.Stop()
		_ = d.Wait()
	})
}

// A leader that dies before its first checkpoint leaves a run without one: it
// starts from the beginning, as the same run.
func TestARunWithoutACheckpointStartsFromTheBeginning(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var text strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&text, "{\"k\":\"key %d\",\"i\":%d}\n", i%97, i)
		}
		source := source.JSONLines(testkit.Write(t, "tasks.jsonl", text.String()), "k")
		// Its puts are never answered, so no checkpoint can be saved.
		w.Sim.Inject(azsim.Rule{Instance: "d1", Service: "queue", Operations: []string{"PutMessage"}, Fault: azsim.HangAfter})
		var e ended
		one := testworld.Begun(w, distributor.New, "d1", source, distributor.Options{Every: time.Hour, OnRun: e.by("d1")})
		time.Sleep(3 * time.Second)
		w.Crash("d1")
		two := testworld.Begun(w, distributor.New, "d2", source, distributor.Options{Every: time.Hour, OnRun: e.by("d2")})
		r := e.until(t, succeeded)
		if r.who != "d2" || !r.Resumed || r.Tasks != 5000 {
			t.Errorf("finished: %+v", r)
		}
		got := w.Collect()
		proof.Same(t, len(got), 5000, "identities for 5000 tasks")
		for id, bodies := range got {
			for _, b := range bodies {
				proof.Same(t, b, bodies[0], "identity", id, "has … and")
			}
		}
		one.Stop()
		two.Stop()
		_, _ = one.Wait(), two.Wait()
	})
}

// A source that cannot be read is tried more and more seldom, however often it is due.
func TestAnElectedDistributorWithoutItsSourceTriesMoreAndMoreSeldom(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var e ended
		d := testworld.Begun(w, distributor.New, "d", source.Lines(filepath.Join(t.TempDir(), "none")), distributor.Options{Every: time.Second, OnRun: e.by("d")})
		time.Sleep(3*time.Minute - 10*time.Second)
		d.Stop()
		proof.Must(t, d.Wait())
		runs := e.all()
		if len(runs) != 5 { // after 0, 10, 30, 70, 130 s, a quarter more or less
			t.Errorf("%d tries in three minutes", len(runs))
		}
		for _, r := range runs {
			if !errors.Is(r.err, fs.ErrNotExist) || !r.Run.IsZero() {
				t.Errorf("%+v", r)
			}
		}
	})
}

// A source whose cursors do not fit the row is an error, not a run that is never saved.
func TestACursorThatIsTooLongBreaksTheRun(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var e ended
		s := longCursor{testworld.ListSource{Print: "a", N: 5000, Pace: time.Millisecond}}
		d := testworld.Begun(w, distributor.New, "d", &s, distributor.Options{Every: time.Hour, OnRun: e.by("d")})
		e.until(t, func(r endedRun) bool { return r.err != nil && strings.Contains(r.err.Error(), "cursor") })
		d.Stop()
		_ = d.Wait()
	})
}

type longCursor struct{ testworld.ListSource }

func (s *longCursor) Open(ctx context.Context, cursor []byte) (source.Reader, error) {
	r, err := s.ListSource.Open(ctx, cursor)
	return longCursorReader{r}, err
}

type longCursorReader struct{ source.Reader }

func (longCursorReader) AppendCursor(dst []byte) []byte {
	return append(dst, make([]byte, source.MaxCursor+1)...)
}

// A bad line under `fail` breaks the run; the next distribution is due as usual.
func TestAnElectedRunThatFailsIsBrokenAndTheNextIsDue(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var e ended
		s := &testworld.ListSource{Print: "a", N: 100, Bad: map[int]bool{50: true}}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{Every: time.Minute, OnRun: e.by("d")})
		time.Sleep(90 * time.Second)
		d.Stop()
		proof.Must(t, d.Wait())
		runs := e.all()
		if len(runs) != 2 {
			t.Fatalf("%d runs", len(runs))
		}
		for _, r := range runs {
			if _, ok := errors.AsType[*source.BadInput](r.err); !ok || w.RunRow(r.Run).State != workload.RunBroken {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestACheckpointKeepsWhatIsInIt(t *testing.T) {
	c := &workload.Checkpoint{Cursor: []byte("here"), Counts: []uint64{0, 1, 1 << 40, 7}, Skipped: 3, Quarantined: 1 << 33}
	got, err := workload.DecodeCheckpoint(c.Encode(), 4)
	if err != nil || fmt.Sprint(*got) != fmt.Sprint(*c) || got.Tasks() != 8+1<<40 {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range c.Encode() {
		if _, err := workload.DecodeCheckpoint(c.Encode()[:i], 4); err == nil && i < len(c.Encode())-len(c.Cursor) {
			t.Errorf("cut at %d it was accepted", i)
		}
	}
	if _, err := workload.DecodeCheckpoint(c.Encode(), 8); err == nil {
		t.Error("a checkpoint of another number of segments was accepted")
	}
	full := &workload.Checkpoint{Cursor: make([]byte, source.MaxCursor), Counts: make([]uint64, shardmap.MaxSegments), Skipped: 1 << 60, Quarantined: 1 << 60}
	for i := range full.Counts {
		full.Counts[i] = 1 << 61
	}
	if n := len(full.Encode()); n > election.MaxCheckpoint {
		t.Errorf("the largest checkpoint has %d bytes, the row holds %d", n, election.MaxCheckpoint)
	}
}
