package distributor_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// mount is a testworld.ListSource that lies on a mount which may be missing or failing on this
// machine.
type mount struct {
	testworld.ListSource
	fails func(where string, i int) error // where is "look", "open" or "read"
}

func (m *mount) Fingerprint(context.Context) (string, error) {
	return m.Print, m.fails("look", 0)
}

func (m *mount) Open(ctx context.Context, cursor []byte) (source.Reader, error) {
	if err := m.fails("open", 0); err != nil {
		return nil, err
	}
	r, err := m.ListSource.Open(ctx, cursor)
	return &mountReader{r.(*testworld.ListReader), m}, err
}

type mountReader struct {
	*testworld.ListReader
	m *mount
}

func (r *mountReader) Next(ctx context.Context) (source.Record, error) {
	if err := r.m.fails("read", r.At); err != nil {
		return source.Record{}, err
	}
	return r.ListReader.Next(ctx)
}

func failing(at string, from int, err error) func(string, int) error {
	return func(where string, i int) error {
		if where == at && i >= from {
			return &fs.PathError{Op: at, Path: "/mnt/tasks", Err: err}
		}
		return nil
	}
}

// elected lists the runs that elected leaders made.
func elected(w *testworld.World) []workload.Run {
	return slices.DeleteFunc(runsOf(w), func(r workload.Run) bool { return r.Mode != closing.ModeEvery })
}

// A10: a machine that cannot read the source says nothing about the source.
func TestAStandbyThatCannotReadTheSourceLeavesTheRunToOthers(t *testing.T) {
	for name, fails := range map[string]func(string, int) error{
		"a missing mount":       failing("look", 0, syscall.ENOENT),
		"a right not given":     failing("open", 0, syscall.EACCES),
		"a disk that fails":     failing("read", 0, syscall.EIO),
		"a disk with a bad end": failing("read", 1500, syscall.EIO),
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				var e ended
				w.Engine.BarrierAge = time.Second
				s := testworld.ListSource{Print: "a", N: 2000, Pace: 10 * time.Millisecond}
				o := distributor.Options{Every: time.Hour, OnRun: e.by("d1")}
				one := testworld.Begun(w, distributor.New, "d1", &s, o)
				time.Sleep(8 * time.Second)
				o.OnRun = e.by("blind")
				blind := testworld.Begun(w, distributor.New, "blind", &mount{s, fails}, o)
				time.Sleep(time.Second)
				w.Crash("d1")
				time.Sleep(40 * time.Second) // it leads
				o.OnRun = e.by("d2")
				two := testworld.Begun(w, distributor.New, "d2", &s, o)
				r := e.until(t, succeeded)
				w.Collect().Expect(t, w.Segments(), r.Run, &s, s.N, -1)
				if r.who != "d2" || !r.Resumed || int(r.Tasks) != s.N {
					t.Errorf("finished: %+v", r)
				}
				for _, run := range runsOf(w) {
					if run.State == workload.RunBroken {
						t.Errorf("a run is broken: %+v", run)
					}
				}
				if w.Logged("the source cannot be read on this machine") == 0 {
					t.Error("the log does not say so")
				}
				for _, d := range []*testworld.Started[*distributor.Distributor, distributor.Summary]{one, blind, two} {
					d.Stop()
					_ = d.Wait()
				}
			})
		})
	}
}

