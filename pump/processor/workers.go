package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/tracing"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/trial"
)

// Why the context of a handler ends, by context.Cause, when the processor ends it.
var (
	// ErrTimedOut: the handler did not return within Options.Timeout.
	ErrTimedOut error = timedOut("the handler did not return within the time for one task")
	// ErrStopped: the processor stops. The task is delivered again, without an attempt.
	ErrStopped = errors.New("the processor stops; the task will be delivered again")
	// ErrLeaseEnded: the message of the task is not this process's any more.
	ErrLeaseEnded = errors.New("the message's lease has ended; it will be delivered again")
)

var (
	errHung   = errors.New("the handler goes on although its context has ended")
	errGoexit = errors.New("the handler ended its goroutine")
)

// timedOut is an error that reports itself as a timeout, as those of package net do.
type timedOut string

func (e timedOut) Error() string { return string(e) }
func (e timedOut) Timeout() bool { return true }

// panicked is a handler's panic.
type panicked struct{ value any }

func (e *panicked) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// watchEvery is how exactly the time for one task is kept.
const watchEvery = time.Second

// workers runs handlers: as many slots as Options.Concurrency; each is one goroutine that takes one
// task after the other. A slot whose handler ignores its context stays taken until the handler
// returns, so a hanging handler costs one slot and never more; its task does not wait for the
// handler.
type workers struct {
	r    *run
	all  []worker
	dark darkAccounts             // for bodies
	late atomic.Pointer[lateness] // as the watch has seen it last
}

// lateness is how long handlers have been at work.
type lateness struct {
	oldest  time.Time // when the longest at work began, or zero
	overdue int       // how many have taken much longer than tasks usually do
	task    string    // of the oldest, if overdue
}

// overdueAfter is for how long a handler may be at work before it is overdue, if tasks are quick:
// ten times what they usually take, and a minute at least.
const overdueAfter = time.Minute

// worker is one place in the pool.
type worker struct {
	pool   *workers
	at     int             // which of the slots it is
	ctx    context.Context // of the tasks of d; made once for each delivery that the slot works on
	endCtx context.CancelCauseFunc
	of     *message.Delivery
	took   time.Duration // by the last task or batch, which says how far to fetch ahead
	ended  time.Time     // when that was
	key    *message.Key  // what counts the task; nil: nothing does

	mu        sync.Mutex        // guards what follows; the slot's goroutine and the watch
	span      *tracing.Span     // nil: what it works on is not traced
	d         *message.Delivery // nil while idle
	from, to  int               // in the order of starting
	began     time.Time
	over      time.Time // when the watch first saw that the context has ended
	abandoned bool      // the watch has settled the task; the outcome is dropped
}

func newWorkers(r *run) *workers {
	p := &workers{r: r, all: make([]worker, r.o.Concurrency)}
	p.dark.dark = map[string]*darkAccount{}
	for i := range p.all {
		p.all[i].pool, p.all[i].at = p, i
	}
	return p
}

// start makes every slot work until the backlog says that there is no more task.
func (p *workers) start() {
	for i := range p.all {
		go p.all[i].run()
	}
}

func (s *worker) run() {
	leave := false
	defer func() {
		if !leave { // a handler called runtime.Goexit
			go s.run()
		}
	}()
	s.ended = time.Now()
	for s.runNext() {
	}
	leave = true
	if s.ctx != nil {
		s.endCtx(nil)
	}
}

