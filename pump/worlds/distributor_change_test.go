package worlds

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// must ends a test with an error.
var must = proof.Must

// errOf is the error of a call whose result a test does not need.
func errOf(_ any, err error) error { return err }

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
		must(t, err)
		_, err = f.WriteAt([]byte("x"), 10)
		must(t, errors.Join(err, f.Close(), os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))))
	}
	for name, c := range map[string]struct {
		text   string
		change func(t *testing.T, path string)
		tasks  int // 0: the run is broken
	}{
		"nothing happens":         {text, func(*testing.T, string) {}, lines},
		"cut off":                 {text, func(t *testing.T, path string) { must(t, os.Truncate(path, lines/2*50)) }, 0},
		"cut off in a line":       {text, func(t *testing.T, path string) { must(t, os.Truncate(path, lines/2*50+7)) }, 0},
		"cut off behind the rest": {text, func(t *testing.T, path string) { must(t, os.Truncate(path, 50)) }, 0},
		"a cut gzip file":         {gz.String(), func(t *testing.T, path string) { must(t, os.Truncate(path, int64(gzCut))) }, 0},
		"a cut zstd file":         {zst.String(), func(t *testing.T, path string) { must(t, os.Truncate(path, int64(zstCut))) }, 0},
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
		"removed": {text, func(t *testing.T, path string) { must(t, os.Remove(path)) }, lines},
	} {
		t.Run(name, func(t *testing.T) {
			path := testkit.Write(t, "tasks.txt", c.text)
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				timer := time.AfterFunc(5*time.Second, func() { c.change(t, path) })
				defer timer.Stop()
				s, err := w.distributor("d", source.Lines(path), distributor.Options{MaxRate: 1000}).Run(t.Context())
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
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	part("b.txt", "b1\nb2\n")
	part("d.txt", "d1\nd2\n")
	source := source.Lines(filepath.Join(dir, "*.txt"))
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		cfg := w.Config("d", w.Cfg.Accounts[0].Queues)
		cfg.Log = slog.New(onMessage{cfg.Log.Handler(), "distributing", func() {
			part("a.txt", "a1\n")
			part("c.txt", "c1\n")
		}})
		d, err := distributor.New(cfg, source, distributor.Options{})
		must(t, err)
		s, err := d.Run(t.Context())
		if err != nil || s.Tasks != 4 {
			t.Errorf("%d tasks, %v", s.Tasks, err)
		}
	})
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		if s, err := w.distributor("d", source, distributor.Options{}).Run(t.Context()); err != nil || s.Tasks != 6 {
			t.Errorf("%d lines the next time, %v", s.Tasks, err)
		}
	})
}
