package worlds

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// A processor that dies between the put into quarantine and the record leaves a copy there of a
// task that may be done later. A redrive knows that for as long as the run's row is there. After that
// it cannot know, and redrives the copy on purpose only (docs/operations.md, "Its limits").
func TestACopyInQuarantineOfATaskThatIsDoneIsRedrivenOnPurposeOnly(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		w.Cfg.Retention = 2 * time.Hour
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		run := w.oneTask(7)
		text := w.Text(7, func(h *codec.Header) { h.Run = run }, 0)
		cause := codec.Cause{Reason: codec.ReasonAttempts, Instance: "p", Last: time.Now()}
		text, err := codec.Quarantined(text, cause)
		must(t, err)
		w.PutText("accounta", workload.PoisonQueue("work"), text)
		for _, c := range []struct {
			after   time.Duration
			o       quarantine.Options
			outcome string
			why     string
			done    int
		}{
			{time.Minute, quarantine.Options{}, quarantine.Kept, "its run is closed", 1},
			{time.Hour, quarantine.Options{}, quarantine.Kept, "its run is closed", 1},
			{2 * time.Hour, quarantine.Options{}, quarantine.Kept, "--again", 1},
			{time.Minute, quarantine.Options{Dry: true}, quarantine.Kept, "--again", 1},
			{time.Minute, quarantine.Options{Again: true}, quarantine.Redriven, "", 2},
		} {
			time.Sleep(c.after)
			outs := w.redrive(quarantine.Filter{}, c.o)
			if len(outs) != 1 || outs[0].Outcome != c.outcome || !strings.Contains(outs[0].Problem, c.why) {
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

// A late copy of a task that was done is in quarantine as that of an ended run. It came after the
// run was over, so no processor knew it any more.
func TestALateCopyOfARunThatIsOverIsRedrivenOnPurposeOnly(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		w.PutTasks(3, 0)
		w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 1 })
		must(t, w.AllRuns().End(t.Context(), w.Run, false, "by hand"))
		time.Sleep(time.Minute)
		w.PutTasks(3, 1) // which is not done, and the owner of the segment knows it
		time.Sleep(2 * time.Hour)
		w.PutTasks(3, 0)
		time.Sleep(time.Minute)
		outs := w.redrive(quarantine.Filter{}, quarantine.Options{})
		time.Sleep(time.Minute)
		if n := h.Deliveries(); n != 2 || len(outs) != 2 || len(w.Condemned()) != 1 {
			t.Errorf("%d handlings, %+v", n, outs)
		}
		p.End()
	})
}