// runNext handles the next task, or the next envelope if the handler takes batches.
func (s *worker) runNext() (more bool) {
	r := s.pool.r
	turn := r.backlog.Next(s.took, s.ended, s.key)
	d, from, to, now := turn.D, turn.From, turn.To, turn.At
	s.key = turn.Key
	if to == 0 {
		return false
	}
	more = true // after a panic as well
	if turn.Off > 0 {
		s.took, s.ended = 0, now
		s.pool.putOff(d, d.At(from), turn.Off)
		return more
	}
	if turn.Paced || r.rate.holds() { // the limit may have gone in between
		if !s.pool.awaitRate(d, from, to) {
			s.took, s.ended = 0, time.Now()
			return more
		}
		now = time.Now()
	}
	if r.o.Results && r.ResultBytes.Load() >= base.ResultsMost {
		for i := from; i < to; i++ { // the message ends sooner without it, and its results are put
			s.pool.recordOutcome(d.Ctx, d, d.At(i), errTooManyResults, time.Time{}, trace.SpanContext{})
		}
		s.took, s.ended = 0, time.Now()
		return more
	}
	if d.Header.Body != (codec.BodyRef{}) {
		if !s.pool.fetch(d) {
			s.took, s.ended = 0, time.Now()
			return more
		}
		now = time.Now()
	}
	ctx := s.startTasks(d, from, to, now)
	err := errGoexit // stands if the handler does not return
	var errs []error
	handled, span := s.trace(ctx, d, from, to)
	var given *kept
	if r.o.Results {
		given = &kept{d: d, env: d.Env, from: from, at: from, lines: make([][]byte, to-from)}
		handled = context.WithValue(handled, jsonline.ResultKey{}, given.set)
	}
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v}
			r.Log.Error("handler panicked", append(d.TaskAttrs(d.At(from), span.Context()),
				slog.Any("panic", v), slog.String("stack", string(debug.Stack())))...)
		}
		span.End(err, errs, context.Cause(ctx))
		given.end()
		s.endTasks(ctx, err, errs, given)
	}()
	errs = r.call(handled, d, from, to)
	err = nil
	return more
}

// trace begins the span of a slot's tasks, if they are traced. The handler gets the context.
func (s *worker) trace(
	ctx context.Context, d *message.Delivery, from, to int,
) (handled context.Context, span *tracing.Span) {
	r := s.pool.r
	switch {
	case r.tracer == nil:
		return ctx, nil
	case r.batch == nil:
		handled, span = r.tracer.Process(ctx, d.Queue.String(), &d.Tasks[d.At(from)])
	default:
		handled, span = r.tracer.ProcessBatch(ctx, d.Queue.String(), d.Pointers(from, to))
	}
	if span != nil {
		s.mu.Lock()
		s.span = span
		s.mu.Unlock()
	}
	return handled, span
}

// startTasks notes what the slot works on. A new context is made only when the delivery changes or
// the last context was ended: a slot takes many tasks of one envelope in a row.
func (s *worker) startTasks(d *message.Delivery, from, to int, now time.Time) context.Context {
	d.Started.Store(true)
	d.Worked.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != d || s.ctx.Err() != nil {
		if s.ctx != nil {
			s.endCtx(nil)
		}
		s.ctx, s.endCtx = context.WithCancelCause(d.Ctx)
		s.of = d
	}
	s.d, s.from, s.to, s.began, s.over, s.abandoned = d, from, to, now, time.Time{}, false
	s.pool.countStarts(d, s.at, to-from, s.began)
	return s.ctx
}

// endTasks records the outcomes of the worker's tasks, unless they were abandoned: then they were
// recorded.
func (s *worker) endTasks(ctx context.Context, err error, errs []error, given *kept) {
	s.mu.Lock()
	d, from, to, span := s.d, s.from, s.to, s.span
	s.d, s.span = nil, nil
	s.ended = time.Now()
	s.took = max(s.ended.Sub(s.began), 1)
	took, abandoned, began := s.took, s.abandoned, s.began
	s.mu.Unlock()
	s.pool.r.timing.Handled(took, s.ended)
	queues.HookEnded(&s.pool.r.Cfg.Hooks, to-from, took)
	if abandoned {
		s.pool.r.backlog.AddHung(-1)
		s.pool.r.Log.Warn("a handler that was given up has returned",
			d.TaskAttrs(d.At(from), span.Context())...)
		s.of = nil
		return
	}
	for i := from; i < to; i++ {
		e := err
		if e == nil && errs != nil {
			e = errs[i-from]
		}
		if given != nil && e == nil {
			e = s.pool.keep(d, i, given.line(i))
		}
		d.Restore(d.At(i))
		s.pool.recordOutcome(ctx, d, d.At(i), e, began, span.Context())
	}
}

