package distributor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// stoppingSource is a source whose reader tells the distributor to stop when so
// many records were given, and is asked for the next when the stop has arrived.
type stoppingSource struct {
	source.Source
	after int
	stop  func()
}

func (s *stoppingSource) Open(ctx context.Context, cursor []byte) (source.Reader, error) {
	r, err := s.Source.Open(ctx, cursor)
	return &stoppingReader{Reader: r, s: s}, err
}

type stoppingReader struct {
	source.Reader
	s     *stoppingSource
	given int
}

func (r *stoppingReader) Next(ctx context.Context) (source.Record, error) {
	if r.given == r.s.after {
		r.s.stop()
		<-ctx.Done()
	}
	r.given++
	return r.Reader.Next(ctx)
}

// paths are the bodies that a source gives, which are its keys as well.
func paths(t *testing.T, s source.Source) (all []string) {
	t.Helper()
	r, err := s.Open(t.Context(), nil)
	proof.Must(t, err)
	defer r.Close()
	for {
		rec, err := r.Next(t.Context())
		if err == io.EOF {
			return all
		}
		proof.Must(t, err)
		all = append(all, string(rec.Body))
	}
}

// P2.1, P2.3: wherever in a tree a leader is told to stop, the next one gives
// each file that was not yet sent, and each file has one identity.
func TestALeaderToldToStopInsideATreeHandsOverTheRest(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"a/x", "b/1", "c/2/3", "c/2/4", "d", "e/5"} {
		proof.Must(t, errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o700), os.WriteFile(filepath.Join(dir, p), nil, 0o600)))
	}
	files := source.Files(dir)
	rows := paths(t, files)
	for after := range rows {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				var e ended
				o := distributor.Options{Every: time.Hour, OnRun: e.by("d1")}
				stopping := &stoppingSource{Source: files, after: after}
				one := testworld.Made(w, distributor.New, "d1", stopping, o)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stopping.stop = cancel
				proof.Must(t, proof.ErrOf(one.Run(ctx)))
				o.OnRun = e.by("d2")
				two := testworld.Begun(w, distributor.New, "d2", files, o)
				r := e.until(t, succeeded)
				two.Stop()
				_ = two.Wait()
				if !r.Resumed || int(r.Tasks) != len(rows) {
					t.Errorf("finished: %+v", r)
				}
				want, counts := testworld.Delivered{}, map[uint32]uint64{}
				for _, row := range rows {
					segment := shardmap.Segment([]byte(row), w.Segments())
					want[fmt.Sprintf("%s/%d/%d", r.Run, segment, counts[segment])] = []string{row}
					counts[segment]++
				}
				proof.Same(t, cmp.Diff(want, w.Collect()), "", "-want +got)")
			})
		})
	}
}

