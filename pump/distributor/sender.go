package distributor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/source"
)

// ErrSenderClosed says that tasks were handed to a sender that is closed.
var ErrSenderClosed = errors.New("the sender is closed")

// SenderOptions are the options of a [Sender]. The zero value works.
type SenderOptions struct {
	// Linger is how long a task waits for others to share its message, at least 1 ms.
	// Default 10 ms, which is about what a put takes.
	Linger time.Duration
	// Pack is the most tasks in one message. Default: as many as fit.
	Pack int
	// BlobAbove has larger bodies put into blobs; see [Options].BlobAbove.
	BlobAbove int
	// Name is that of the run; see [Options].Name. A program that died goes on with its run: ask
	// [Sender.Acknowledged] first, and send from one goroutine. To leave the run open, end the
	// program without Close, or with a context that has ended.
	Name string
	// KeepKeys is how long the keys of [Sender.Post] are kept, from a minute to the retention.
	// Default: it takes no keys.
	KeepKeys time.Duration
}

const (
	defaultLinger = 10 * time.Millisecond
	// senderIdle is after how long without a task a sender seals its run: an open run takes room in
	// the ledger of each segment.
	senderIdle = 10 * time.Minute
)

// Sender sends tasks as they come up in a program, many small sends in one run. The first
// Send begins the run, the sender holds it open, and Close seals it, or ten minutes without a task:
// then the next Send begins another. A run costs rows, and with delivery mode [pump.Once] each open
// run costs room in the ledger of every segment. So a program should have one Sender for as long as
// it runs, and not one for each task.
//
// A sender outlives its troubles. While a run cannot be begun, because the control account does not
// answer or refuses the credential, each Send waits or fails by itself, and the next one tries
// again. After a run that failed the next Send begins another.
//
// Any number of programs may send to a workload at the same time. If a program dies without Close,
// the tasks that it sent are still done, but its run stays open.
//
// Send may be called from many goroutines at once; so many small sends share one message.
type Sender struct {
	d       *Distributor
	closing chan struct{} // closed by the first Close
	keys    keys          // of posts

	mu     sync.Mutex // guards what follows
	closed bool
	now    *intake // of the newest run; nil before the first Send
	failed uint64  // failed runs in a row without an acknowledged put
}

// NewSender checks the configuration; it makes no request.
func NewSender(cfg pump.Config, o SenderOptions) (*Sender, error) {
	setup.Default(&o.Linger, defaultLinger)
	if o.Linger < time.Millisecond {
		return nil, setup.OutOfRange("linger", o.Linger, "use 1ms or more, or leave it out for 10ms")
	}
	s := &Sender{closing: make(chan struct{})}
	var err error
	if s.d, err = New(cfg, nil, Options{
		SealAge: o.Linger, Pack: o.Pack, Name: o.Name, BlobAbove: o.BlobAbove,
	}); err != nil {
		return nil, err
	}
	s.d.mode = closing.ModeClient
	if o.Name != "" && o.KeepKeys > 0 {
		return nil, pump.Invalid("name", "a sender with a name takes no keys", "leave one of them out")
	}
	if err = s.keepKeys(o.KeepKeys); err != nil {
		return nil, err
	}
	return s, nil
}

// Send sends tasks and returns when all of them are acknowledged, so that they are in
// queues for good. It copies them, and waits while the queues do not take what was sent before,
// and while an account that is needed to begin the run does not answer.
//
// A task that cannot be sent, because it is too large, is part of the error; the others of the call
// are still sent. Three errors mean that nothing was sent: no run can be begun (the error says
// why); ctx ended before the tasks were handed in; [ErrSenderClosed]. After any other error (ctx
// ended later, or the run failed) the tasks may have been sent or not. If you send them again, they
// are other tasks. After any error but ErrSenderClosed the next Send may succeed.
func (s *Sender) Send(ctx context.Context, tasks ...source.Record) error {
	if len(tasks) == 0 {
		return nil
	}
	within, sent := s.d.tracer.Send(ctx, len(tasks))
	p := newPost(copied(tasks), within)
	err := s.hand(ctx, p)
	if err == nil {
		err = errors.Join(p.posted(nil).Errs...)
	}
	sent(err)
	return err
}

