package pump

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
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
	errTimedOut = errors.New("pump: the handler did not return within the time for one task")
	errHung     = errors.New("pump: the handler goes on although its context has ended")
	errStopped  = errors.New("pump: the processor stops; the task will be delivered again")
	errGoexit   = errors.New("pump: the handler ended its goroutine")
)

// panicked is a handler's panic.
type panicked struct{ value any }

func (e *panicked) Error() string { return fmt.Sprintf("panic: %v", e.value) }

const (
	// hungAfter is how long a handler may take to return after its context
	// ended. Then the task is settled without it.
	hungAfter = 10 * time.Second
	// watchEvery is how exactly the time for one task is kept; half as exactly for those that are not the
	// first of a handful, whose beginning nobody notes.
	watchEvery = time.Second
)

// pool runs handlers: as many slots as ProcessorOptions.Concurrency or, without it, as width
// finds good; each is one goroutine that takes one task after the other. A slot whose handler ignores
// its context stays taken until the handler returns, so a handler that hangs
// costs a slot and never more; the task does not wait for it.
type pool struct {
	r *processing

	mu    sync.Mutex // guards slots
	slots []*slot    // those beyond the backlog's width get no work
}

// slot is one place in the pool.
type slot struct {
	pool     *pool
	hand     handful
	several  bool         // there were several in it: they count as begun at the end
	ctx      *taskContext // of the tasks of hand.d; made once for each delivery that the slot works on
	of       *delivery
	contexts []taskContext // unused ones

	mu        sync.Mutex // guards what follows; the slot's goroutine and the watch
	busy      bool
	began     time.Time
	task      int       // how far in the hand the watch saw the slot
	since     time.Time // when it saw that first, at the latest
	over      time.Time // when the watch first saw that the context has ended
	abandoned bool      // the watch has settled the task; the outcome is nobody's
}

// contextsAtOnce is how many contexts of a slot share an allocation.
const contextsAtOnce = 16

func newPool(r *processing) *pool {
	p := &pool{r: r}
	p.add(r.o.Concurrency)
	return p
}

// add makes slots until there are so many, and gives the new ones.
func (p *pool) add(most int) []*slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.slots)
	for i := before; i < most; i++ {
		p.slots = append(p.slots, &slot{pool: p, hand: handful{at: i}})
	}
	return p.slots[before:]
}

// all are the slots that there are.
func (p *pool) all() []*slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots
}

// start makes every slot work until the backlog says that there is no more.
func (p *pool) start() {
	for _, s := range p.all() {
		go s.run()
	}
}

// widen lets so many handlers be at work at once.
func (p *pool) widen(width int) {
	begun := p.add(width)
	p.r.backlog.widen(width, len(begun))
	for _, s := range begun {
		go s.run()
	}
}

func (s *slot) run() {
	leave := false
	defer func() {
		if !leave { // a handler called runtime.Goexit
			go s.run()
		}
	}()
	s.hand.ended = time.Now()
	for s.one() {
	}
	leave = true
	if s.ctx != nil {
		s.ctx.end(nil)
	}
}

// one handles what the backlog gives next: a task, a handful of quick ones, or an envelope
// if the handler takes batches.
func (s *slot) one() (more bool) {
	r, h := s.pool.r, &s.hand
	now, more := r.backlog.next(h)
	if !more {
		return false
	}
	if r.pace != nil {
		if !r.paceTasks(h) {
			h.starts, h.ended = 0, time.Now()
			return true
		}
		now = time.Now()
	}
	ctx := s.begin(now)
	err := errGoexit // stands if the handler does not return
	var errs []error
	defer func() { // more stays true after a panic as well
		if v := recover(); v != nil {
			err = &panicked{v}
			r.log.Error("handler panicked", append(s.attrs(), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))...)
		}
		s.end(ctx, err, errs)
	}()
	if r.batch == nil {
		err = s.each(ctx)
		return true
	}
	errs = r.batch.HandleBatch(ctx, h.d.pointers())
	err = nil
	if n := h.begun() - h.first; errs != nil && len(errs) != n {
		err = wrongOutcomes(len(errs), n)
	}
	return true
}