// watch ends the contexts of handlers that take too long, and gives up handlers that then do not
// return, until ctx ends.
func (p *workers) watch(ctx context.Context) {
	waits.Every(ctx, watchEvery, func(now time.Time) {
		p.r.failures.look(now)
		p.r.tellCannot(now)
		late := lateness{}
		limit := max(overdueAfter, 10*p.r.timing.Task())
		var oldest *worker
		p.r.notNows.grow(now)
		for i := range p.all {
			s := &p.all[i]
			s.abandon(now, false)
			s.mu.Lock()
			if s.d != nil && (oldest == nil || s.began.Before(late.oldest)) {
				late.oldest, oldest = s.began, s
			}
			if s.d != nil && now.Sub(s.began) >= limit {
				late.overdue++
			}
			s.mu.Unlock()
		}
		if late.overdue > 0 {
			late.task = oldest.task()
		}
		before := p.late.Swap(&late)
		// Once for each time that some are late, and once that all are.
		if n := late.overdue; n > 0 && (before == nil || before.overdue == 0 ||
			n == len(p.all) && n > before.overdue) {
			oldest.says(n)
		}
	})
}

// task names what the slot works on; empty: it does not any more.
func (s *worker) task() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.d == nil {
		return ""
	}
	sent := s.d.AsSent(s.d.At(s.from))
	return taskName(&sent)
}

// says logs that handlers are overdue; this worker's is the oldest.
func (s *worker) says(overdue int) {
	s.mu.Lock()
	if s.d == nil { // it has returned just now
		s.mu.Unlock()
		return
	}
	// Not later: once it returns, the tasks' memory is used again.
	attrs := append(s.d.TaskAttrs(s.d.At(s.from), s.span.Context()), "handlers", overdue,
		"of", len(s.pool.all), "since", s.began)
	s.mu.Unlock()
	s.pool.r.Lines.Of("overdue").Add(overdue, func(int, int) {
		s.pool.r.Log.Warn("handlers have not returned; the oldest is at work on this task", attrs...)
	})
}

// hangs reports whether a handler has not returned for long after its context ended. It ends the
// context of a handler that takes too long. s.mu is held.
func (s *worker) hangs(now time.Time) bool {
	if limit := s.pool.r.o.Timeout; limit > 0 && now.Sub(s.began) >= limit && s.ctx.Err() == nil {
		s.pool.r.Log.Warn("handler takes too long; its context is ended",
			append(s.d.TaskAttrs(s.d.At(s.from), s.span.Context()), "for", now.Sub(s.began))...)
		s.endCtx(ErrTimedOut)
	}
	if s.ctx.Err() != nil && s.over.IsZero() {
		s.over = now
	}
	return !s.over.IsZero() && now.Sub(s.over) >= trial.HungAfter
}

// giveUp abandons every handler that has not returned. Their contexts have ended.
func (p *workers) giveUp() {
	for i := range p.all {
		p.all[i].abandon(time.Now(), true)
	}
}

// abandon settles what the slot works on without its handler if the handler hangs; all: or does
// not. A handler that hangs has made an attempt; a handler that only outlives its lease or the
// processor has not.
func (s *worker) abandon(now time.Time, all bool) {
	s.mu.Lock()
	if s.d == nil || s.abandoned || !all && !s.hangs(now) {
		s.mu.Unlock()
		return
	}
	s.abandoned = true
	d, from, to, ctx, span := s.d, s.from, s.to, s.ctx, s.span
	s.mu.Unlock()
	r := s.pool.r
	r.backlog.AddHung(+1)
	r.Log.Error("handler ignores that its context has ended; "+
		"its task is settled without it and its place stays taken until it returns",
		append(d.TaskAttrs(d.At(from), span.Context()), "cause", context.Cause(ctx))...)
	// The handler may read the tasks for as long as it runs, so their buffer
	// never goes back to a pool.
	d.Outcomes.Hang()
	for i := from; i < to; i++ {
		s.pool.recordOutcome(ctx, d, d.At(i), errHung, time.Time{}, trace.SpanContext{})
	}
}

