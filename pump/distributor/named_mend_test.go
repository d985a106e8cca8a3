package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// stalling is a stream that gives so many records at once and then nothing for a minute.
type stalling struct {
	testworld.ListSource
	after int
}

func (s *stalling) Open(ctx context.Context, _ []byte) (source.Reader, error) {
	r, err := s.ListSource.Open(ctx, nil)
	return &stallingReader{ListReader: r.(*testworld.ListReader), after: s.after}, err
}

type stallingReader struct {
	*testworld.ListReader
	after int
	about func(bool) error
}

func (r *stallingReader) Pauses(about func(bool) error) { r.about = about }

func (r *stallingReader) Next(ctx context.Context) (source.Record, error) {
	for range 200 {
		if r.At != r.after {
			break
		}
		if err := r.about(true); err != nil {
			return source.Record{}, err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return source.Record{}, context.Cause(ctx)
		}
	}
	return r.ListReader.Next(ctx)
}

// What a stream gave before it stalled is saved, so another stream is noticed after a death, also a
// shorter one; and the same one puts nothing twice.
func TestAStreamThatStallsIsSavedMeanwhile(t *testing.T) {
	for _, n := range []int{100, 300} {
		testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			o := nightly
			o.Grace = time.Millisecond
			begun := testworld.Begun(w, distributor.New, "d1", &stalling{testworld.ListSource{N: 300}, 200}, o)
			time.Sleep(4 * time.Second)
			w.Crash("d1")
			begun.Stop()
			_ = begun.Wait()
			before, again := w.Requests("PutMessage"), &testworld.ListSource{N: n}
			summary, err := testworld.Made(w, distributor.New, "d2", again, nightly).Run(t.Context())
			if n == 300 {
				proof.Must(t, err)
				w.Collect().Expect(t, w.Segments(), summary.Run, again, n, n)
			} else if puts := w.Requests("PutMessage") - before; !errors.Is(err, source.ErrSourceChanged) &&
				!strings.Contains(err.Error(), "200 records were sent, and now there are 100") || puts > 0 {
				t.Errorf("%d puts, %v", puts, err)
			}
		})
	}
}

func TestAStreamThatWasSentHasAsManyTasksAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		for i, n := range []int{100, 100, 60, 140} {
			before := w.Requests("PutMessage")
			summary, err := testworld.Made(w, distributor.New, "d"+string(rune('1'+i)),
				&testworld.ListSource{N: n, Bad: map[int]bool{7: true}},
				distributor.Options{Name: "st", OnBadLine: distributor.BadLineSkip}).Run(t.Context())
			var wrong *pump.ConfigError
			puts := w.Requests("PutMessage") - before
			if refused := errors.As(err, &wrong) && wrong.Field == "name"; refused != (n != 100) ||
				!refused && err != nil || (puts > 0) != (i == 0) || i == 1 && summary.Again == "" {
				t.Errorf("%d records: %d puts, %+v, %v", n, puts, summary, err)
			}
		}
	})
}

// A long line is its own key, and a message holds it once: it counts as it did when it was sent.
func TestAStreamOfLongLinesThatWasSentIsTheSameAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		line := testworld.Incompressible(40_000)
		for i := range 2 {
			summary, err := testworld.Made(w, distributor.New, fmt.Sprintf("d%d", i), &testworld.ListSource{
				N: 3, Key: func(int) string { return string(line) }, Body: func(int) []byte { return line },
			}, distributor.Options{Name: "long"}).Run(t.Context())
			if err != nil || summary.Tasks != 3 || (summary.Again != "") != (i > 0) {
				t.Errorf("%+v, %v", summary, err)
			}
		}
	})
}