// each handles the tasks in the slot's hand until one ends otherwise than well. What is left then is
// taken back by next.
func (s *slot) each(ctx context.Context) error {
	r, h := s.pool.r, &s.hand
	for {
		if err := r.handle(ctx, h.d, h.d.at(h.begun()-1)); err != nil || !h.another() {
			return err
		}
	}
}

// handle calls the handler, or makes the task's contribution to the segment's state.
func (r *processing) handle(ctx context.Context, d *delivery, i int) (err error) {
	if r.reducer == nil {
		return r.handler.Handle(ctx, &d.tasks[i])
	}
	d.contributions[i], err = r.reducer.contribute(ctx, &d.tasks[i])
	return err
}

func wrongOutcomes(outcomes, tasks int) error {
	return fmt.Errorf("pump: the handler returned %d outcomes for %d tasks", outcomes, tasks)
}

// begin notes what the slot works on. The context is made anew only when the
// delivery changes or the last one was ended: a slot takes many tasks of one
// envelope in a row.
func (s *slot) begin(now time.Time) context.Context {
	h := &s.hand
	d := h.d
	d.started.Store(true)
	d.worked.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != d || s.ctx.Err() != nil {
		if s.ctx != nil {
			s.ctx.end(nil)
		}
		if len(s.contexts) == 0 {
			s.contexts = make([]taskContext, contextsAtOnce)
		}
		s.ctx, s.contexts = &s.contexts[0], s.contexts[1:]
		s.ctx.Context = d.ctx
		s.of = d
	}
	left := h.unbegun()
	s.busy, s.began, s.task, s.since, s.over, s.abandoned = true, now, left.from, now, time.Time{}, false
	if s.several = left.from < left.to; !s.several {
		s.pool.r.begins(d, h.at, left.from-h.first, now)
	}
	return s.ctx
}

// end records the outcomes of what the slot worked on, unless that was
// abandoned: then they were recorded.
func (s *slot) end(ctx context.Context, err error, errs []error) {
	r, h := s.pool.r, &s.hand
	s.mu.Lock()
	d, begun := h.d, h.begun()
	s.busy = false
	h.ended = time.Now()
	h.took = max(h.ended.Sub(s.began), 1)
	h.starts = 1
	if r.batch == nil {
		h.starts = begun - h.first
	}
	abandoned := s.abandoned
	s.mu.Unlock()
	r.terms.handled(h.took, h.starts, h.ended)
	if abandoned {
		r.backlog.hang(-1)
		r.log.Warn("a handler that was given up has returned", s.attrs()...)
		s.of = nil
		return
	}
	if s.several {
		s.countBegun(h.took)
	}
	if r.batch == nil {
		r.record(ctx, d, span{h.first, begun}, err)
		return
	}
	for i := h.first; i < begun; i++ {
		e := err
		if e == nil && errs != nil {
			e = errs[i-h.first]
		}
		r.record(ctx, d, span{i, i + 1}, e)
	}
}

// countBegun counts the tasks of a handful as begun, of which the slot or whoever abandons it says at the end
// how long they took: in the midst of that, as if none had been slow.
func (s *slot) countBegun(took time.Duration) {
	h := &s.hand
	n := h.begun() - h.first
	s.pool.r.begins(h.d, h.at, n, s.began.Add(min(took, time.Duration(n)*handfulTask)/2))
}

// record notes the outcomes of tasks: what the last one's handler returned; those before it are finished.
// The last of a message settles it.
func (r *processing) record(ctx context.Context, d *delivery, tasks span, err error) {
	v, after := judge(ctx, err)
	good := tasks.to - 1 - tasks.from
	switch v {
	case finished:
		good++
	case skipped:
		r.counts.skipped.Add(1)
	case failed:
		r.counts.failed.Add(1)
	case rejected:
		r.counts.rejected.Add(1)
	}
	if good > 0 {
		r.counts.handled.Add(int64(good))
	}
	d.mu.Lock()
	for k := tasks.from; k < tasks.to-1; k++ {
		d.verdicts[d.at(k)] = finished
	}
	i := d.at(tasks.to - 1)
	d.verdicts[i] = v
	if v > finished {
		d.troubles = append(d.troubles, trouble{i, after, err})
	}
	d.pending -= tasks.to - tasks.from
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
	if w, ok := wish(err); ok {
		switch {
		case w.reject:
			return rejected, 0
		case w.skip:
			return skipped, 0
		case w.release && w.after > 0:
			return postponed, w.after
		case w.release:
			return unfinished, 0
		default:
			return retry, w.after
		}
	}
	// A handler whose context ended for reasons that are not its task's cannot
	// be blamed for returning early.
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errTimedOut) {
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
			for _, s := range p.all() {
				s.check(now)
			}
		}
	}
}

