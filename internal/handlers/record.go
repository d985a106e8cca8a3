package handlers

import (
	"context"
	"strconv"

	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

// appendTask appends the line of --out for a task: run, segment, n, key, id,
// body, attempt and a line end.
func appendTask(dst []byte, t *pump.Task) []byte {
	dst = taskline.AppendIdentity(append(dst, '{'), t)
	dst = taskline.AppendBody(append(dst, ','), t.Body)
	dst = append(dst, `,"attempt":`...)
	dst = strconv.AppendInt(dst, int64(t.Attempt), 10)
	return append(dst, "}\n"...)
}

// appendRequest appends the line that a child reads: as appendTask, with the number that its answer
// must carry, how many tasks of its batch are left behind it (-1: there are no batches), the epoch,
// which is useful only during the work, and the context of a traced task.
func appendRequest(ctx context.Context, dst []byte, seq uint64, left int, t *pump.Task) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	if left >= 0 {
		dst = strconv.AppendInt(append(dst, `,"left":`...), int64(left), 10)
	}
	dst = taskline.AppendIdentity(append(dst, ','), t)
	dst = append(dst, `,"epoch":`...)
	dst = strconv.AppendUint(dst, t.Epoch, 10)
	dst = append(dst, `,"attempt":`...)
	dst = strconv.AppendInt(dst, int64(t.Attempt), 10)
	if parent, state := t.TraceContext(ctx); parent != "" {
		dst = taskline.AppendString(append(dst, `,"traceparent":`...), []byte(parent))
		if state != "" {
			dst = taskline.AppendString(append(dst, `,"tracestate":`...), []byte(state))
		}
	}
	dst = taskline.AppendBody(append(dst, ','), t.Body)
	return append(dst, "}\n"...)
}