// A distribution stays due while no distributor can read the source, and is made soon after one
// can.
func TestASourceThatCannotBeReadUsesUpNoDistribution(t *testing.T) {
	for _, at := range []string{"look", "open", "read"} {
		t.Run(at, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				var e ended
				began := time.Now()
				back := began.Add(10 * time.Minute)
				gone := failing(at, 50, syscall.EIO)
				if at != "read" {
					gone = failing(at, 0, syscall.EIO)
				}
				m := &mount{testworld.ListSource{Print: "a", N: 100}, func(where string, i int) error {
					if time.Now().Before(back) {
						return gone(where, i)
					}
					return nil
				}}
				d := testworld.Begun(w, distributor.New, "d", m, distributor.Options{Every: 24 * time.Hour, OnRun: e.by("d")})
				r := e.until(t, succeeded)
				if late := r.at.Sub(back); late > 90*time.Second {
					t.Errorf("it was made %v after the source was back", late)
				}
				if n := w.Logged("the source cannot be read on this machine"); n < 8 || n > 20 {
					t.Errorf("it was said %d times in ten minutes", n)
				}
				got := w.Collect()
				got.Expect(t, w.Segments(), r.Run, &m.ListSource, 100, 100)
				if runs := elected(w); len(runs) != 1 || runs[0].State != workload.RunSealed && runs[0].State != workload.RunClosed {
					t.Errorf("%+v", runs)
				}
				d.Stop()
				_ = d.Wait()
			})
		})
	}
}

// A command that is missing on this machine is no run that failed.
func TestACommandThatCannotStartUsesUpNoDistribution(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var e ended
		source := &source.TextSource{Command: []string{filepath.Join(t.TempDir(), "none")}}
		d := testworld.Begun(w, distributor.New, "d", source, distributor.Options{Every: time.Hour, OnRun: e.by("d")})
		time.Sleep(5 * time.Minute)
		d.Stop()
		_ = d.Wait()
		if runs := elected(w); len(runs) != 0 {
			t.Errorf("%+v", runs)
		}
		if n := len(e.all()); n < 4 {
			t.Errorf("it was tried %d times", n)
		}
	})
}

// A slip in the first command leaves nothing behind.
func TestASourceThatCannotBeReadLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		proof.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, c := range map[string]struct {
		source source.Source
		is     func(error) bool
	}{
		"no file":      {source.Lines(filepath.Join(dir, "none")), func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		"no command":   {&source.TextSource{Command: []string{filepath.Join(dir, "none")}}, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		"no directory": {source.Files(filepath.Join(dir, "none")), func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		"no such key":  {source.JSONLines(file("a.jsonl", `{"city":"Oslo"}`), "citty"), func(err error) bool { _, ok := errors.AsType[*source.BadInput](err); return ok }},
		"no column":    {source.CSV(file("a.csv", "city\nOslo\n"), "citty"), func(err error) bool { return err != nil }},
		"no gzip":      {source.Lines(file("a.gz", "\x1f\x8b\x08and then nothing")), func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				before := w.Sim.Stats().Count("", "")
				s, err := testworld.Made(w, distributor.New, "d", c.source, distributor.Options{}).Run(t.Context())
				if !c.is(err) || !s.Run.IsZero() {
					t.Errorf("%+v, %v", s, err)
				}
				proof.Same(t, w.Sim.Stats().Count("", "")-before, 0, "requests were made")
			})
		})
	}
}

// A run may become done long after who distributed it is gone.
func TestTheLeaderClosesRunsWhileItHasNothingToDistribute(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		var e ended
		var all []*testworld.Started[*distributor.Distributor, distributor.Summary]
		for _, who := range []string{"d1", "d2", "d3"} {
			all = append(all, testworld.Begun(w, distributor.New, who, &testworld.ListSource{Print: "a", N: 50}, distributor.Options{Every: 24 * time.Hour, OnRun: e.by(who)}))
		}
		run := e.until(t, succeeded)
		row := w.RunRow(run.Run)
		s.Record(run.Run, testworld.Below(row.Sealed), nil)
		time.Sleep(3 * closing.Every)
		if row = w.RunRow(run.Run); row.State != workload.RunClosed {
			t.Errorf("the run is %s", row.State)
		}
		for _, d := range all {
			d.Stop()
			proof.Must(t, d.Wait())
		}
	})
}

