package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Tally counts what a distribution has done so far, for its progress and
// summary. Any goroutine may add to it.
type Tally struct {
	Tasks, BytesIn         atomic.Int64 // read
	Acked, Envelopes, Sent atomic.Int64 // acknowledged: tasks, envelopes, bytes
	Skipped, Quarantined   atomic.Int64
	Begun                  atomic.Int64 // envelopes that were put at least once, with any outcome
	Resent                 atomic.Int64
	Done, Total            atomic.Int64 // of the source, in its own unit
}

// Segmenter reads the source and gives each task its segment and its number in it. It is the one
// place that makes identities, and what it holds changes together: the reader's position, the
// counters, the interval. So a barrier is taken here and nowhere else (P2.1).
type Segmenter struct {
	Source   source.Reader
	First    *FirstRecord // that the source gave before; nil: none, or it is dealt with
	Counts   []uint64     // tasks of each segment so far
	interval int
	Lanes    []*Lane
	Tracker  *Tracker
	Check    *Checkpointer // nil without an election
	Count    *Tally
	// the bad line is dealt with, or the error ends the run
	OnBad func(bad *source.BadInput, interval int) error
	// Wanted says which tasks are handed on; the others are only numbered. nil: all are. It is asked
	// once about each task, those of a segment in their order.
	Wanted func(segment uint32, n uint64) bool
	Pace   *rate.Limiter // of the records; nil: as fast as they come
	Whole  codec.Header  // to try whether a large task fits
	Trial  *codec.Builder

	tasks   int64 // read so far; count's is brought up to it now and then
	bytesIn int64 // of those that count does not have yet
	// Stalls has barriers taken while the source is waited for. Its cursor must not change meanwhile.
	Stalls      bool
	eager       bool      // records are not collected: each read of the source may have to wait
	handed      time.Time // when all that was collected was handed over
	BadLines    uint64    // skipped so far
	PoisonLines uint64    // sent to quarantine so far
	Quarantines bool      // what bad lines count as
	BarrierAt   int64     // tasks when the last barrier was taken
	barrierBad  uint64    // bad lines then

	// Trace makes the span of a task that is sent and gives its context; nil: tasks are not traced.
	Trace func(ctx context.Context, segment uint32, n uint64) []byte
	// Put puts a message that is sealed already; see [Ready].
	Put    func(*Message) error
	Bodies *Bodies // of large tasks; nil: they stand in messages
}

// SurelyFits is a size of key, id and body up to which any task fits an empty
// envelope, compressible or not: 48 KiB are in 64 KiB of base64, less
// codec.DefaultHeadroom and at most 2 KiB of header. Larger ones are tried.
const SurelyFits = 44 << 10