// hand hands a post in, and waits for it. Its tasks are copied when they are read. The receipts
// keep the post until its last put, when its caller may be gone for long, but not the tasks.
func (s *Sender) hand(ctx context.Context, p *post) error {
	batch := p.batch
	p.batch = nil
	in, err := s.handIn(ctx, batch)
	if err != nil {
		return err
	}
	return p.wait(ctx, in)
}

// handIn gives a batch to the run that reads, or to a new run, and says which run it is.
func (s *Sender) handIn(ctx context.Context, batch []source.Record) (*intake, error) {
	for {
		in := s.current()
		if in == nil {
			return nil, ErrSenderClosed
		}
		if in.named() && !in.asked.Load() {
			return nil, errNotAsked
		}
		select {
		case in.batches <- batch:
			return in, nil
		case <-s.closing:
			return nil, ErrSenderClosed
		case <-in.over:
			if in.named() {
				return nil, cmp.Or(in.err, s.sentErr())
			}
			if err := in.err; err != nil && !in.opened.Load() &&
				failure.Ends(failure.ControlAccount, err, failure.Command) {
				return nil, fmt.Errorf("nothing was sent: the sender cannot begin a run: %w", err)
			}
		case <-ctx.Done():
			return nil, in.late(s.d.cfg.Control, context.Cause(ctx))
		}
	}
}

// copied is the tasks with bytes of their own: the caller may get its tasks back before they are
// read.
func copied(tasks []source.Record) []source.Record {
	size := 0
	for i := range tasks {
		size += len(tasks[i].Key) + len(tasks[i].Body)
	}
	bytes := make([]byte, 0, size)
	own := func(b []byte) []byte {
		from := len(bytes)
		bytes = append(bytes, b...)
		return bytes[from:len(bytes):len(bytes)]
	}
	batch := make([]source.Record, len(tasks))
	for i := range tasks {
		batch[i] = source.Record{Key: own(tasks[i].Key), ID: tasks[i].ID, Body: own(tasks[i].Body)}
	}
	return batch
}

// current is the run that takes tasks; nil: the sender is closed.
func (s *Sender) current() *intake {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	var before error
	var pause time.Duration
	if s.now != nil {
		if !s.now.ended() || s.now.named() && s.now.err == nil {
			return s.now
		}
		if s.failed++; s.now.summary.Envelopes > 0 {
			s.failed = 1
		}
		if before = s.now.err; before == nil {
			s.failed = 0
		} else {
			pause = waits.Jitter(s.d.cfg.Instance).Around(waits.Doubled(sendAgain, retryPause,
				s.failed-1), "send again", s.d.cfg.Workload, s.failed)
		}
	}
	in := &intake{
		batches: make(chan []source.Record), closing: s.closing, over: make(chan struct{}),
		before: before,
	}
	in.begun = make(chan struct{})
	in.ctx, in.stop = context.WithCancelCause(context.Background())
	in.sender, in.posts.settled = s, make(chan struct{}, 1)
	s.now = in
	go s.run(in, pause)
	return in
}

// sendAgain is how long a sender waits after a failed run before it begins another, doubled up to
// retryPause.
const sendAgain = 500 * time.Millisecond

// run is one of the sender's runs; the last one is over.
func (s *Sender) run(in *intake, pause time.Duration) {
	defer in.stop(nil)
	defer close(in.over)
	if !waits.Wait(in.ctx, pause) {
		in.err = context.Cause(in.ctx)
		return
	}
	s.d.source = in
	in.summary, in.err = s.d.Run(in.ctx)
	if in.err != nil && in.ctx.Err() == nil {
		s.d.cfg.Log.Warn("the sender's run has failed; the next task begins another",
			"run", in.summary.Run.String(), "error", in.err)
	}
}

