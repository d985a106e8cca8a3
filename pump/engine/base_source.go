package engine

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// listSource is a replayable source of numbered records in memory. Its cursor is
// the number of the next one.
type listSource struct {
	print string // "" is not replayable
	n     int
	pace  time.Duration // before each record
	bad   map[int]bool
	key   func(i int) string
}

func (s *listSource) Fingerprint(context.Context) (string, error) { return s.print, nil }

func (s *listSource) Open(_ context.Context, cursor []byte) (source.Reader, error) {
	r := &listReader{s: s}
	if len(cursor) > 0 {
		fmt.Sscan(string(cursor), &r.at)
	}
	return r, nil
}

type listReader struct {
	s  *listSource
	at int
}

func (r *listReader) Next(ctx context.Context) (source.Record, error) {
	if r.s.pace > 0 && !backoff.Wait(ctx, r.s.pace) {
		return source.Record{}, ctx.Err()
	}
	i := r.at
	if i >= r.s.n {
		return source.Record{}, io.EOF
	}
	r.at++
	if r.s.bad[i] {
		return source.Record{}, &source.BadInput{Where: fmt.Sprintf("list:%d", i+1), Raw: fmt.Appendf(nil, "raw %d", i), Err: errFlop}
	}
	return source.Record{Key: []byte(r.s.keyOf(i)), ID: fmt.Sprint(i), Body: fmt.Appendf(nil, "body %d", i)}, nil
}

func (s *listSource) keyOf(i int) string {
	if s.key != nil {
		return s.key(i)
	}
	return fmt.Sprintf("key %d", i%97)
}

func (r *listReader) AppendCursor(dst []byte) []byte { return fmt.Append(dst, r.at) }

func (r *listReader) Progress() (int64, int64) { return int64(r.at), int64(r.s.n) }

func (r *listReader) Close() error { return nil }

// delivered is what lies in the work queues: for each identity the bodies that
// were found under it, one for each copy.
type delivered map[string][]string

// collect takes everything out of the work queues.
func (w *baseWorld) collect() delivered {
	w.t.Helper()
	got, _ := w.take()
	return got
}

// found is one message as it lay in a queue.
type found struct {
	account, queue string
	segment        uint32
	inserted       time.Time
}

// take takes everything out of the work queues, and tells where it lay.
func (w *baseWorld) take() (delivered, []found) {
	w.t.Helper()
	return w.takeFrom(settings.Shards(w.cfg))
}

func (w *baseWorld) takeFrom(shards []shardmap.Shard) (got delivered, lay []found) {
	w.t.Helper()
	got = delivered{}
	for _, s := range shards {
		q := w.queue(s.Account, s.Queue)
		for {
			ms, err := q.Get(w.t.Context(), storage.MaxGet, time.Hour)
			if storage.Is(err, storage.Throttled) {
				time.Sleep(time.Second)
				continue
			}
			if err != nil {
				w.t.Fatal(err)
			}
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				e, err := codec.Open(m.Text, codec.Limits{})
				if err != nil {
					w.t.Fatal(err)
				}
				lay = append(lay, found{s.Account, s.Queue, e.Header.Segment, m.Inserted})
				for _, t := range e.Tasks {
					if want := shardmap.Segment(t.Key, w.segments()); want != e.Header.Segment {
						w.t.Errorf("task %s of segment %d lies in segment %d", t.ID, want, e.Header.Segment)
					}
					id := fmt.Sprintf("%s/%d/%d", e.Header.Run, e.Header.Segment, t.N)
					got[id] = append(got[id], string(t.Body))
				}
				e.Release()
			}
		}
	}
	return got, lay
}

func (w *baseWorld) segments() int { return shardmap.DefaultSegments(len(settings.Shards(w.cfg))) }

// expect checks that each of the source's tasks lies there under exactly the
// identity that reading in order gives it, and how many copies there are in all;
// copies -1 is any number.
func (got delivered) expect(t *testing.T, segments int, run pump.RunID, s *listSource, upTo, copies int) {
	t.Helper()
	counts := map[uint32]uint64{}
	want := map[string]string{}
	for i := range upTo {
		if s.bad[i] {
			continue
		}
		segment := shardmap.Segment([]byte(s.keyOf(i)), segments)
		want[fmt.Sprintf("%s/%d/%d", run, segment, counts[segment])] = fmt.Sprintf("body %d", i)
		counts[segment]++
	}
	seen, missing := 0, 0
	for id, bodies := range got {
		if !strings.HasPrefix(id, run.String()) {
			continue
		}
		for _, b := range bodies {
			seen++
			if b != want[id] {
				t.Fatalf("identity %s has %q, want %q: a task has a second identity", id, b, want[id])
			}
		}
	}
	for id := range want {
		if len(got[id]) == 0 {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d tasks are missing", missing, len(want))
	}
	if copies >= 0 && seen != copies {
		t.Errorf("%d copies of tasks, want %d", seen, copies)
	}
}

func (w *baseWorld) runRow(id pump.RunID) workload.Run {
	w.t.Helper()
	f := queues.Open(&w.cfg, row.TableName)
	r, err := workload.NewRuns(f.Control, w.cfg.Workload).Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// choice is which of its segment's choices a message lay in; -1 for none of them.
func (f found) choice(m *shardmap.Map) int {
	return slices.IndexFunc(m.Choices(f.segment), func(i int) bool { return m.Shards[i].Account == f.account && m.Shards[i].Queue == f.queue })
}
