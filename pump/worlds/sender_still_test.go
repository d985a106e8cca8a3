package worlds

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// A sender stood still until its run was over. What is sent then is not acknowledged into that run:
// the send fails, and the next one is of another run. While the run is only abandoned it goes on.
func TestASenderThatStoodStillAcknowledgesNothingIntoARunThatIsOver(t *testing.T) {
	proof.Only(t)
	for name, c := range map[string]struct {
		still time.Duration
		over  bool
	}{"until it is over": {90 * time.Minute, true}, "until it is abandoned": {20 * time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				h := &testworld.Seen{}
				p := w.join("p", h, processor.Options{})
				w.Settled(1)
				s := w.sender(distributor.SenderOptions{})
				must(t, s.Send(t.Context(), newTask("before")))
				first := w.newest()
				beats := w.Fault(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.HangBefore})
				time.Sleep(c.still)
				if state := w.RunRow(first).State; c.over != (state == workload.RunEnded) || !c.over && state != workload.RunAbandoned {
					t.Errorf("after %v it is %s", c.still, state)
				}
				beats.Remove()
				sent := 1
				err := s.Send(t.Context(), newTask("after"))
				if (err != nil) != c.over {
					t.Errorf("the first send: %v", err)
				}
				if err == nil {
					sent++
				} else if err = s.Send(t.Context(), newTask("again")); err != nil {
					t.Error(err)
				} else {
					sent++
				}
				time.Sleep(time.Minute)
				if n := h.Tasks(); n != sent || len(w.Poisoned("accounta")) > 0 {
					t.Errorf("%d of %d acknowledged tasks are done, %d are in quarantine", n, sent, len(w.Poisoned("accounta")))
				}
				if c.over == (w.newest() == first) {
					t.Errorf("the run is %v, and was %v", w.newest(), first)
				}
				if _, err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				p.End()
			})
		})
	}
}