// Close takes no more tasks, sends those that were handed in, and seals the run. If ctx ends first,
// Close goes on sending what was handed in for at most 20 s, and leaves the run as broken. To know
// when the tasks are done, give the summary's Run to runs.Wait. When earlier runs failed, summary
// and error are of the newest one. A sender without a task has no run. Close may be called again,
// with the same result.
func (s *Sender) Close(ctx context.Context) (Summary, error) {
	s.mu.Lock()
	in := s.now
	if !s.closed {
		s.closed = true
		close(s.closing)
		// no task has been handed in to it, nor will be
		if in != nil && !in.ended() && !in.opened.Load() {
			in.unused = true
			in.stop(ErrSenderClosed)
		}
	}
	s.mu.Unlock()
	if in == nil {
		return Summary{}, nil
	}
	select {
	case <-in.over:
	case <-ctx.Done():
		in.stop(context.Cause(ctx))
		<-in.over
	}
	in.stop(nil)
	if in.unused && in.summary.Tasks == 0 {
		return Summary{}, in.before
	}
	return in.summary, in.err
}

// State is what the sender is doing now; see [Distributor.State].
func (s *Sender) State() State { return s.d.State() }

// intake is the source of one of a sender's runs: what is handed in, until the sender is closed.
type intake struct {
	sender  *Sender
	posts   posts // with keys
	seats   seats
	batches chan []source.Record
	closing chan struct{}   // the sender's
	ctx     context.Context // of the run; stop ends it
	stop    context.CancelCauseFunc
	opened  atomic.Bool   // the run has begun
	unused  bool          // closed before it had begun; guarded by Sender.mu
	before  error         // what ended the run before it
	begun   chan struct{} // closed when from is set: how many tasks the run had
	from    int64
	asked   atomic.Bool   // the program knows it
	over    chan struct{} // closed when it sends nothing any more; then the following is set
	summary Summary
	err     error
}

func (i *intake) ended() bool {
	select {
	case <-i.over:
		return true
	default:
		return false
	}
}

// failure is why tasks that were handed in are not sent any more.
func (i *intake) failure() error {
	if i.err != nil {
		return fmt.Errorf("the sender's run has failed: %w", i.err)
	}
	return ErrSenderClosed
}

// late is why tasks could not be handed in for as long as a caller waited.
func (i *intake) late(control string, cause error) error {
	switch {
	case i.opened.Load():
		return fmt.Errorf("nothing was sent: what was handed in before still waits for its queues: %w",
			cause)
	case i.before != nil:
		return fmt.Errorf("nothing was sent: the sender is trying to begin a run again after: %w: %w",
			i.before, cause)
	}
	return fmt.Errorf("nothing was sent: the sender is waiting for control "+
		"account %s to begin a run: %w", control, cause)
}

// Open is called once, as a run of a sender has one distribution.
func (i *intake) Open(_ context.Context, cursor []byte) (source.Reader, error) {
	if err := i.begins(cursor); err != nil {
		return nil, err
	}
	return &intakeReader{intake: i, read: i.from}, nil
}

type intakeReader struct {
	*intake
	batch []source.Record
	read  int64
	idle  *time.Timer
}

func (r *intakeReader) Next(ctx context.Context) (source.Record, error) {
	r.opened.Store(true)
	if len(r.batch) == 0 {
		if r.idle == nil {
			r.idle = time.NewTimer(r.idleAfter())
		}
		r.idle.Reset(r.idleAfter())
	}
	closed := r.closing
	for len(r.batch) == 0 {
		if closed == nil && r.posts.under.Load() == 0 {
			if err, is := r.posts.damaged.Load().(error); is {
				return source.Record{}, err
			}
			return source.Record{}, io.EOF
		}
		select {
		case r.batch = <-r.batches:
			r.arrives(r.batch)
		case <-closed:
			closed = nil
		case <-r.idle.C:
			closed = nil // but posts that are under way come first
		case <-r.posts.settled:
		case <-ctx.Done():
			return source.Record{}, context.Cause(ctx)
		}
	}
	rec := r.batch[0]
	r.batch = r.batch[1:]
	r.read++
	return rec, nil
}

func (r *intakeReader) Progress() (done, total int64) { return r.read, 0 }

func (r *intakeReader) Close() error { return nil }
