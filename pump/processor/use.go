package processor

import (
	"context"
	"fmt"
	"slices"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// Middleware stands around each call of the handler, whatever kind of handler that is; see
// [Options].Use. tasks are those of the call: one, or those of an envelope if the handler is a
// [pump.BatchHandler]. next gives them to what stands behind the middleware, at the end the
// handler. The errors that the middleware returns count: one a task, or nil if all are done;
// [pump.OutcomeOf] says what each means. If their number is another, or after a panic, every task
// fails. A middleware may call next with a context of its own, with some of the tasks, again after
// a failure, or not at all.
type Middleware func(ctx context.Context, tasks []*pump.Task, next Next) []error

// Next returns one error a task, nil if it is done.
type Next = func(ctx context.Context, tasks []*pump.Task) []error

// call gives the tasks of a slot to the handler. It returns one error a task, or nil if all are
// done.
func (r *run) call(ctx context.Context, d *message.Delivery, from, to int) []error {
	i := d.At(from)
	if len(r.use) == 0 && r.batch == nil {
		if err := r.callOne(ctx, d, i, &d.Tasks[i]); err != nil {
			return []error{err}
		}
		return nil
	}
	next, tasks := func(ctx context.Context, tasks []*pump.Task) []error {
		switch {
		case len(tasks) == 0:
			return nil
		case r.batch != nil:
			errs := r.batch.HandleBatch(ctx, tasks)
			if errs == nil && len(r.use) == 0 {
				return nil // nobody looks at them one by one
			}
			return perTask(errs, len(tasks))
		}
		return []error{r.callOne(ctx, d, i, tasks[0])}
	}, []*pump.Task{&d.Tasks[i]}
	if r.batch != nil {
		tasks = d.Pointers(from, to)
	}
	for _, around := range slices.Backward(r.use) {
		behind := next
		next = func(ctx context.Context, tasks []*pump.Task) []error {
			return perTask(around(ctx, tasks, behind), len(tasks))
		}
	}
	return next(ctx, tasks)
}

// callOne calls a handler that takes one task.
func (r *run) callOne(ctx context.Context, d *message.Delivery, i int, t *pump.Task) error {
	if r.Reducer == nil {
		return r.handler.Handle(ctx, t)
	}
	value, err := r.Reducer.Contribute(ctx, t)
	if err == nil {
		d.Contributions[i] = &value
	}
	return err
}

// perTask makes errors one a task. If there are others, every task fails.
func perTask(errs []error, tasks int) []error {
	if errs == nil {
		return make([]error, tasks)
	} else if len(errs) == tasks {
		return errs
	}
	err := fmt.Errorf("the handler returned %d outcomes for %d tasks", len(errs), tasks)
	return slices.Repeat([]error{err}, tasks)
}