// The time for waiting goes by while another process sends, and the log says who that is. A process
// that lost its run says what it had sent.
func TestANamedRunBesideAnotherProcess(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 9000, Pace: 10 * time.Millisecond}
		first := testworld.Begun(w, distributor.New, "d1", s, nightly)
		time.Sleep(10 * time.Second)
		o := nightly
		o.Wait = &pump.WaitOptions{Timeout: 20 * time.Second}
		began := time.Now()
		summary, err := testworld.Made(w, distributor.New, "d2", s, o).Run(t.Context())
		if took := time.Since(began); !errors.Is(err, pump.ErrTimeout) || summary.Completion == nil ||
			summary.Completion.State != pump.RunWaiting || took > 25*time.Second {
			t.Errorf("after %v: %+v, %v", took, summary, err)
		}
		if w.Logged("another process sends the run") == 0 || w.Logged("by=d1") == 0 {
			t.Error("it is not said who sends")
		}
		gone := w.Crash("d1")
		summary, err = testworld.Made(w, distributor.New, "d3", s, nightly).Run(t.Context())
		proof.Must(t, err)
		gone.Remove()
		proof.Must(t, first.Wait())
		if had := first.Summary; had.Again != "sealed" || had.Tasks != summary.Tasks || had.Envelopes == 0 || had.BytesIn == 0 {
			t.Errorf("the process that lost its run: %+v", had)
		}
		if w.Logged("the run is not sent to its end") > 0 {
			t.Error("a process that did not stop says that it did")
		}
	})
}

func TestNamesThatAreNotPossible(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		for _, name := range []string{strings.Repeat("0a", 16), "x\u202ey", "a b", strings.Repeat("n", 129)} {
			_, err := distributor.New(w.Config("d", 1), &testworld.ListSource{}, distributor.Options{Name: name})
			if wrong, is := errors.AsType[*pump.ConfigError](err); !is || wrong.Field != "name" {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// Another schedule in the workload is said, and the first election after a named run has no fault.
func TestAnElectionBesideANamedRunOrAnotherSchedule(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 10}
		_, err := testworld.Made(w, distributor.New, "d1", s, nightly).Run(t.Context())
		proof.Must(t, err)
		n := atNight(w, "* * * * *", time.Second)
		n.begin("a")
		time.Sleep(90 * time.Second)
		if w.Logged("the election row was gone") > 0 || w.Logged("has another schedule") > 0 {
			t.Error("a fault is said that there is not")
		}
		n.o.Cron = "*/2 * * * *"
		n.begin("b")
		time.Sleep(5 * time.Minute)
		if w.Logged("has another schedule") == 0 || w.Logged(`its="*/2 * * * * UTC"`) == 0 {
			t.Error("another schedule takes due times in silence")
		}
		n.end()
	})
}

// A source whose first record ends the run leaves the name free: the key was misspelt, say.
func TestAFirstRecordThatIsBadLeavesTheNameFree(t *testing.T) {
	text := &source.TextSource{Paths: []string{testkit.Write(t, "jsonl", `{"city":"Oslo"}`)}, Key: "ctiy"}
	mended := *text
	mended.Key = "city"
	none := &source.TextSource{Paths: []string{filepath.Join(t.TempDir(), "none.jsonl")}}
	stream := func(bad bool) source.Source {
		return &testworld.ListSource{N: 1, Bad: map[int]bool{0: bad}}
	}
	for name, c := range map[string]struct{ first, then source.Source }{
		"a file": {text, &mended}, "no file": {none, &mended}, "a stream": {stream(true), stream(false)},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				_, err := testworld.Made(w, distributor.New, "d1", c.first, nightly).Run(t.Context())
				runs, _ := w.AllRuns().List(t.Context(), 10)
				if err == nil || slices.ContainsFunc(runs, func(r workload.Run) bool { return r.Name != "" }) {
					t.Fatalf("a run was made, or all is well: %v", err)
				}
				summary, err := testworld.Made(w, distributor.New, "d2", c.then, nightly).Run(t.Context())
				if err != nil || summary.Tasks != 1 {
					t.Fatalf("the command that was mended: %+v, %v", summary, err)
				}
			})
		})
	}
}
