package pump

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// What the errors of the front door say.
func TestErrorsSayWhatIsWrongAndWhatToDo(t *testing.T) {
	cause := errors.New("flop")
	for err, want := range map[error]string{
		Invalid("segments", "is 0", "write 64"):                    "segments: is 0; write 64",
		&MismatchError{"town", "delivery", "is once", "change it"}: `workload "town": delivery: is once; change it`,
		RetryAfter(-1, nil):     "retry after 0s",
		Reject(cause):           "flop",
		Release(nil):            "put back untried",
		Busy(time.Second, nil):  `told "not now"`,
		&StuckError{Open: true}: "run 00000000000000000000000000000000 is stuck: it was not sent to its end, and no distributor is at work on it; send the rest of its source with: distributor runs repair 00000000000000000000000000000000 --input FILE",
		&StuckError{Missing: 3, Lacking: []SegmentLack{{4, 1}, {9, 2}}}: "run 00000000000000000000000000000000 is stuck: 3 tasks are neither done nor in quarantine, and the queues are empty: 1 of segment 4, 2 of segment 9; put them again from the run's source with: distributor runs repair 00000000000000000000000000000000 --input FILE",
		fmt.Errorf("%w", &ConfigError{"a", "b", "c", cause}):            "a: b; c",
	} {
		proof.Same(t, err.Error(), want, err)
	}
	proof.Is(t, &ConfigError{Err: cause}, cause, "the cause is lost")
	if text := lackText(make([]SegmentLack, 10)); strings.Count(text, "0 of segment 0, ") != 8 || !strings.HasSuffix(text, "and those of 2 more segments") {
		t.Error(text)
	}
}

func TestAWaitingEndsWithItsTimeoutOrNever(t *testing.T) {
	ctx, stop := WaitOptions{}.Within(t.Context())
	if _, ends := ctx.Deadline(); ends {
		t.Error("a waiting without a timeout ends")
	}
	stop()
	ctx, stop = WaitOptions{Timeout: 1}.Within(t.Context())
	defer stop()
	<-ctx.Done()
	proof.Is(t, context.Cause(ctx), ErrTimeout)
}

func TestRequestsAreSummedOverAccountsAndOperations(t *testing.T) {
	proof.Same(t, (Requests{"a": {"get": 1, "put": 2}, "b": {"get": 4}}).Total(), 7)
}