func (s *slot) check(now time.Time) {
	s.mu.Lock()
	if !s.busy || s.abandoned {
		s.mu.Unlock()
		return
	}
	s.checkTask(now)
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

// checkTask looks at how long the slot has been at its task, with s.mu held.
func (s *slot) checkTask(now time.Time) {
	r, task, lasts := s.pool.r, s.hand.begun(), now.Sub(s.since)
	if task == s.task {
		late := r.o.Timeout > 0 && lasts >= r.o.Timeout && s.ctx.Err() == nil
		if late || lasts >= watchEvery/2 { // since the look before, whose time is not known to the nanosecond
			r.backlog.regain(&s.hand) // others need not wait for a slow one, and none begins with a context that has ended
			task = s.hand.begun()
		}
		if late && task == s.task {
			r.log.Warn("handler takes too long; its context is ended", append(s.attrs(), "for", lasts)...)
			s.ctx.end(errTimedOut)
		}
	}
	if task != s.task {
		s.task, s.since = task, now
	}
}

// giveUp abandons every handler that has not returned. Their contexts have ended.
func (p *pool) giveUp() {
	for _, s := range p.all() {
		s.mu.Lock()
		if s.busy && !s.abandoned {
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
	r, h, ctx := s.pool.r, &s.hand, s.ctx
	d := h.d
	r.backlog.regain(h) // from here on the slot begins nothing, and what it has begun is known
	attrs, tasks := s.attrs(), span{h.first, h.begun()}
	if s.several {
		s.countBegun(time.Since(s.began))
	}
	s.mu.Unlock()
	r.backlog.hang(+1)
	r.log.Error("handler ignores that its context has ended; its task is settled without it and its place stays taken until it returns",
		append(attrs, "cause", context.Cause(ctx))...)
	// The handler may read the tasks for as long as it runs, so their buffer
	// never goes back to a pool.
	d.mu.Lock()
	d.hung = true
	d.mu.Unlock()
	if r.batch == nil {
		r.record(ctx, d, tasks, errHung)
		return
	}
	for i := tasks.from; i < tasks.to; i++ {
		r.record(ctx, d, span{i, i + 1}, errHung)
	}
}

// attrs are what a log line says about the task that the slot is at, or the first of a batch.
func (s *slot) attrs() []any {
	k := s.hand.first
	if s.pool.r.batch == nil {
		k = s.hand.begun() - 1
	}
	return s.hand.d.attrs(s.hand.d.at(k))
}

// lost makes sure that nothing more of a message is started whose lease is no
// longer trusted, and ends its handlers if cause says so.
func (r *processing) lost(d *delivery, cause error) {
	if cause != nil {
		r.counts.lost.Add(1)
		r.log.Warn("lease lost; the message will be delivered again", d.attrs(-1)...)
		d.end(cause)
	}
	r.withdraw(d)
}

// withdraw gives the tasks of a message that were not started the verdict
// unfinished, and settles it if that was all.
func (r *processing) withdraw(d *delivery) {
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
	if d.foreign == "" && d.header.Run != (RunID{}) {
		a = append(a, "run", d.header.Run, "segment", d.header.Segment)
	}
	if task >= 0 && task < len(d.tasks) {
		a = append(a, "n", d.tasks[task].N, "attempt", d.tasks[task].Attempt)
	}
	return a
}

// pointers is the batch that a BatchHandler gets.
func (d *delivery) pointers() []*Task {
	ps := make([]*Task, d.starts())
	for k := range ps {
		ps[k] = &d.tasks[d.at(k)]
	}
	return ps
}
