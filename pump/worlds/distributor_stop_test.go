package worlds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/source"
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
	must(t, err)
	defer r.Close()
	for {
		rec, err := r.Next(t.Context())
		if err == io.EOF {
			return all
		}
		must(t, err)
		all = append(all, string(rec.Body))
	}
}

// P2.1, P2.3: wherever in a tree a leader is told to stop, the next one gives
// each file that was not yet sent, and each file has one identity.
func TestALeaderToldToStopInsideATreeHandsOverTheRest(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"a/x", "b/1", "c/2/3", "c/2/4", "d", "e/5"} {
		must(t, errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o700), os.WriteFile(filepath.Join(dir, p), nil, 0o600)))
	}
	files := source.Files(dir)
	rows := paths(t, files)
	for after := range rows {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				var e ended
				o := distributor.Options{Every: time.Hour, OnRun: e.by("d1")}
				stopping := &stoppingSource{Source: files, after: after}
				one := w.distributor("d1", stopping, o)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stopping.stop = cancel
				must(t, errOf(one.Run(ctx)))
				o.OnRun = e.by("d2")
				two := w.startDistributor(w.distributor("d2", files, o))
				r := e.until(t, succeeded)
				two.cancel()
				_ = two.wait()
				if !r.Resumed || int(r.Tasks) != len(rows) {
					t.Errorf("finished: %+v", r)
				}
				want, counts := testworld.Delivered{}, map[uint32]uint64{}
				for _, row := range rows {
					segment := shardmap.Segment([]byte(row), w.Segments())
					want[fmt.Sprintf("%s/%d/%d", r.Run, segment, counts[segment])] = []string{row}
					counts[segment]++
				}
				if diff := cmp.Diff(want, w.Collect()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
