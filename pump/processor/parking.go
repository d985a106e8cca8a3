package processor

import (
	"slices"

	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/ownership"
)

// followParkings puts back what is in hand, and not started, of runs that were not paused in the
// view before: it is parked when it comes again. The queues are then read whether there is room for
// tasks or not, until what they bring is not of such a run: else a paused run would stand in the way
// of others for as long as handlers take for their tasks. followMu is held.
func (r *run) followParkings(w *workload.Workload) {
	was := r.parkings
	r.parkings = w.Parkings
	news := false
	for i := range w.Parkings {
		p := &w.Parkings[i]
		before := slices.IndexFunc(was, func(q workload.Parking) bool { return p.Same(&q) })
		if known := before >= 0; known && was[before].Holds() == p.Holds() || !known && !p.Holds() {
			continue
		}
		if !p.Holds() {
			r.Log.Info("what was paused comes home", "paused", p.String())
			continue
		}
		news = true
		r.Log.Info("tasks are parked until they are resumed", "paused", p.String(), "by", p.By, "since", p.Since)
	}
	if !news || phase(r.phase.Load()) < phaseWorking {
		return
	}
	// The assignment that has the mark is stored by now: what a get brings from here on is parked
	// where it arrives, and what came before is kept by now.
	for _, d := range r.keeper.All() {
		if w.Held(d.Header.Run) != nil {
			r.withdraw(d)
		}
	}
	r.poller.Sweep()
}

// park reports whether a message is of a run that is paused, and settles it if so: it goes into a
// parking queue as it is, without an attempt and in hand of no ledger. Where nothing may be parked,
// since the control account is dark, it goes back for a while.
func (r *run) park(d *message.Delivery) bool {
	if d.Whole != nil {
		return false
	}
	s := r.Assignment.Load()
	p := s.View.Workload.Held(d.Header.Run)
	if p == nil {
		return false
	}
	d.Waits = false
	if to := s.Parking(d.Queue, p.Number); to != nil {
		d.Whole = &message.Disposition{Forward: to, Parks: p.Number}
	} else {
		d.Whole = r.notNow(d, parkAgain)
	}
	return true
}

// parkAgain is about how long a message goes back that cannot be parked now.
const parkAgain = ownership.PassOnMost
