package worlds

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// A processor that dies between the put into quarantine and the record leaves a copy there of a
// task that may be done later. A redrive knows that for as long as the run's row is there, and not
// longer (docs/operations.md, "Its limits").
func TestACopyInQuarantineOfATaskThatIsDoneIsRecognisedUntilTheRetention(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Retention = 2 * time.Hour
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		run := w.oneTask(7)
		text := w.Text(7, func(h *codec.Header) { h.Run = run }, 0)
		cause := codec.Cause{Reason: pump.ReasonAttempts, Instance: "p", Last: time.Now()}
		text, err := codec.Quarantined(text, cause)
		if err != nil {
			t.Fatal(err)
		}
		w.PutText("accounta", settings.PoisonQueue("work"), text)
		for _, c := range []struct {
			after   time.Duration
			outcome string
			done    int
		}{
			{time.Minute, quarantine.Kept, 1},
			{time.Hour, quarantine.Kept, 1},
			{2 * time.Hour, quarantine.Redriven, 2},
		} {
			time.Sleep(c.after)
			outs := w.redrive(quarantine.Filter{}, quarantine.Options{})
			if len(outs) != 1 || outs[0].Outcome != c.outcome {
				t.Errorf("%v later: %+v", c.after, outs)
			}
			time.Sleep(time.Minute)
			if n := h.Deliveries(); n != c.done {
				t.Errorf("%v later the task was done %d times, want %d", c.after, n, c.done)
			}
		}
		p.End()
	})
}
