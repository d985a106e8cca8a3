package testworld

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// ListSource is a replayable source of numbered records in memory. Its cursor is the number of the
// next record.
type ListSource struct {
	Print string // "" is not replayable
	N     int
	Pace  time.Duration // before each record
	Bad   map[int]bool
	Key   func(i int) string
	Body  func(i int) []byte // nil: short ones
}

// Fingerprint is the test's.
func (s *ListSource) Fingerprint(context.Context) (string, error) { return s.Print, nil }

// Open begins at the number in the cursor.
func (s *ListSource) Open(_ context.Context, cursor []byte) (source.Reader, error) {
	r := &ListReader{S: s}
	if len(cursor) > 0 {
		fmt.Sscan(string(cursor), &r.At)
	}
	return r, nil
}

// ListReader reads a [ListSource].
type ListReader struct {
	S  *ListSource
	At int
}

// Next gives the next numbered record.
func (r *ListReader) Next(ctx context.Context) (source.Record, error) {
	if r.S.Pace > 0 && !waits.Wait(ctx, r.S.Pace) {
		return source.Record{}, ctx.Err()
	}
	i := r.At
	if i >= r.S.N {
		return source.Record{}, io.EOF
	}
	r.At++
	if r.S.Bad[i] {
		return source.Record{}, &source.BadInput{
			Where: fmt.Sprintf("list:%d", i+1), Raw: fmt.Appendf(nil, "raw %d", i), Err: ErrFlop,
		}
	}
	body := fmt.Appendf(nil, "body %d", i)
	if r.S.Body != nil {
		body = r.S.Body(i)
	}
	return source.Record{Key: []byte(r.S.keyOf(i)), ID: fmt.Sprint(i), Body: body}, nil
}

func (s *ListSource) keyOf(i int) string {
	if s.Key != nil {
		return s.Key(i)
	}
	return fmt.Sprintf("key %d", i%97)
}

// AppendCursor adds the number of the next record.
func (r *ListReader) AppendCursor(dst []byte) []byte { return fmt.Append(dst, r.At) }

// Progress is in records.
func (r *ListReader) Progress() (int64, int64) { return int64(r.At), int64(r.S.N) }

// Close does nothing.
func (r *ListReader) Close() error { return nil }

// Delivered is what lies in the work queues: for each identity its bodies, one for each copy.
type Delivered map[string][]string

// Collect takes everything out of the work queues.
func (w *World) Collect() Delivered {
	w.T.Helper()
	got, _ := w.Take()
	return got
}

// Found is one message as it lay in a queue.
type Found struct {
	Account, Queue string
	Segment        uint32
	Inserted       time.Time
}

// Take takes everything out of the work queues, and tells where it lay.
func (w *World) Take() (Delivered, []Found) {
	w.T.Helper()
	return w.TakeFrom(setup.Shards(w.Cfg))
}

// TakeFrom takes everything out of some queues, and tells where it lay.
func (w *World) TakeFrom(shards []shardmap.Shard) (got Delivered, lay []Found) {
	w.T.Helper()
	got = Delivered{}
	for _, s := range shards {
		q := w.Queue(s.Account, s.Queue)
		for {
			ms, err := q.Get(w.T.Context(), storage.MaxGet, time.Hour)
			if storage.Is(err, storage.Throttled) {
				time.Sleep(time.Second)
				continue
			}
			proof.Must(w.T, err)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				e, err := codec.Open(m.Text, codec.Limits{})
				proof.Must(w.T, err)
				lay = append(lay, Found{s.Account, s.Queue, e.Header.Segment, m.Inserted})
				for _, t := range e.Tasks {
					if want := shardmap.Segment(shardmap.KeyOf(t.Key, t.Body, e.Header.Segment, w.Segments()),
						w.Segments()); want != e.Header.Segment {
						w.T.Errorf("task %s of segment %d lies in segment %d", t.ID, want, e.Header.Segment)
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

// Segments is how many segments the workload has.
func (w *World) Segments() int { return shardmap.DefaultSegments(len(setup.Shards(w.Cfg))) }

// Expect checks that each of the source's tasks lies there under exactly its identity by reading in
// order, and how many copies there are in all; copies -1 is any number.
func (got Delivered) Expect(
	t *testing.T, segments int, run pump.RunID, s *ListSource, upTo, copies int,
) {
	t.Helper()
	counts := map[uint32]uint64{}
	want := map[string]string{}
	for i := range upTo {
		if s.Bad[i] {
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

// RunRow reads the row of a run.
func (w *World) RunRow(id pump.RunID) workload.Run {
	w.T.Helper()
	r, err := w.AllRuns().Get(w.T.Context(), id)
	proof.Must(w.T, err)
	return r
}

// Poison puts a message into an account's quarantine: an envelope of one task for each key.
func (w *World) Poison(
	account string, segment uint32, reason string, last time.Time, keys ...string,
) string {
	var tasks []codec.Task
	for _, key := range keys {
		n := w.Ns[segment]
		w.Ns[segment]++
		tasks = append(tasks, codec.Task{
			N: n, Key: []byte(key), Body: fmt.Appendf(nil, "%d/%d", segment, n),
		})
	}
	header := codec.Header{
		Workload: w.Cfg.Workload, Run: w.Run, Segment: segment, Attempt: 7, MapVersion: 1,
	}
	text, err := codec.Quarantined(w.Sealed(header, tasks...), codec.Cause{
		Reason: reason, Detail: "flop", Instance: "p", Attempts: 8,
		First: last.Add(-time.Hour), Last: last,
	})
	proof.Must(w.T, err)
	return w.PutText(account, workload.PoisonQueue(w.Cfg.Workload), text)
}