func TestBadLines(t *testing.T) {
	bad := map[int]bool{3: true, 500: true, 999: true}
	t.Run("fail breaks the run and names the line", func(t *testing.T) {
		testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			summary, err := testworld.Made(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 1000, Bad: bad}, distributor.Options{}).Run(t.Context())
			if err == nil || err.Error() != "list:4: flop" {
				t.Errorf("got %v", err)
			}
			if row := w.RunRow(summary.Run); row.State != workload.RunBroken || !strings.Contains(row.Note, "list:4") {
				t.Errorf("the run's row: %+v", row)
			}
		})
	})
	t.Run("skip counts them", func(t *testing.T) {
		testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			s := &testworld.ListSource{Print: "a", N: 1000, Bad: bad}
			summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{OnBadLine: distributor.BadLineSkip}).Run(t.Context())
			if err != nil || summary.Skipped != 3 || summary.Tasks != 997 {
				t.Errorf("%+v, %v", summary, err)
			}
			w.Collect().Expect(t, w.Segments(), summary.Run, s, 1000, 997)
			proof.Same(t, w.Logged("list:501"), 1, "a skipped line is logged … times")
		})
	})
	t.Run("quarantine keeps the line with its cause", func(t *testing.T) {
		testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			s := &testworld.ListSource{Print: "a", N: 1000, Bad: bad}
			summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{OnBadLine: distributor.BadLineQuarantine}).Run(t.Context())
			if err != nil || summary.Quarantined != 3 || summary.Tasks != 997 {
				t.Errorf("%+v, %v", summary, err)
			}
			w.Collect().Expect(t, w.Segments(), summary.Run, s, 1000, 997)
			var got []string
			for _, text := range w.Poisoned("accounta") {
				e, err := codec.Open(text, codec.Limits{})
				proof.Must(t, err)
				c := e.Header.Cause
				if c == nil || c.Reason != codec.ReasonBadLine || !strings.Contains(c.Detail, summary.Run.String()) || !strings.Contains(c.Detail, "flop") || !e.Header.Run.IsZero() {
					t.Errorf("header %+v, cause %+v", e.Header, c)
				}
				got = append(got, string(e.Tasks[0].ID)+": "+string(e.Tasks[0].Body))
			}
			slices.Sort(got)
			proof.Same(t, cmp.Diff([]string{"list:1000: raw 999", "list:4: raw 3", "list:501: raw 500"}, got), "")
			if row := w.RunRow(summary.Run); row.Tasks != 997 {
				t.Errorf("sealed with %d tasks: bad lines are no tasks of the run", row.Tasks)
			}
		})
	})
}

// A run that put nothing is over at once: nothing of it can be met.
func TestARunThatPutNothingEndsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		bad  int
		over bool
	}{"the first line is bad": {0, true}, "a later line is bad": {5000, false}} {
		testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
			src := &testworld.ListSource{Print: "a", N: 6000, Bad: map[int]bool{c.bad: true}, Pace: time.Millisecond}
			s, err := testworld.Made(w, distributor.New, "d", src, distributor.Options{Pack: 10}).Run(t.Context())
			if err == nil {
				t.Fatalf("%s: no error", name)
			}
			row := w.RunRow(s.Run)
			if row.Over != c.over || (row.State == workload.RunEnded) != c.over || !strings.Contains(row.Note, fmt.Sprintf("list:%d", c.bad+1)) {
				t.Errorf("%s: %+v", name, row)
			}
		})
	}
}

// A task that fits no message is a bad line, and does not use up a number.
func TestATaskTooLargeForAMessageIsABadLine(t *testing.T) {
	large := testworld.Incompressible(80 << 10)
	fits := bytes.Repeat([]byte("compressible "), 40<<10) // 520 KiB
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		key := []byte("k")
		src := func(yield func(source.Record, error) bool) {
			for _, body := range [][]byte{[]byte("a"), large, fits, large, []byte("b")} {
				if !yield(source.Record{Key: key, Body: body}, nil) {
					return
				}
			}
		}
		summary, err := testworld.Made(w, distributor.New, "d", source.FromSeq(src), distributor.Options{OnBadLine: distributor.BadLineQuarantine}).Run(t.Context())
		if err != nil || summary.Tasks != 3 || summary.Quarantined != 2 {
			t.Fatalf("%+v, %v", summary, err)
		}
		got := w.Collect()
		segment := shardmap.Segment(key, w.Segments())
		for n, body := range []string{"a", string(fits), "b"} {
			if b := got[fmt.Sprintf("%s/%d/%d", summary.Run, segment, n)]; len(b) != 1 || b[0] != body {
				t.Errorf("task %d has %d copies", n, len(b))
			}
		}
		for _, text := range w.Poisoned("accounta") {
			e, err := codec.Open(text, codec.Limits{})
			proof.Must(t, err)
			if !bytes.HasPrefix(large, e.Tasks[0].Body) || len(e.Tasks[0].Body) < 10<<10 || !strings.Contains(e.Header.Cause.Detail, "the first") {
				t.Errorf("%d bytes kept, %q", len(e.Tasks[0].Body), e.Header.Cause.Detail)
			}
		}
	})
}

