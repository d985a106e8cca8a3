package processor

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// P4.2, window 14: a suspect whose trial begins while a renewal is under way that finds out
// that its message is lost is not tried, and its trial is over. It went on for ever, and no
// other that has to be alone was tried any more.
func TestP42ATrialIsOverThatFindsItsMessageLostBeforeItIsMarked(t *testing.T) {
	for company, attempts := range map[string]uint32{"alone in the process": 5, "alone on trial": 4} {
		t.Run(company, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				other := slices.IndexFunc(w.EverySegment(), func(n uint32) bool {
					_, of := w.Home(testworld.SomeSegment)
					_, queue := w.Home(n)
					return queue != of
				})
				w.PutSuspects(testworld.SomeSegment, 1, attempts)
				w.PutSuspects(w.EverySegment()[other], 1, attempts)
				tried, goOn := make(chan struct{}, 100), make(chan struct{})
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error {
					tried <- struct{}{}
					select {
					case <-goOn:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}}
				p := testworld.Begun(w, New, "p", h, Options{Visibility: 30 * time.Second, Concurrency: 8, Grace: -1})
				<-tried
				r := p.Of.running.Load()
				var next *message.Delivery
				w.Within(5*time.Second, "the other waits", func() bool {
					if waiting := r.trials.Waiting(); len(waiting) > 0 {
						next = waiting[0]
					}
					return next != nil
				})
				if next == nil {
					t.FailNow()
				}
				// As a renewal does whose answer is lost.
				receipt, err := r.keeper.Take(t.Context(), next)
				must(t, err)
				r.keeper.GiveBack(next, false)
				must(t, proof.ErrOf(w.Queue("accounta", next.Queue.Name).Renew(t.Context(), receipt, 30*time.Second)))
				slow := w.Fault(azsim.Rule{Fault: azsim.DelayBefore, Delay: 2 * time.Second, Object: next.Queue.Name}, "UpdateMessage")
				w.Within(20*time.Second, "it is being renewed", func() bool { return slow.Hits() == 1 })
				close(goOn) // its trial begins
				w.Within(20*time.Second, "it is not marked", func() bool { return w.Logged("could not be marked") == 1 })
				slow.Remove()
				w.Within(2*time.Minute, "it is back and is tried", func() bool { return w.Left() == 0 })
				s := p.End()
				h.Expect(t, 2, 2)
				if s.Handled != 2 || s.Quarantined != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}
