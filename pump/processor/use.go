package processor

import (
	"context"
	"slices"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/settle"
)

// Middleware stands around each call of the handler, whatever kind of handler that is; see
// [Options].Use. tasks are those of the call: one, or those of an envelope if the handler is a
// [pump.BatchHandler]. next calls what stands behind the middleware, at the end the handler, and
// gives one error a task; [pump.OutcomeOf] says what each means. The errors that the middleware
// returns count: one a task, or nil if all are done. If their number is another, or after a panic,
// every task fails. A middleware may call next with a context of its own, again after a failure, or
// not at all: then the handler does not see the tasks.
type Middleware func(
	ctx context.Context, tasks []*pump.Task, next func(context.Context) []error,
) []error

// call gives the tasks of a slot to the handler. It returns one error a task, or nil if all are
// done.
func (r *run) call(ctx context.Context, d *message.Delivery, from, to int) []error {
	if r.batch != nil && r.Reducer == nil {
		return perTask(r.batch.HandleBatch(ctx, d.Pointers()), to-from)
	}
	i, err := d.At(from), error(nil)
	if r.Reducer != nil {
		d.Contributions[i], err = r.Reducer.Contribute(ctx, &d.Tasks[i])
	} else {
		err = r.handler.Handle(ctx, &d.Tasks[i])
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// callThrough is call within all of Options.Use.
func (r *run) callThrough(ctx context.Context, d *message.Delivery, from, to int) []error {
	if len(r.o.Use) == 0 {
		return r.call(ctx, d, from, to)
	}
	next := func(ctx context.Context) []error { return r.call(ctx, d, from, to) }
	tasks := []*pump.Task{&d.Tasks[d.At(from)]}
	if r.batch != nil && r.Reducer == nil {
		tasks = d.Pointers()
	}
	for _, around := range slices.Backward(r.o.Use) {
		behind := next
		next = func(ctx context.Context) []error {
			return perTask(around(ctx, tasks, func(ctx context.Context) []error {
				if errs := behind(ctx); errs != nil {
					return errs
				}
				return make([]error, len(tasks))
			}), len(tasks))
		}
	}
	return next(ctx)
}

// perTask has every task fail if there is not one error a task.
func perTask(errs []error, tasks int) []error {
	if errs == nil || len(errs) == tasks {
		return errs
	}
	return slices.Repeat([]error{settle.WrongOutcomes(len(errs), tasks)}, tasks)
}
