package pump

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// What the simulation has found, each as the smallest test that shows it.

// An account that is in trouble when a distributor begins may get its poison queue from
// nobody else for as long as that goes on: what is to be quarantined came back for ever.
func TestAMissingPoisonQueueIsMadeByWhoNeedsIt(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		poison := poisonQueue(w.cfg.Workload)
		if err := w.queue("accounta", poison).Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.put("accounta", "work-00", 3, 2)
		w.drain(HandlerFunc(func(context.Context, *Task) error { return Reject(errFlop) }), ProcessorOptions{})
		if n := w.count("accounta", poison); n != 3 {
			t.Errorf("%d messages in the poison queue, want 3", n)
		}
		if n := w.left(); n > 0 {
			t.Errorf("%d messages are left", n)
		}
		if w.logged("the poison queue was missing and has been made") == 0 {
			t.Error("nobody was told")
		}
	})
}

// A distributor that is there to replace others ended with an error when the
// control account was dark, as it began, for longer than control tries a request.
func TestAnElectedDistributorWaitsForTheControlAccountAtItsStart(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		dark := w.sim.Inject(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.FailBefore})
		s := w.startDistributor(w.distributor("d", &listSource{print: "a", n: 100}, DistributorOptions{Every: time.Hour}))
		time.Sleep(10 * time.Minute)
		dark.Remove()
		time.Sleep(time.Minute)
		if n := len(w.collect()); n != 100 {
			t.Errorf("%d tasks were distributed, want 100", n)
		}
		s.cancel()
		if err := s.wait(); err != nil {
			t.Error(err)
		}
	})
}

// To be told to stop is no error, also while the control account is dark (Distributor.Run).
func TestAnElectedDistributorToldToStopAtItsStartIsNoError(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.sim.Inject(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.FailBefore})
		s := w.startDistributor(w.distributor("d", &listSource{print: "a", n: 100}, DistributorOptions{Every: time.Hour}))
		time.Sleep(90 * time.Second)
		s.cancel()
		if err := s.wait(); err != nil {
			t.Error(err)
		}
	})
}