// A17: a role that was assigned a minute ago is not known everywhere. A distributor waits for
// whatever all queues refuse first.
func TestAFirstRefusalOfAQueueIsWaitedFor(t *testing.T) {
	for _, refused := range []azsim.Rule{
		{Status: 403, Code: "AuthorizationPermissionMismatch"},
		{Status: 403, Code: "AuthorizationFailure"},
		{Status: 401, Code: "InvalidAuthenticationInfo"},
	} {
		for _, every := range []time.Duration{0, 24 * time.Hour} {
			t.Run(fmt.Sprint(refused.Code, " every ", every), func(t *testing.T) {
				testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
					refused.Instance, refused.Service, refused.Fault = "d", "queue", azsim.Answer
					rule := w.Fault(refused)
					time.AfterFunc(9*time.Minute, rule.Remove)
					var e ended
					s := &testworld.ListSource{Print: "a", N: 1000}
					d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{Every: every, OnRun: e.by("d")})
					time.Sleep(11 * time.Minute)
					r := e.until(t, func(endedRun) bool { return true })
					if r.err != nil || w.Logged("a queue refuses the credential") < 4 || w.Logged("Storage Queue Data Contributor") == 0 {
						t.Errorf("%+v; said %d times", r, w.Logged("a queue refuses the credential"))
					}
					w.Collect().Expect(t, w.Segments(), r.Run, s, s.N, s.N)
					d.Stop()
					_ = d.Wait()
				})
			})
		}
	}
}

// Nor does an elected distributor end that comes up before its role on the table is known.
func TestAnElectedDistributorWaitsForItsRightOnTheTable(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		rule := w.Fault(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"})
		time.AfterFunc(9*time.Minute, rule.Remove)
		var e ended
		d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 10}, distributor.Options{Every: time.Hour, OnRun: e.by("d")})
		e.until(t, succeeded)
		if w.Logged("Storage Table Data Contributor") == 0 {
			t.Error("the log does not say what to do")
		}
		d.Stop()
		_ = d.Wait()
	})
}

// An unwatched command must end when the right never comes; a leader waits, because others would do
// no better.
func TestARefusalThatLastsEndsACommandAfterItsPatience(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{Instance: "d", Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"}, "PutMessage")
		began := time.Now()
		s, err := testworld.Made(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 10}, distributor.Options{}).Run(t.Context())
		if took := time.Since(began); took < authPatience || took > authPatience+2*time.Minute {
			t.Errorf("it took %v", took)
		}
		if e, ok := errors.AsType[*storage.Error](err); !ok || e.Code != storage.Auth || !strings.Contains(err.Error(), "Storage Queue Data Contributor") {
			t.Errorf("got %v", err)
		}
		if run := w.RunRow(s.Run); run.State != workload.RunBroken {
			t.Errorf("the run is %s", run.State)
		}
	})
}