// Read reads until the source ends (nil), reading ends (the cause of its context),
// a bad line ends the run or something fails. A task that is read is offered to
// its lane under ctx, which lives longer than reading: a task that was read and
// numbered and not offered would be lost to the checkpoint behind it.
//
// It collects tasks, and hands them over when they are many, and before it waits for the source or
// anything else. A lane gets the tasks that it has collected at its end when the lane is closed.
func (s *Segmenter) Read(ctx, within context.Context) error {
	defer s.progress()
	s.tasks = s.Count.Tasks.Load()
	if source, ok := s.Source.(source.Pausing); ok {
		source.Pauses(func(wait bool) error { return s.paused(ctx, wait) })
	} else {
		s.eager = true
	}
	var rec source.Record
	for {
		if within.Err() != nil {
			return context.Cause(within)
		}
		if s.Check != nil {
			if err := s.checkpoint(ctx, within); err != nil {
				return err
			}
		}
		if s.eager || s.Pace != nil {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
		if s.Pace != nil && s.Pace.Wait(within) != nil {
			return context.Cause(within)
		}
		err := s.next(within, &rec)
		if err == nil {
			err = s.accept(ctx, &rec)
		}
		if err == nil {
			continue
		}
		if bad, ok := errors.AsType[*source.BadInput](err); ok {
			if rec.Receipt != nil { // the caller that handed it in is told
				rec.Receipt.Refuse(bad.Err)
				err = nil
			} else {
				err = s.badRecord(ctx, bad)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// next gets a record, or marks an error as the source's.
func (s *Segmenter) next(reading context.Context, rec *source.Record) (err error) {
	if first := s.First; first != nil {
		s.First = nil
		*rec, err = first.Rec, first.Err
	} else {
		*rec, err = s.Source.Next(reading)
	}
	if err == nil || err == io.EOF {
		return err
	}
	if _, bad := errors.AsType[*source.BadInput](err); bad {
		return err
	}
	return &SourceError{err}
}

// accept gives a record its identity and hands it on. Before that it finds out whether the task is
// too large for a message: a number given to such a task would be missing for ever.
func (s *Segmenter) accept(ctx context.Context, rec *source.Record) error {
	if r, ready := rec.Receipt.(Ready); ready {
		r.Message.Interval = s.interval
		s.Tracker.Opened(s.interval)
		return s.Put(r.Message)
	}
	segment := shardmap.Segment(rec.Key, len(s.Counts))
	if r, is := rec.Receipt.(Seated); is {
		if seat, chosen := r.Seat(); chosen {
			segment = seat
		}
	}
	n := s.Counts[segment]
	rec.Key = shardmap.StoredKey(rec.Key, rec.Body, len(s.Counts))
	kept, _ := rec.Receipt.(Reserved)
	if kept != nil {
		if given, has := kept.Number(); has {
			blob, err := s.inBlob(segment, given, rec)
			if err != nil {
				return err
			}
			return s.handOn(ctx, segment, given, rec, blob)
		}
	}
	blob, err := s.inBlob(segment, n, rec)
	if err != nil {
		return err
	}
	if kept != nil {
		kept.Take(segment, n)
	} else if s.Wanted == nil || s.Wanted(segment, n) {
		if rec.Receipt == nil { // else the Sender has done it
			rec.Trace = nil
			if s.Trace != nil {
				rec.Trace = s.Trace(ctx, segment, n)
			}
		}
		if err := s.handOn(ctx, segment, n, rec, blob); err != nil {
			return err
		}
	}
	s.Counts[segment]++
	s.tasks++
	s.bytesIn += int64(len(rec.Body))
	if s.tasks&63 == 0 {
		s.progress()
	}
	return nil
}

// inBlob says whether the body of a task goes into a blob: a property of the record alone, and of
// the options. The error is a [*source.BadInput] if the task fits no message either way.
func (s *Segmenter) inBlob(segment uint32, n uint64, rec *source.Record) (bool, error) {
	blob := s.Bodies != nil && len(rec.Body) > s.Bodies.Above
	if !blob && len(rec.Key)+len(rec.ID)+len(rec.Body) <= SurelyFits {
		return false, nil
	}
	err := s.TryLarge(segment, n, rec, blob)
	if _, bad := errors.AsType[*source.BadInput](err); bad && !blob && s.Bodies != nil {
		return true, s.TryLarge(segment, n, rec, true)
	}
	return blob, err
}

// handOn hands a task that has its number to its lane, or has its body put.
func (s *Segmenter) handOn(
	ctx context.Context, segment uint32, n uint64, rec *source.Record, blob bool,
) error {
	if blob {
		return s.putLarge(ctx, segment, n, rec)
	}
	return s.collect(ctx, segment, n, rec)
}

// collect copies a task into what its lane gets next.
func (s *Segmenter) collect(
	ctx context.Context, segment uint32, n uint64, rec *source.Record,
) error {
	l := s.Lanes[segment%uint32(len(s.Lanes))]
	if l.filling.full() && !l.tryFlush() {
		s.tryFlush() // the other lanes need not wait for this one
	}
	return l.append(ctx, segment, n, rec)
}

// collectFor is for how long records of a file are collected, unless they fill a lane sooner: a
// file system may be slow as well.
const collectFor = 5 * time.Millisecond

// paused is called before the source is read.
func (s *Segmenter) paused(ctx context.Context, wait bool) error {
	if wait || time.Since(s.handed) >= collectFor {
		if err := s.flush(ctx); err != nil {
			return err
		}
		if s.Stalls && s.moved() && s.Check.want.CompareAndSwap(true, false) {
			return s.barrier() // handed over when it is asked again
		}
	}
	return nil
}

// moved reports whether anything was read since the last barrier.
func (s *Segmenter) moved() bool {
	return s.tasks > s.BarrierAt || s.BadLines+s.PoisonLines > s.barrierBad
}

// tryFlush hands over to the lanes what was collected where there is room.
func (s *Segmenter) tryFlush() {
	for _, l := range s.Lanes {
		l.tryFlush()
	}
}

// flush hands over to the lanes all that was collected.
func (s *Segmenter) flush(ctx context.Context) error {
	s.progress()
	if !s.eager {
		s.handed = time.Now()
	}
	s.tryFlush() // before one is waited for
	for _, l := range s.Lanes {
		if err := l.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// progress brings the counts up to date that others see.
func (s *Segmenter) progress() {
	s.Count.Tasks.Store(s.tasks)
	s.Count.BytesIn.Add(s.bytesIn)
	s.bytesIn = 0
	done, total := s.Source.Progress()
	s.Count.Done.Store(done)
	s.Count.Total.Store(total)
}

// TryLarge tries a large task against an empty envelope, before the task has a number; blob: with
// its body in a blob. The error is a [*source.BadInput].
func (s *Segmenter) TryLarge(segment uint32, n uint64, rec *source.Record, blob bool) error {
	h, body := s.Whole, rec.Body
	h.Segment = segment
	if blob {
		h.Body, body = anyBody, nil
	}
	// Room for any header: the map may have any version when an envelope is written, and a process
	// that numbers the same records later must come to the same verdict.
	h.MapVersion, h.Version = math.MaxUint64, codec.Version
	s.Trial.Reset(h)
	fits, err := s.Trial.Add(codec.Task{N: n, Key: rec.Key, ID: []byte(rec.ID), Body: body})
	s.Trial.Reset(h) // lets go of the memory
	switch {
	case blob && len(rec.Body) > bodies.Most:
		err = fmt.Errorf("%w: its body has more than %d bytes", codec.ErrTaskTooLarge, bodies.Most)
	case fits:
		return nil
	}
	if !errors.Is(err, codec.ErrTaskTooLarge) {
		return err
	}
	what := fmt.Sprintf("key %d, id %d, body %d", len(rec.Key), len(rec.ID), len(rec.Body))
	if key := shardmap.KeyOf(rec.Key, rec.Body, segment, len(s.Counts)); len(key) > len(rec.Key) {
		what = fmt.Sprintf("body %d, which is its key", len(rec.Body))
	}
	where := fmt.Sprintf("record %d", s.tasks+int64(s.BadLines+s.PoisonLines)+1)
	if l, ok := s.Source.(source.Placed); ok {
		where = l.Where()
	}
	return &source.BadInput{
		Where: where, Raw: rec.Body[:min(len(rec.Body), storage.MaxText)],
		Err: &tooLarge{what, err, s.Bodies != nil},
	}
}

// tooLarge is a task that fits no message, in words that say what would.
type tooLarge struct {
	what   string // its parts, in bytes
	err    error
	bodies bool // go into blobs
}

func (e *tooLarge) Error() string {
	_, detail, _ := strings.Cut(e.err.Error(), codec.ErrTaskTooLarge.Error()+": ")
	way := "give --blob-above 40KiB (with delivery: once), or put"
	if e.bodies {
		way = "put"
	}
	return fmt.Sprintf("the task is too large for a message (bytes: %s): %s; "+
		"%s the body into a blob and send the blob's name", e.what, detail, way)
}

func (e *tooLarge) Unwrap() error { return e.err }

// badRecord deals with a bad line as the policy says.
func (s *Segmenter) badRecord(ctx context.Context, bad *source.BadInput) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	if err := s.OnBad(bad, s.interval); err != nil {
		return err
	}
	if s.Quarantines {
		s.PoisonLines++
	} else {
		s.BadLines++
	}
	return nil
}

// checkpoint takes a barrier if one is due, and waits while too much is unsaved (P2.5).
func (s *Segmenter) checkpoint(ctx, reading context.Context) error {
	for {
		tasks := s.tasks
		if s.moved() && (s.Check.want.Load() || tasks-s.BarrierAt >= s.Check.Max/4) {
			s.Check.want.Store(false)
			if err := s.barrier(); err != nil {
				return err
			}
		}
		if tasks-s.Check.SavedTasks.Load() < s.Check.Max {
			return nil
		}
		if err := s.flush(ctx); err != nil {
			return err
		}
		select {
		case <-s.Check.Saved:
		case <-reading.Done():
			return context.Cause(reading)
		}
	}
}

// barrier copies cursor and counters at this instant, between two records, and
// sends the barrier through the lanes behind the tasks before it.
func (s *Segmenter) barrier() error {
	b := s.Snapshot()
	if n := len(b.at.Cursor); n > source.MaxCursor {
		return fmt.Errorf("the source's cursor has %d bytes, more than %d; its AppendCursor must append "+
			"less", n, source.MaxCursor)
	}
	s.Tracker.take(b)
	s.interval = b.number
	s.BarrierAt, s.barrierBad = b.tasks, s.BadLines+s.PoisonLines
	for _, l := range s.Lanes {
		l.mark(b.number)
	}
	return nil
}

// cursor is the place behind the last record that was dealt with.
func (s *Segmenter) cursor() []byte {
	if s.First != nil {
		return s.First.Cursor
	}
	return s.Source.AppendCursor(nil)
}

// Snapshot is the barrier behind the last record: the cursor and the counters copied together.
func (s *Segmenter) Snapshot() *Barrier {
	return &Barrier{
		at: workload.Checkpoint{
			Cursor: s.cursor(), Counts: slices.Clone(s.Counts),
			Skipped: s.BadLines, Quarantined: s.PoisonLines,
		},
		tasks: s.tasks, taken: time.Now(),
	}
}

// SourceError is an error that a source gave, unless it is about a single record.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return e.Err.Error() }

func (e *SourceError) Unwrap() error { return e.Err }

// FirstRecord is what a reader gave before its distribution began.
type FirstRecord struct {
	Rec    source.Record
	Err    error
	Cursor []byte // before it
}
