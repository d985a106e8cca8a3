package pump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// ErrSenderClosed is that tasks were handed to a sender that is closed.
var ErrSenderClosed = errors.New("the sender is closed")

// SenderOptions are the options of a [Sender]. The zero value works.
type SenderOptions struct {
	// Linger is how long a task waits for others to share its message, at least 1 ms.
	// Default 10 ms, which is about what a put takes.
	Linger time.Duration
	// Pack is the most tasks in one message. Default: as many as fit.
	Pack int
}

const defaultLinger = 10 * time.Millisecond

// Sender sends tasks as they come up in a program, many small sends in one run (P1.1): the
// run is begun by the first Send, held open, and sealed by Close. A run costs
// rows, and with delivery mode [Once] each that is open costs room in the ledger of every segment; so a
// program should have one Sender for as long as it runs, and not one for each task.
//
// Any number of programs may send to a workload at the same time (origins H6). What a program
// has sent that dies without Close is done as ever, but its run stays open.
//
// Send may be called from many goroutines at once; that is also how many small sends get
// into one message.
type Sender struct {
	d      *Distributor
	intake *intake

	begin   sync.Once
	close   sync.Once
	stop    context.CancelCauseFunc
	ctx     context.Context
	over    chan struct{} // closed when no task is sent any more; then the following is set
	summary Summary
	err     error
}

// NewSender checks the configuration; it makes no request.
func NewSender(cfg Config, o SenderOptions) (*Sender, error) {
	setDefault(&o.Linger, defaultLinger)
	if o.Linger < time.Millisecond {
		return nil, &ConfigError{Field: "linger", Problem: fmt.Sprintf("%v is out of range", o.Linger), Fix: "use 1ms or more, or leave it out for 10ms"}
	}
	s := &Sender{intake: &intake{batches: make(chan []Record), closing: make(chan struct{})}, over: make(chan struct{})}
	var err error
	if s.d, err = NewDistributor(cfg, s.intake, DistributorOptions{SealAge: o.Linger, Pack: o.Pack}); err != nil {
		return nil, err
	}
	s.d.mode = "client"
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s, nil
}

// Send sends tasks and returns when all of them are acknowledged, so that they are in
// queues for good. It copies them, and waits while the queues do not take what was sent before.
//
// A task that cannot be sent, because it is too large, is part of the error; the others
// of the call are sent all the same. After any other error the tasks may have
// been sent or not, and sent again they are other tasks: that ctx ended, that the
// sender's run failed, or, before anything was sent, [ErrSenderClosed].
func (s *Sender) Send(ctx context.Context, tasks ...Record) error {
	if len(tasks) == 0 {
		return nil
	}
	s.begin.Do(func() { go s.run() })
	r := newReceipt(len(tasks))
	select {
	case s.intake.batches <- copied(tasks, r):
	case <-s.intake.closing:
		return ErrSenderClosed
	case <-s.over:
		return s.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return fmt.Errorf("the tasks were handed in, and are sent as soon as possible: %w", context.Cause(ctx))
	case <-s.over:
		select {
		case <-r.done: // before the end
		default:
			return s.failure()
		}
	}
	return r.err()
}

// copied is the tasks with bytes of their own and the receipt: who sent them may have them
// back before they are read.
func copied(tasks []Record, r *receipt) []Record {
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
	batch := make([]Record, len(tasks))
	for i := range tasks {
		batch[i] = Record{Key: own(tasks[i].Key), ID: tasks[i].ID, Body: own(tasks[i].Body), receipt: r}
	}
	return batch
}

func (s *Sender) run() {
	defer close(s.over)
	s.summary, s.err = s.d.Run(s.ctx)
}

// failure is why tasks are not sent any more.
func (s *Sender) failure() error {
	if s.err != nil {
		return fmt.Errorf("the sender's run has failed: %w", s.err)
	}
	return ErrSenderClosed
}

// Close takes no more tasks, sends those that were handed in, and seals the run. If ctx ends first
// the run is left as broken, after at most 20 s in which what was handed in is still sent. To know when
// the tasks are done, give the summary's Run to [Wait]. A sender that never sent anything has no run.
// Close may be called again, with the same result.
func (s *Sender) Close(ctx context.Context) (Summary, error) {
	s.close.Do(func() { close(s.intake.closing) })
	s.begin.Do(func() { close(s.over) })
	select {
	case <-s.over:
	case <-ctx.Done():
		s.stop(context.Cause(ctx))
		<-s.over
	}
	s.stop(nil)
	return s.summary, s.err
}

// State is what the sender is doing now; see [Distributor.State].
func (s *Sender) State() DistributorState { return s.d.State() }

// intake is the source of a sender's distribution: what is handed in, until it is closed.
type intake struct {
	batches chan []Record
	closing chan struct{}
}

// Fingerprint is empty: nobody can hand the same in again.
func (i *intake) Fingerprint(context.Context) (string, error) { return "", nil }

// Open is called once, as a sender has one distribution.
func (i *intake) Open(context.Context, []byte) (Reader, error) { return &intakeReader{intake: i}, nil }

type intakeReader struct {
	*intake
	batch []Record
	read  int64
}

func (r *intakeReader) Next(ctx context.Context) (Record, error) {
	for len(r.batch) == 0 {
		select {
		case r.batch = <-r.batches:
		case <-r.closing:
			return Record{}, io.EOF
		case <-ctx.Done():
			return Record{}, context.Cause(ctx)
		}
	}
	rec := r.batch[0]
	r.batch = r.batch[1:]
	r.read++
	return rec, nil
}

func (r *intakeReader) AppendCursor(dst []byte) []byte { return dst }

func (r *intakeReader) Progress() (done, total int64) { return r.read, 0 }

func (r *intakeReader) Close() error { return nil }
