package handlers

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

// batches gives the tasks of an envelope to children, CommandOptions.Batch at a time.
type batches struct {
	pump.Handler // nil: HandleBatch is called instead
	exec         *Exec
	noted        *Noted
	out          *File // nil: results are dropped
}

// HandleBatch keeps several children at work; see [pump.BatchHandler].
func (b batches) HandleBatch(ctx context.Context, tasks []*pump.Task) []error {
	errs := make([]error, len(tasks))
	var g errgroup.Group
	g.SetLimit(2 * b.exec.opts.Children) // some of them wait for the disk
	for size, from := b.exec.opts.Batch, 0; from < len(tasks); from += size {
		to := min(from+size, len(tasks))
		g.Go(func() error {
			b.handle(ctx, tasks[from:to], errs[from:to])
			return nil
		})
	}
	_ = g.Wait()
	return errs
}

// handle gives tasks to one child, and writes the results of all at once.
func (b batches) handle(ctx context.Context, tasks []*pump.Task, errs []error) {
	var lines []byte
	for i, a := range b.exec.giveBatch(ctx, tasks) {
		errs[i] = a.err
		b.noted.note(ctx, a.err)
		if a.err == nil {
			tasks[i].SetResult(ctx, a.result)
		}
		if a.err == nil && b.out != nil {
			lines = taskline.AppendResult(lines, tasks[i], a.result)
		}
	}
	if lines == nil {
		return
	}
	if err := b.out.append(ctx, lines); err != nil {
		for i := range errs {
			errs[i] = cmp.Or(errs[i], err)
		}
	}
}

// mostAlone is how many tasks may have no outcome alone either, before the rest of their batch is
// left for another attempt: each may take the whole time for one.
const mostAlone = 3

// giveBatch gives tasks to one child together. Those without an outcome, because the child died or
// hung, are given again in the same attempt, each alone: one of them may be the cause.
func (e *Exec) giveBatch(ctx context.Context, tasks []*pump.Task) []answer {
	answers, silent := e.give(ctx, tasks), 0
	for i, a := range answers {
		if a.said || len(tasks) == 1 || silent == mostAlone || ctx.Err() != nil ||
			errors.Is(a.err, errUntried) {
			continue
		}
		answers[i] = e.give(ctx, tasks[i:i+1])[0]
		if !answers[i].said {
			silent++
		}
	}
	return answers
}