// A11: the run of a file that changes while it is read is complete or broken, and never sealed with
// less.
func TestAFileThatChangesWhileItIsReadIsNotSealedAsComplete(t *testing.T) {
	const lines, packed = 20_000, 100
	text := testkit.Numbered(0, lines)
	var gz, zst strings.Builder // of many members, so that a cut between two of them is no damage
	gzCut, zstCut := 0, 0
	for i := 0; i < lines; i += packed {
		if gz.WriteString(testkit.Gzipped(testkit.Numbered(i, i+packed))); i == lines/2 {
			gzCut = gz.Len()
		}
		if zst.WriteString(testkit.Zstded(testkit.Numbered(i, i+packed))); i == lines/2 {
			zstCut = zst.Len()
		}
	}
	rewrite := func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		proof.Must(t, err)
		_, err = f.WriteAt([]byte("x"), 10)
		proof.Must(t, errors.Join(err, f.Close(), os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))))
	}
	for name, c := range map[string]struct {
		text   string
		change func(t *testing.T, path string)
		tasks  int // 0: the run is broken
	}{
		"nothing happens":         {text, func(*testing.T, string) {}, lines},
		"cut off":                 {text, func(t *testing.T, path string) { proof.Must(t, os.Truncate(path, lines/2*50)) }, 0},
		"cut off in a line":       {text, func(t *testing.T, path string) { proof.Must(t, os.Truncate(path, lines/2*50+7)) }, 0},
		"cut off behind the rest": {text, func(t *testing.T, path string) { proof.Must(t, os.Truncate(path, 50)) }, 0},
		"a cut gzip file":         {gz.String(), func(t *testing.T, path string) { proof.Must(t, os.Truncate(path, int64(gzCut))) }, 0},
		"a cut zstd file":         {zst.String(), func(t *testing.T, path string) { proof.Must(t, os.Truncate(path, int64(zstCut))) }, 0},
		"written to":              {text, rewrite, 0},
		"grown":                   {text, func(t *testing.T, path string) { testkit.Append(t, path, testkit.Numbered(lines, 2*lines)) }, lines},
		"grown behind half a line": {text + "half", func(t *testing.T, path string) {
			testkit.Append(t, path, " a line\n"+testkit.Numbered(lines, 2*lines))
		}, lines},
		"a grown gzip file": {gz.String(), func(t *testing.T, path string) {
			testkit.Append(t, path, testkit.Gzipped(testkit.Numbered(0, 10)))
		}, lines},
		"a grown zstd file": {zst.String(), func(t *testing.T, path string) {
			testkit.Append(t, path, testkit.Zstded(testkit.Numbered(0, 10)))
		}, lines},
		"removed": {text, func(t *testing.T, path string) { proof.Must(t, os.Remove(path)) }, lines},
	} {
		t.Run(name, func(t *testing.T) {
			path := testkit.Write(t, "tasks.txt", c.text)
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				timer := time.AfterFunc(5*time.Second, func() { c.change(t, path) })
				defer timer.Stop()
				s, err := testworld.Made(w, distributor.New, "d", source.Lines(path), distributor.Options{MaxRate: 1000}).Run(t.Context())
				row := w.RunRow(s.Run)
				if c.tasks == 0 {
					if !errors.Is(err, source.ErrSourceChanged) || row.State != workload.RunBroken {
						t.Errorf("%d tasks of %d, the run is %s: %v", s.Tasks, lines, row.State, err)
					}
				} else if err != nil || int(s.Tasks) != c.tasks || row.State != workload.RunSealed {
					t.Errorf("%d tasks of %d, the run is %s: %v", s.Tasks, c.tasks, row.State, err)
				}
			})
		})
	}
}

// onMessage calls do when a line is logged.
type onMessage struct {
	slog.Handler
	text string
	do   func()
}

func (h onMessage) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.text {
		h.do()
	}
	return h.Handler.Handle(ctx, r)
}

func (h onMessage) WithAttrs(a []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(a)
	return h
}

// A12: files that come or go between the fingerprint and the reading are of the next distribution.
func TestTheListThatWasFingerprintedIsTheListThatIsRead(t *testing.T) {
	dir := t.TempDir()
	part := func(name, text string) {
		proof.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	part("b.txt", "b1\nb2\n")
	part("d.txt", "d1\nd2\n")
	source := source.Lines(filepath.Join(dir, "*.txt"))
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("d", w.Cfg.Accounts[0].Queues)
		cfg.Log = slog.New(onMessage{cfg.Log.Handler(), "distributing", func() {
			part("a.txt", "a1\n")
			part("c.txt", "c1\n")
		}})
		d, err := distributor.New(cfg, source, distributor.Options{})
		proof.Must(t, err)
		s, err := d.Run(t.Context())
		if err != nil || s.Tasks != 4 {
			t.Errorf("%d tasks, %v", s.Tasks, err)
		}
	})
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		if s, err := testworld.Made(w, distributor.New, "d", source, distributor.Options{}).Run(t.Context()); err != nil || s.Tasks != 6 {
			t.Errorf("%d lines the next time, %v", s.Tasks, err)
		}
	})
}
