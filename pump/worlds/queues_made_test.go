package worlds

import (
	"errors"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/storage"
)

// A distributor makes the queues of an account that was dark at its start, although it puts nothing
// there: a later change of accounts may make each the home of messages.
func TestQueuesThatWereLateAreMadeWithoutAPut(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		late := w.Queue("accountb", "work-01")
		must(t, errors.Join(late.Drop(t.Context()), w.Queue("accountb", "work-poison").Drop(t.Context())))
		time.Sleep(time.Minute) // the name of a queue that is being deleted is taken
		dark := w.Sim.Inject(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.FailBefore})
		d := w.distributor("d", &testworld.ListSource{Print: "a", N: 0}, distributor.Options{Every: time.Hour})
		s := w.startDistributor(d)
		time.Sleep(time.Minute)
		if w.Logged("queues could not be made yet") == 0 {
			t.Error("it is not said that queues are late")
		}
		dark.Remove()
		time.Sleep(time.Minute)
		for _, name := range []string{"work-01", "work-poison"} {
			if _, err := w.Queue("accountb", name).Count(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.cancel()
		if err := s.wait(); err != nil {
			t.Error(err)
		}
	})
}

// A drain makes the queues that get the segments, and goes on if their account does not answer.
func TestADrainMakesTheQueuesThatGetSegments(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		missing := w.Queue("accountb", "work-01")
		must(t, missing.Drop(t.Context()))
		time.Sleep(time.Minute)
		w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "queue", Fault: azsim.HangBefore})
		began := time.Now()
		c, err := accounts.Drain(t.Context(), w.Operator(), "accounta")
		if took := time.Since(began); err != nil || !c.Changed || took > 30*time.Second {
			t.Errorf("%+v after %v: %v", c, took, err)
		}
		if _, err := missing.Count(t.Context()); storage.Is(err, storage.Missing) {
			t.Error("the queue was not made")
		}
		if w.Logged("it is not known whether every queue of an account is there") != 1 {
			t.Error("it is not said which account is in doubt")
		}
	})
}
