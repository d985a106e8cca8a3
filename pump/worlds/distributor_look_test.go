package worlds

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
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
func (w *world) elected() []workload.Run {
	return slices.DeleteFunc(w.runsOf(), func(r workload.Run) bool { return r.Mode != closing.ModeEvery })
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
			inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
				var e ended
				w.Engine.BarrierAge = time.Second
				s := testworld.ListSource{Print: "a", N: 2000, Pace: 10 * time.Millisecond}
				o := distributor.Options{Every: time.Hour, OnRun: e.by("d1")}
				one := w.startDistributor(w.distributor("d1", &s, o))
				time.Sleep(8 * time.Second)
				o.OnRun = e.by("blind")
				blind := w.startDistributor(w.distributor("blind", &mount{s, fails}, o))
				time.Sleep(time.Second)
				w.crash("d1")
				time.Sleep(40 * time.Second) // it leads
				o.OnRun = e.by("d2")
				two := w.startDistributor(w.distributor("d2", &s, o))
				r := e.until(t, succeeded)
				w.Collect().Expect(t, w.Segments(), r.Run, &s, s.N, -1)
				if r.who != "d2" || !r.Resumed || int(r.Tasks) != s.N {
					t.Errorf("finished: %+v", r)
				}
				for _, run := range w.runsOf() {
					if run.State == workload.RunBroken {
						t.Errorf("a run is broken: %+v", run)
					}
				}
				if w.Logged("the source cannot be read on this machine") == 0 {
					t.Error("the log does not say so")
				}
				for _, d := range []*working{one, blind, two} {
					d.cancel()
					_ = d.wait()
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
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
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
				d := w.startDistributor(w.distributor("d", m, distributor.Options{Every: 24 * time.Hour, OnRun: e.by("d")}))
				r := e.until(t, succeeded)
				if late := r.at.Sub(back); late > 90*time.Second {
					t.Errorf("it was made %v after the source was back", late)
				}
				if n := w.Logged("the source cannot be read on this machine"); n < 8 || n > 20 {
					t.Errorf("it was said %d times in ten minutes", n)
				}
				got := w.Collect()
				got.Expect(t, w.Segments(), r.Run, &m.ListSource, 100, 100)
				if runs := w.elected(); len(runs) != 1 || runs[0].State != workload.RunSealed && runs[0].State != workload.RunClosed {
					t.Errorf("%+v", runs)
				}
				d.cancel()
				_ = d.wait()
			})
		})
	}
}

// A command that is missing on this machine is no run that failed.
func TestACommandThatCannotStartUsesUpNoDistribution(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		var e ended
		source := &source.TextSource{Command: []string{filepath.Join(t.TempDir(), "none")}}
		d := w.startDistributor(w.distributor("d", source, distributor.Options{Every: time.Hour, OnRun: e.by("d")}))
		time.Sleep(5 * time.Minute)
		d.cancel()
		_ = d.wait()
		if runs := w.elected(); len(runs) != 0 {
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
		must(t, os.WriteFile(path, []byte(text), 0o600))
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
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				before := w.Sim.Stats().Count("", "")
				s, err := w.distributor("d", c.source, distributor.Options{}).Run(t.Context())
				if !c.is(err) || !s.Run.IsZero() {
					t.Errorf("%+v, %v", s, err)
				}
				if n := w.Sim.Stats().Count("", "") - before; n != 0 {
					t.Errorf("%d requests were made", n)
				}
			})
		})
	}
}
