package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

func TestTheContextsOfHandlersSayWhyTheyEnd(t *testing.T) {
	for cause, judged := range map[error]message.Verdict{leases.ErrEnded: message.Unfinished, ErrStopped: message.Unfinished, ErrTimedOut: message.Failed} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		for _, err := range []error{context.Canceled, testworld.ErrFlop, errors.New("exec: killed")} {
			if v, _ := verdictOf(ctx, err); v != judged {
				t.Errorf("%v under %q is judged %d, want %d", err, cause, v, judged)
			}
		}
		// What the handler says outright holds all the same.
		if v, _ := verdictOf(ctx, nil); v != message.Finished {
			t.Errorf("done under %q is judged %d", cause, v)
		}
		if v, _ := verdictOf(ctx, pump.Reject(testworld.ErrFlop)); v != message.Rejected {
			t.Errorf("a rejection under %q is judged %d", cause, v)
		}
		if v, _ := verdictOf(ctx, fmt.Errorf("wrapped: %w", pump.Release(testworld.ErrFlop))); v != message.Unfinished {
			t.Errorf("a release under %q is judged %d", cause, v)
		}
		if v, after := verdictOf(ctx, fmt.Errorf("wrapped: %w", pump.RetryAfter(time.Minute, nil))); v != message.Retry || after != time.Minute {
			t.Errorf("a retry under %q is judged %d, %v", cause, v, after)
		}
		if !strings.HasPrefix(cause.Error(), "pump: ") {
			t.Errorf("%q does not say where it comes from", cause)
		}
	}
}
