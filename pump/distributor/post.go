package distributor

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// Errors of [Sender.Post]. After these nothing of the call was sent.
var (
	// ErrOtherTasks: the key was given before, with other tasks.
	ErrOtherTasks = errors.New("the key was given before, with other tasks")
	// ErrKeyOver: the key was given before, and the run that its tasks are of has ended. Whether they
	// are done is not known any more.
	ErrKeyOver = errors.New("the run of the tasks that were sent under the key has ended")
	// ErrManyKeys: more posts with keys come than their rows can be written for.
	ErrManyKeys = errors.New("too many posts with keys at once")
)

// errNotYet is what is known of tasks for which a caller did not wait long enough.
var errNotYet = errors.New("the tasks were handed in, and are sent as soon as possible")

// Posted is what became of the tasks of a [Sender.Post].
type Posted struct {
	// Errs has an error for each task that is not known to be in a queue; nil: all are.
	Errs []error
	// Again: the key was given before.
	Again bool
}

// Post is [Sender.Send] that says of each task what became of it. A task that is too large refuses
// the whole call, before anything is sent. Keys and bodies must not be changed after the call. If
// no task of the call has a key, their segments are chosen so that they share messages with others
// (but not in a run with a name).
//
// With a key the tasks are sent once, however often the call is made in the time of
// [SenderOptions].KeepKeys, by any process: each repeat puts the same tasks, and with delivery mode
// [pump.Once] each is handled once. In mode [pump.AtLeastOnce] a repeat may put them twice. After
// an error the call may be made again with the key. The key is any text that no other tasks are
// sent under.
func (s *Sender) Post(
	ctx context.Context, key string, tasks ...source.Record,
) (did Posted, err error) {
	if len(tasks) == 0 {
		return Posted{}, nil
	}
	did.Errs = make([]error, len(tasks))
	for i := range tasks {
		did.Errs[i] = pack.TooLarge(s.d.cfg.Workload, &tasks[i], s.d.opts.BlobAbove)
	}
	if err := errors.Join(did.Errs...); err != nil {
		return did, err
	}
	within, sent := s.d.tracer.Send(ctx, len(tasks))
	if c := trace.SpanContextFromContext(ctx); s.d.tracer == nil && c.IsSampled() {
		within = codec.EncodeTrace(c)
	}
	p := newPost(slices.Clone(tasks), within)
	// A program that goes on with its named run must come to the same segments.
	p.free = s.d.opts.Name == "" &&
		!slices.ContainsFunc(tasks, func(r source.Record) bool { return len(r.Key) > 0 })
	of := p
	if key != "" {
		of, err = s.once(ctx, key, p)
	} else {
		err = s.hand(ctx, p)
	}
	sent(err)
	did = of.posted(err)
	did.Again = err == nil && (of.again || of != p)
	return did, err
}

// post is one call of Post.
type post struct {
	batch []source.Record
	lines []postLine
	open  atomic.Int64 // lines neither acknowledged nor refused
	over  sync.Once
	done  chan struct{} // closed by end; then the next two are set
	err   error         // why no more of it is sent; nil: it is in the queues
	again bool          // the key was known

	free bool // its tasks have no keys

	// With a key:
	row  workload.Posted
	in   *intake // whose run numbers its tasks; set by the reader of it
	took int     // lines that have their numbers, or were refused; the reader's own
}

// postLine is the receipt of one task of a post.
type postLine struct {
	of      *post
	acked   atomic.Bool
	refused error  // set before of.done is closed
	segment uint32 // if it is chosen, or the number is known
	// With a key, once its number is known:
	has bool
	n   uint64
}

func newPost(tasks []source.Record, trace []byte) *post {
	p := &post{batch: tasks, lines: make([]postLine, len(tasks)), done: make(chan struct{})}
	p.open.Store(int64(len(tasks)))
	for i := range p.batch {
		p.lines[i].of = p
		p.batch[i].Trace, p.batch[i].Receipt = trace, &p.lines[i]
	}
	return p
}

// Seat is [pack.Seated].
func (l *postLine) Seat() (segment uint32, chosen bool) { return l.segment, l.of.free }

// Acknowledge notes that the task is in a queue.
func (l *postLine) Acknowledge(int64) {
	l.acked.Store(true)
	l.of.closed()
}

// Refuse notes that the task cannot be sent.
func (l *postLine) Refuse(err error) {
	l.refused = err
	if l.of.row.Key != "" && !l.has {
		l.of.numbered()
	}
	l.of.closed()
}

// closed notes that a line is acknowledged or refused.
func (p *post) closed() {
	if p.open.Add(-1) == 0 {
		p.end(nil)
	}
}

// end ends a post: all of it is in queues, or no more of it is put.
func (p *post) end(err error) {
	p.over.Do(func() {
		p.err = err
		close(p.done)
	})
}

// wait waits until the post or its run has ended.
func (p *post) wait(ctx context.Context, in *intake) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotYet, context.Cause(ctx))
	case <-in.over:
		p.end(in.failure())
	}
	return p.err
}

// posted is what is known now, with the error of the post as a whole.
func (p *post) posted(err error) (did Posted) {
	for i := range p.lines {
		why := err
		if err == nil {
			why = p.lines[i].refused // nil, also of a repeat that needed no put
		}
		if why == nil || p.lines[i].acked.Load() {
			continue
		}
		if did.Errs == nil {
			did.Errs = make([]error, len(p.lines))
		}
		did.Errs[i] = why
	}
	return did
}

// print is a hash of the tasks.
func (p *post) print() []byte {
	h := sha256.New()
	for i := range p.batch {
		r := &p.batch[i]
		fmt.Fprintf(h, "%d %d %d ", len(r.Key), len(r.ID), len(r.Body))
		h.Write(slices.Concat(r.Key, []byte(r.ID), r.Body))
	}
	return h.Sum(nil)[:16]
}

// seatTasks is how many tasks without keys are of one segment, so that many of them are handled by
// many processors.
const seatTasks = 256

// seats chooses segments for tasks without keys. The reader of a run uses it.
type seats struct {
	chosen  uint32
	tasks   int // that have it
	since   time.Time
	changes uint64
}

// seat gives the lines of a post their segments: those of one moment have the same one.
func (i *intake) seat(p *post) {
	s, now, r := &i.seats, time.Now(), i.posts.of.Load()
	p.row.Seats = nil
	for n := range p.lines {
		if n%seatTasks == 0 {
			late := n == 0 && now.Sub(s.since) >= r.d.opts.SealAge
			if s.tasks >= seatTasks || late || s.changes == 0 {
				s.changes++
				token := binary.BigEndian.AppendUint64(r.id[:], s.changes)
				s.chosen = shardmap.Segment(token, r.d.router.Current().Workload.Map.Segments)
				s.tasks, s.since = 0, now
			}
			p.row.Seats = append(p.row.Seats, uint64(s.chosen))
		}
		p.lines[n].segment = s.chosen
		s.tasks++
	}
}

// Distributor is what sends the sender's tasks, for what a program shows of it and tells it. It
// runs by itself, while there are tasks.
func (s *Sender) Distributor() *Distributor { return s.d }