// An operator's end stops the distributor.
func TestADistributorWhoseRunIsEndedStops(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var e ended
		d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 1 << 30}, distributor.Options{MaxRate: 10, OnRun: e.by("d")})
		time.Sleep(10 * time.Second)
		id := w.Newest()
		proof.Must(t, w.AllRuns().End(t.Context(), id, false, "by hand"))
		time.Sleep(30 * time.Second)
		if err := d.Wait(); err == nil {
			t.Error("it goes on")
		}
		if row := w.RunRow(id); row.State != workload.RunEnded || row.Note != "by hand" {
			t.Errorf("%+v", row)
		}
	})
}

// A distributor makes the queues of an account that was dark at its start, although it puts nothing
// there: a later change of accounts may make each the home of messages.
func TestQueuesThatWereLateAreMadeWithoutAPut(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		late := w.Queue("accountb", "work-01")
		proof.Must(t, errors.Join(late.Drop(t.Context()), w.Queue("accountb", "work-poison").Drop(t.Context())))
		time.Sleep(time.Minute) // the name of a queue that is being deleted is taken
		dark := w.Sim.Inject(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.FailBefore})
		d := testworld.Made(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 0}, distributor.Options{Every: time.Hour})
		s := testworld.Start(w.T, d)
		time.Sleep(time.Minute)
		if w.Logged("queues could not be made yet") == 0 {
			t.Error("it is not said that queues are late")
		}
		dark.Remove()
		time.Sleep(time.Minute)
		for _, name := range []string{"work-01", "work-poison"} {
			proof.Is(t, proof.ErrOf(w.Queue("accountb", name).Count(t.Context())), nil, name)
		}
		s.Stop()
		proof.Must(t, s.Wait())
	})
}

// A drain makes the queues that get the segments, and goes on if their account does not answer.
func TestADrainMakesTheQueuesThatGetSegments(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		missing := w.Queue("accountb", "work-01")
		proof.Must(t, missing.Drop(t.Context()))
		time.Sleep(time.Minute)
		w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "queue", Fault: azsim.HangBefore})
		began := time.Now()
		c, err := accounts.Drain(t.Context(), w.Operator(), "accounta")
		if took := time.Since(began); err != nil || !c.Changed || took > 30*time.Second {
			t.Errorf("%+v after %v: %v", c, took, err)
		}
		if _, err := missing.Count(t.Context()); storage.Is(err, storage.Missing) {
			t.Error("the queue was not made")
		}
		proof.Same(t, w.Logged("it is not known whether every queue of an account is there"), 1,
			"it is not said which account is in doubt")
	})
}

// ended is what OnRun was told, by all distributors of a test.
type ended struct {
	mu   sync.Mutex
	runs []endedRun
}

type endedRun struct {
	who string
	distributor.Summary
	err error
	at  time.Time
}

func (e *ended) by(who string) func(distributor.Summary, error) {
	return func(s distributor.Summary, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.runs = append(e.runs, endedRun{who, s, err, time.Now()})
	}
}

func (e *ended) all() []endedRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]endedRun{}, e.runs...)
}

// until waits for a run that ended as asked for.
func (e *ended) until(t *testing.T, what func(endedRun) bool) endedRun {
	t.Helper()
	for range 3600 {
		for _, r := range e.all() {
			if what(r) {
				return r
			}
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("waited an hour; runs so far: %+v", e.all())
	return endedRun{}
}

func succeeded(r endedRun) bool { return r.err == nil }

// unknownHost answers for an account that does not exist as a resolver does.
type unknownHost struct{}

func (unknownHost) Do(r *http.Request) (*http.Response, error) {
	return nil, &net.DNSError{Err: "no such host", Name: r.URL.Host, IsNotFound: true}
}

// misspelt is a configuration with one account that does not exist.
func misspelt(w *testworld.World, which int) pump.Config {
	w.Cfg.Workload = "town" // the world's own is there
	c := w.Operator()
	name := w.Sim.Accounts()[which]
	st, err := azure.Open(azure.Options{ConnectionString: w.Sim.ConnectionString(name), Transport: unknownHost{}})
	proof.Must(w.T, err)
	c.Accounts[which].Storage = st
	return c
}
