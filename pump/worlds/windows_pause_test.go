package worlds

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/workloads"
)

// A mark is written once, also if its answer is lost. A run that was resumed a moment ago can be
// paused again: what is hidden of it goes back when it comes. Who comes meanwhile takes part.
func TestARunIsPausedAgainWhileItsMessagesAreHidden(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.PutHome(w.EverySegment(), 3)
		part := workloads.Part{Run: w.Run.String()}
		loseAnswer := func() {
			w.Fault(azsim.Rule{Instance: "operator", Fault: azsim.AnswerLost, First: 1}, "UpdateEntity", "MergeEntity")
		}
		loseAnswer()
		must(t, proof.ErrOf(workloads.PausePart(t.Context(), w.Operator(), part, "me")))
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(2 * time.Minute)
		loseAnswer()
		must(t, proof.ErrOf(workloads.ResumePart(t.Context(), w.Operator(), part)))
		must(t, proof.ErrOf(workloads.PausePart(t.Context(), w.Operator(), part, "me")))
		windowHit(t, w.Left()) // messages, each of them hidden or on its way
		q := testworld.Begun(w, processor.New, "q", h, processor.Options{})
		time.Sleep(time.Hour)
		proof.Same(t, h.Tasks(), 0, "tasks that were begun")
		must(t, proof.ErrOf(workloads.ResumePart(t.Context(), w.Operator(), part)))
		w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		p.End()
		q.End()
		h.Expect(t, tasks, tasks)
	})
}

// While the control account is dark nothing of a paused run is begun, as far as is known.
func TestAPauseHoldsWhileTheControlAccountIsDark(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		part := workloads.Part{Run: w.Run.String()}
		must(t, proof.ErrOf(workloads.PausePart(t.Context(), w.Operator(), part, "me")))
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(time.Minute)
		dark := w.Fault(azsim.Rule{Fault: azsim.Answer}, "QueryEntities", "GetEntity", "UpdateEntity", "MergeEntity", "InsertEntity", "Batch")
		tasks := w.PutHome(w.EverySegment()[:16], 2)
		time.Sleep(20 * time.Minute)
		windowHit(t, w.Left())
		dark.Remove()
		time.Sleep(3 * time.Minute)
		proof.Same(t, h.Tasks(), 0, "tasks that were begun")
		must(t, proof.ErrOf(workloads.ResumePart(t.Context(), w.Operator(), part)))
		w.Within(putOffMost+time.Minute, "all is done", func() bool { return h.Tasks() == tasks })
		s := p.End()
		h.Expect(t, tasks, tasks)
		proof.Same(t, s.Quarantined+s.Split, 0, s)
	})
}