// countStarts counts the tasks of a message that a slot has started at a time: only first tries,
// whose time shows the way here and not the wait for another try.
func (p *workers) countStarts(d *message.Delivery, slot, tasks int, now time.Time) {
	r, took := p.r, now.Sub(d.Born)
	if d.Exact && d.Header.Attempt == 0 && d.Header.Generation == 0 {
		r.latency.add(slot, tasks, took, now)
	}
	queues.HookStarted(&r.Cfg.Hooks, tasks, took)
}

// putOff puts a task back whose key is over its limit. It takes no attempt.
func (p *workers) putOff(d *message.Delivery, task int, off time.Duration) {
	d.Started.Store(true)
	off += time.Duration(p.r.Jitter.Float("key", d.ID, uint64(d.Dequeued)) * float64(time.Second))
	if d.Outcomes.End(task, message.Postponed, off, nil) {
		d.Settler.Add(d)
	}
}

// rateLimit keeps all processors of a workload together below a rate of tasks (Options.MaxRate): a
// budget like those of the accounts, shared by demand (P8.1), but of tasks. It also keeps this
// process below the rate at which tasks are told "not now" (P8.4). One slot at a time has a task
// and waits for its turn (Backlog.pacing): a process that stops could not give back the tasks of
// all slots.
type rateLimit struct {
	budget func() *queues.Budget // nil: as many tasks as there are handlers for
	brake  *queues.Brake
	over   context.Context // ends when no task is started any more
	end    context.CancelFunc

	mu       sync.Mutex      // guards what follows
	turns    context.Context // ends with a pause: a waiting task then goes back
	endTurns context.CancelFunc
}

// errUnpaced is why a task was not started whose turn did not come.
var errUnpaced = errors.New("its turn did not come while it could be started")

func newRateLimit(b func() *queues.Budget, brake *queues.Brake) *rateLimit {
	p := &rateLimit{budget: b, brake: brake}
	p.over, p.end = context.WithCancel(context.Background())
	p.turns, p.endTurns = context.WithCancel(p.over)
	return p
}

// pause ends all waiting for a turn.
func (p *rateLimit) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endTurns()
	p.turns, p.endTurns = context.WithCancel(p.over)
}

// wait waits until so many tasks of a message may be started; false: they may not any more.
func (p *rateLimit) wait(d *message.Delivery, tasks int, paused func() bool) bool {
	p.mu.Lock()
	turns := p.turns
	p.mu.Unlock()
	if paused() { // the turns that end with this pause may have been those before
		return false
	}
	ctx, cancel := context.WithCancel(d.Ctx)
	defer cancel()
	defer context.AfterFunc(turns, cancel)()
	if b := p.budget(); b != nil && b.Spend(ctx, queues.ClassGet, tasks) != nil {
		return false
	}
	return p.brake.Spend(ctx, tasks) == nil
}

// holds reports whether tasks may have to wait for their turn.
func (p *rateLimit) holds() bool { return p.budget() != nil || p.brake.Rate() > 0 }

// awaitRate waits until the tasks that the backlog has given may start; false: they have been put
// back.
func (p *workers) awaitRate(d *message.Delivery, from, to int) bool {
	r := p.r
	ok := r.rate.wait(d, to-from, r.aside.isPaused)
	r.backlog.StartNext()
	if !ok {
		d.Started.Store(true)
		for i := from; i < to; i++ {
			p.recordOutcome(d.Ctx, d, d.At(i), pump.Release(errUnpaced), time.Time{},
				trace.SpanContext{})
		}
	}
	return ok
}
