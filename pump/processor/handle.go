package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/outcome"
)

// verdict is what became of one task in one delivery.
type verdict uint8

const (
	// unfinished: not started, released by the handler, or its context ended
	// under it. No attempt is counted.
	unfinished verdict = iota
	skipped            // settled without being handled: its key was, lately
	finished
	failed    // an error, a panic, a timeout: an attempt
	retry     // the handler asked for it: an attempt
	rejected  // the handler says that it will never succeed
	postponed // to be put back for a while without an attempt
	known     // recorded as done before (mode once)
)

// trouble is a verdict that says more than its kind.
type trouble struct {
	task  int
	after time.Duration // retry, postponed
	err   error
}

var (
	ErrTimedOut = errors.New("pump: the handler did not return within the time for one task")
	errHung     = errors.New("pump: the handler goes on although its context has ended")
	ErrStopped  = errors.New("pump: the processor stops; the task will be delivered again")
	errGoexit   = errors.New("pump: the handler ended its goroutine")
)

// panicked is a handler's panic.
type panicked struct{ value any }

func (e *panicked) Error() string { return fmt.Sprintf("panic: %v", e.value) }

const (
	// hungAfter is how long a handler may take to return after its context
	// ended. Then the task is settled without it.
	hungAfter = 10 * time.Second
	// watchEvery is how exactly the time for one task is kept.
	watchEvery = time.Second
)

// pool runs handlers: as many slots as Options.Concurrency; each is one goroutine
// that takes one task after the other. A slot whose handler ignores its context stays taken until
// the handler returns, so a handler that hangs costs a slot and never more; the task does not
// wait for it.
type pool struct {
	r     *processing
	slots []slot
}

// slot is one place in the pool.
type slot struct {
	pool   *pool
	at     int             // which of the slots it is
	ctx    context.Context // of the tasks of d; made once for each delivery that the slot works on
	endCtx context.CancelCauseFunc
	of     *delivery
	took   time.Duration // by the last task or batch, which says how far to fetch ahead
	ended  time.Time     // when that was

	mu        sync.Mutex // guards what follows; the slot's goroutine and the watch
	d         *delivery  // nil while idle
	from, to  int        // in the order of starting
	began     time.Time
	over      time.Time // when the watch first saw that the context has ended
	abandoned bool      // the watch has settled the task; the outcome is nobody's
}

func newPool(r *processing) *pool {
	p := &pool{r: r, slots: make([]slot, r.o.Concurrency)}
	for i := range p.slots {
		p.slots[i].pool, p.slots[i].at = p, i
	}
	return p
}

// start makes every slot work until the backlog says that there is no more.
func (p *pool) start() {
	for i := range p.slots {
		go p.slots[i].run()
	}
}

func (s *slot) run() {
	leave := false
	defer func() {
		if !leave { // a handler called runtime.Goexit
			go s.run()
		}
	}()
	s.ended = time.Now()
	for s.one() {
	}
	leave = true
	if s.ctx != nil {
		s.endCtx(nil)
	}
}

// one handles the next task, or the next envelope if the handler takes batches.
func (s *slot) one() (more bool) {
	r := s.pool.r
	d, from, to, now := r.backlog.next(s.took, s.ended)
	if to == 0 {
		return false
	}
	more = true // after a panic as well
	if r.pace != nil {
		if !r.paceTasks(d, from, to) {
			s.took, s.ended = 0, time.Now()
			return more
		}
		now = time.Now()
	}
	ctx := s.begin(d, from, to, now)
	err := errGoexit // stands if the handler does not return
	var errs []error
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v}
			r.log.Error("handler panicked", append(d.attrs(d.at(from)), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))...)
		}
		s.end(ctx, err, errs)
	}()
	switch {
	case r.reducer != nil:
		i := d.at(from)
		d.contributions[i], err = r.reducer.Contribute(ctx, &d.tasks[i])
		return more
	case r.batch == nil:
		err = r.handler.Handle(ctx, &d.tasks[d.at(from)])
		return more
	}
	errs = r.batch.HandleBatch(ctx, d.pointers())
	err = nil
	if n := to - from; errs != nil && len(errs) != n {
		err = wrongOutcomes(len(errs), n)
	}
	return more
}

func wrongOutcomes(outcomes, tasks int) error {
	return fmt.Errorf("pump: the handler returned %d outcomes for %d tasks", outcomes, tasks)
}

// begin notes what the slot works on. The context is made anew only when the
// delivery changes or the last one was ended: a slot takes many tasks of one
// envelope in a row.
func (s *slot) begin(d *delivery, from, to int, now time.Time) context.Context {
	d.started.Store(true)
	d.worked.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != d || s.ctx.Err() != nil {
		if s.ctx != nil {
			s.endCtx(nil)
		}
		s.ctx, s.endCtx = context.WithCancelCause(d.ctx)
		s.of = d
	}
	s.d, s.from, s.to, s.began, s.over, s.abandoned = d, from, to, now, time.Time{}, false
	s.pool.r.begins(d, s.at, to-from, s.began)
	return s.ctx
}

// end records the outcomes of what the slot worked on, unless that was
// abandoned: then they were recorded.
func (s *slot) end(ctx context.Context, err error, errs []error) {
	s.mu.Lock()
	d, from, to := s.d, s.from, s.to
	s.d = nil
	s.ended = time.Now()
	s.took = max(s.ended.Sub(s.began), 1)
	took, abandoned := s.took, s.abandoned
	s.mu.Unlock()
	s.pool.r.terms.handled(took, s.ended)
	if abandoned {
		s.pool.r.backlog.hang(-1)
		s.pool.r.log.Warn("a handler that was given up has returned", d.attrs(d.at(from))...)
		s.of = nil
		return
	}
	if s.pool.r.batch == nil {
		s.pool.r.record(ctx, d, d.at(from), err)
		return
	}
	for i := from; i < to; i++ {
		e := err
		if e == nil && errs != nil {
			e = errs[i-from]
		}
		s.pool.r.record(ctx, d, d.at(i), e)
	}
}

