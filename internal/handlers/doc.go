// Package handlers holds what the processor binary can do with a task: it can give it to a
// long-lived child process ([Exec]), to a process of its own ([ExecEach]), to an HTTP endpoint
// ([HTTP]), or write it to a file ([File]). The first three may give a result, and [Recorded]
// writes that to a file before the message is settled.
//
// Two kinds of failure are kept apart. A failure of a task's own handling (a child that dies, hangs
// or prints garbage, a status 500) costs that task an attempt. A failure that has nothing to do
// with the task (a command that cannot be started, a full disk) must not cost one, or a few minutes
// of such failures would quarantine every task. The handler waits and tries again, and after a
// while reports itself as broken. Then the processor stops and gives back what it holds, untried.
//
// A call that hangs is a failure too, and a clock finds it: on each call to a file, on each start
// of a child and on its reading of a task. The end of the process never waits for a call that
// hangs.
package handlers

import (
	"context"
	"encoding/json"

	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

// Worker does the work of a task; its error means what it means in
// [pump.Handler]. The result, if there is one, is a JSON value.
type Worker interface {
	Work(ctx context.Context, t *pump.Task) (result json.RawMessage, err error)
}

// Handler makes a pump.Handler of a worker. A processor with Options.Results keeps its results,
// others drop them.
func Handler(w Worker) pump.Handler { return Recorded(w, nil) }

// Recorded makes a pump.Handler that writes each task's result to f, safely on
// disk, before it reports the task as done. Without f it is as Handler. It is a
// pump.BatchHandler if w is the Noted of an Exec with CommandOptions.Batch.
func Recorded(w Worker, f *File) pump.Handler {
	if noted, is := w.(*Noted); is {
		if e, is := noted.worker.(*Exec); is && e.opts.Batch > 1 {
			return batches{exec: e, noted: noted, out: f}
		}
	}
	return pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		result, err := w.Work(ctx, t)
		if err == nil {
			t.SetResult(ctx, result)
		}
		if err != nil || f == nil {
			return err
		}
		return f.append(ctx, taskline.AppendResult(nil, t, result))
	})
}
