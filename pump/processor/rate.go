package processor

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// rateLimit keeps all processors of a workload together below a rate of tasks (Options.MaxRate): a
// budget like those of the accounts, shared by demand (P8.1), but of tasks. It also keeps this
// process below the rate at which tasks are told "not now" (P8.4). One slot at a time has a task
// and waits for its turn (Backlog.pacing): a process that stops could not give back the tasks of
// all slots.
type rateLimit struct {
	budget *queues.Budget // nil: as many tasks as there are handlers for
	brake  *queues.Brake
	over   context.Context // ends when no task is started any more
	end    context.CancelFunc

	mu       sync.Mutex      // guards what follows
	turns    context.Context // ends with a pause: a waiting task then goes back
	endTurns context.CancelFunc
}

// errUnpaced is why a task was not started whose turn did not come.
var errUnpaced = errors.New("its turn did not come while it could be started")

func newRateLimit(b *queues.Budget, brake *queues.Brake) *rateLimit {
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
	if p.budget != nil && p.budget.Spend(ctx, queues.ClassGet, tasks) != nil {
		return false
	}
	return p.brake.Spend(ctx, tasks) == nil
}

// holds reports whether tasks may have to wait for their turn.
func (p *rateLimit) holds() bool { return p.budget != nil || p.brake.Rate() > 0 }

// awaitRate waits until the tasks that the backlog has given may start; false: they have been put
// back.
func (r *run) awaitRate(d *message.Delivery, from, to int) bool {
	ok := r.rate.wait(d, to-from, r.isPaused)
	r.backlog.StartNext()
	if !ok {
		d.Started.Store(true)
		for i := from; i < to; i++ {
			r.recordOutcome(d.Ctx, d, d.At(i), pump.Release(errUnpaced), time.Time{},
				trace.SpanContext{})
		}
	}
	return ok
}

// newTaskBudget makes the budget of a rate of tasks. It begins with one task: a burst comes only
// with time.
func newTaskBudget(rate float64) *queues.Budget {
	b := queues.NewWithBurst(rate, 1)
	b.Bucket.Owe(time.Now(), b.Bucket.Burst-1)
	return b
}
