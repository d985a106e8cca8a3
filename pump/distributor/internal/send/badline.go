package send

import (
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/source"
)

// BadLine packs a bad line for quarantine. It has no identity in the run:
// it has no key and so no segment of its own, and a number would make the
// run's sealed count wrong. So its envelope has a zero run, like a foreign message, and
// the cause says where it comes from.
func BadLine(
	workload, instance string, run pump.RunID, bad *source.BadInput, segment uint32, interval int,
) (*pack.Message, error) {
	now := time.Now()
	cause := codec.Cause{
		Reason: codec.ReasonBadLine, Instance: instance, Attempts: 1, First: now, Last: now,
	}
	raw := bad.Raw
	for {
		b := codec.NewBuilder(0)
		b.Reset(codec.Header{Workload: workload, Segment: segment})
		_, err := b.Add(codec.Task{ID: []byte(bad.Where), Body: raw})
		if errors.Is(err, codec.ErrTaskTooLarge) && len(raw) > 0 {
			raw = raw[:len(raw)/2] // it does not compress: half of it still shows what it is
			continue
		}
		if err != nil {
			return nil, err
		}
		text, _, err := b.Seal(nil)
		if err != nil {
			return nil, err
		}
		cause.Detail = fmt.Sprintf("run %s: %v", run, bad)
		if len(raw) < len(bad.Raw) {
			cause.Detail = fmt.Sprintf("the first %d bytes of it; %s", len(raw), cause.Detail)
		}
		if text, err = codec.Quarantined(text, cause); err != nil {
			return nil, err
		}
		return &pack.Message{Text: text, Segment: segment, Tasks: 1, Interval: interval, Bad: true}, nil
	}
}
