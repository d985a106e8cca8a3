package pack

import (
	"bytes"
	"context"
	"math"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/source"
)

// BodiesMemory bounds the bodies that are being put. Each counts a MiB at least: so 64 are put at
// once, and a driver copies each.
const BodiesMemory = bodies.Most

// anyBody is as large as any reference.
var anyBody = codec.BodyRef{
	Account: strings.Repeat("a", 64), Size: math.MaxUint64, Checksum: math.MaxUint64,
}

// Bodies puts the bodies of large tasks into blobs, many at once. Each such task has a message of
// its own, as it had when its body filled one; so it need not pass a lane.
type Bodies struct {
	Above      int // bytes of the largest body that stands in a message
	Store      *bodies.Store
	MapVersion func() uint64
	// Go has a step of the distribution done beside the others; the end of reading waits for it.
	Go     func(step func() error)
	Turn   sim.Step
	memory *semaphore.Weighted
}

// putLarge has the body of a task put, and then its message: the blob is acknowledged before the
// message that names it.
func (s *Segmenter) putLarge(
	ctx context.Context, segment uint32, n uint64, rec *source.Record,
) error {
	b := s.Bodies
	if b.memory == nil {
		b.memory = semaphore.NewWeighted(BodiesMemory)
	}
	weight := max(int64(len(rec.Body)), 1<<20)
	if !b.memory.TryAcquire(weight) {
		if err := s.flush(ctx); err != nil {
			return err
		}
		if b.memory.Acquire(ctx, weight) != nil {
			return context.Cause(ctx)
		}
	}
	own := *rec
	own.Key, own.Body, own.Trace = bytes.Clone(rec.Key), bytes.Clone(rec.Body), bytes.Clone(rec.Trace)
	interval := s.interval
	s.Tracker.Opened(interval)
	b.Go(func() error {
		m, err := b.Message(ctx, s.Whole, Numbered{segment, n, &own})
		b.memory.Release(weight)
		if err != nil {
			return err
		}
		m.Interval = interval
		return s.Put(m)
	})
	return nil
}

// Message puts the body of a task and gives its message. The header is that of its run.
func (b *Bodies) Message(ctx context.Context, head codec.Header, t Numbered) (*Message, error) {
	of := coordination.TaskRef{Run: head.Run, Segment: t.Segment, N: t.N}
	b.Turn.Wait("body", of.String())
	ref, err := b.Store.Put(ctx, of, t.Task.Body)
	if err != nil {
		return nil, err
	}
	head.Segment, head.MapVersion, head.Body = t.Segment, b.MapVersion(), ref
	build := codec.NewBuilder(0)
	build.Reset(head)
	build.Stamp(time.Now())
	task := codec.Task{N: t.N, Key: t.Task.Key, ID: []byte(t.Task.ID), Trace: t.Task.Trace}
	if _, err = build.Add(task); err != nil && task.Trace != nil { // a task goes before its context
		task.Trace = nil
		_, err = build.Add(task)
	}
	if err != nil {
		return nil, err
	}
	text, _, err := build.Seal((*Texts.Get().(*[]byte))[:0])
	return &Message{
		Text: text, Segment: t.Segment, First: t.N, Tasks: 1, Receipts: addReceipt(nil, t.Task.Receipt),
	}, err
}

// Again makes the messages of tasks that got their numbers in another run, whose header is given.
func (s *Segmenter) Again(
	ctx context.Context, head codec.Header, tasks []Numbered,
) (made []*Message, err error) {
	var small []Numbered
	for _, t := range tasks {
		trial := Segmenter{
			Source: s.Source, Whole: head, Trial: codec.NewBuilder(0), Bodies: s.Bodies,
			Counts: s.Counts,
		}
		blob, err := trial.inBlob(t.Segment, t.N, t.Task)
		switch {
		case err != nil:
			return nil, err
		case !blob:
			small = append(small, t)
			continue
		}
		m, err := s.Bodies.Message(ctx, head, t)
		if err != nil {
			return nil, err
		}
		made = append(made, m)
	}
	more, err := s.Lanes[0].Again(head, small)
	return append(made, more...), err
}