// record notes the outcome of one task. The last one of a message settles it.
func (r *processing) record(ctx context.Context, d *delivery, i int, err error) {
	v, after := judge(ctx, err)
	switch v {
	case finished:
		r.counts.handled.Add(1)
	case skipped:
		r.counts.skipped.Add(1)
	case failed:
		r.counts.failed.Add(1)
	case rejected:
		r.counts.rejected.Add(1)
	}
	d.mu.Lock()
	d.verdicts[i] = v
	if v > finished {
		d.troubles = append(d.troubles, trouble{i, after, err})
	}
	d.pending--
	last := d.pending == 0
	d.mu.Unlock()
	if last {
		d.settler.add(d)
	}
}

// judge says what a handler's error means.
func judge(ctx context.Context, err error) (v verdict, after time.Duration) {
	if err == nil {
		return finished, 0
	}
	if w, ok := outcome.Of(err); ok {
		switch {
		case w.Reject:
			return rejected, 0
		case w.Skip:
			return skipped, 0
		case w.Release && w.After > 0:
			return postponed, w.After
		case w.Release:
			return unfinished, 0
		default:
			return retry, w.After
		}
	}
	// A handler whose context ended for reasons that are not its task's cannot
	// be blamed for returning early.
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ErrTimedOut) {
		return unfinished, 0
	}
	return failed, 0
}

// watch ends the contexts of handlers that take too long, and gives up on those
// that then do not return, until ctx ends.
func (p *pool) watch(ctx context.Context) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for i := range p.slots {
				p.slots[i].check(now)
			}
		}
	}
}

func (s *slot) check(now time.Time) {
	s.mu.Lock()
	if s.d == nil || s.abandoned {
		s.mu.Unlock()
		return
	}
	if limit := s.pool.r.o.Timeout; limit > 0 && now.Sub(s.began) >= limit && s.ctx.Err() == nil {
		s.pool.r.log.Warn("handler takes too long; its context is ended", append(s.d.attrs(s.d.at(s.from)), "for", now.Sub(s.began))...)
		s.endCtx(ErrTimedOut)
	}
	switch {
	case s.ctx.Err() == nil:
	case s.over.IsZero():
		s.over = now
	case now.Sub(s.over) >= hungAfter:
		s.abandon() // unlocks
		return
	}
	s.mu.Unlock()
}

// giveUp abandons every handler that has not returned. Their contexts have ended.
func (p *pool) giveUp() {
	for i := range p.slots {
		s := &p.slots[i]
		s.mu.Lock()
		if s.d != nil && !s.abandoned {
			s.abandon()
		} else {
			s.mu.Unlock()
		}
	}
}

// abandon settles what the slot works on without its handler. It is called
// with s.mu held and releases it. A handler that hangs has made an attempt; one
// that only outlives its lease or the processor has not.
func (s *slot) abandon() {
	s.abandoned = true
	d, from, to, ctx := s.d, s.from, s.to, s.ctx
	s.mu.Unlock()
	r := s.pool.r
	r.backlog.hang(+1)
	r.log.Error("handler ignores that its context has ended; its task is settled without it and its place stays taken until it returns",
		append(d.attrs(d.at(from)), "cause", context.Cause(ctx))...)
	// The handler may read the tasks for as long as it runs, so their buffer
	// never goes back to a pool.
	d.mu.Lock()
	d.hung = true
	d.mu.Unlock()
	for i := from; i < to; i++ {
		r.record(ctx, d, d.at(i), errHung)
	}
}

// lost makes sure that nothing more of a message is started whose lease is no
// longer trusted, and ends its handlers if cause says so.
func (r *processing) lost(d *delivery, cause error) {
	if cause != nil {
		r.counts.lost.Add(1)
		attrs := d.attrs(-1)
		r.lines.Of("lost").Add(d.count, func(messages, _ int) {
			r.log.Warn("lease lost; the message will be delivered again", append(attrs, "messages", messages)...)
		})
		d.end(cause)
	}
	r.withdraw(d)
}

// withdraw gives the tasks of a message that were not started the verdict
// unfinished, and settles it if that was all.
func (r *processing) withdraw(d *delivery) {
	if r.lobby.leave(d) {
		return
	}
	unstarted, unopened := r.backlog.withdraw(d)
	defer r.dock.look()
	if unopened {
		d.started.Store(true)
		d.settler.add(d)
	}
	if unstarted == 0 {
		return
	}
	d.started.Store(true)
	d.mu.Lock()
	d.pending -= unstarted
	last := d.pending == 0
	d.mu.Unlock()
	if last {
		d.settler.add(d)
	}
}

// attrs are what a log line says about a delivery, and about a task of it.
func (d *delivery) attrs(task int) []any {
	a := []any{"queue", d.shard.String(), "message", d.id}
	if d.foreign == "" && d.header.Run != (pump.RunID{}) {
		a = append(a, "run", d.header.Run, "segment", d.header.Segment)
	}
	if task >= 0 && task < len(d.tasks) {
		a = append(a, "n", d.tasks[task].N, "attempt", d.tasks[task].Attempt)
	}
	return a
}

// pointers is the batch that a BatchHandler gets.
func (d *delivery) pointers() []*pump.Task {
	ps := make([]*pump.Task, d.starts())
	for k := range ps {
		ps[k] = &d.tasks[d.at(k)]
	}
	return ps
}
