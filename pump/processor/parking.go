package processor

import (
	"slices"

	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/ownership"
	"github.com/queuepump/queuepump/pump/processor/internal/trial"
)

// followParkings puts back what is in hand, and not started, of runs and keys that were not paused
// in the view before: it is parked when it comes again. The processor then reads the queues whether
// it has room for tasks or not, until they bring nothing more of such a run. Otherwise a paused run
// would stand in the way of others for as long as handlers take for their tasks. followMu is held.
func (r *run) followParkings(w *workload.Workload) {
	was := r.parkings
	r.parkings = w.Parkings
	var news workload.Workload // of which only the marks are there
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
		news.Parkings = append(news.Parkings, *p)
		r.Log.Info("tasks are parked until they are resumed", "paused", p.String(), "by", p.By,
			"since", p.Since)
	}
	if len(news.Parkings) == 0 || phase(r.phase.Load()) < phaseWorking {
		return
	}
	news.Map = w.Map
	// The assignment that has the marks is stored by now: what a get brings from here on is parked
	// where it arrives, or when it is opened, and what came before is kept by now.
	for _, d := range r.keeper.All() {
		if news.Held(d.Header.Run) != nil || news.HoldsKeys(d.Header.Segment) {
			r.withdraw(d)
		}
	}
	r.poller.Sweep()
}

// park reports whether a message is of a run that is paused, or another program's with a key that
// is, and settles it if so. The message goes into a parking queue as it is, without an attempt and
// in hand of no ledger. Where nothing may be parked, since the control account is dark, it goes
// back for a while.
func (r *run) park(d *message.Delivery) bool {
	s := r.Assignment.Load()
	if d.Whole != nil || len(s.View.Workload.Parkings) == 0 {
		return false
	}
	p := s.View.Workload.Held(d.Header.Run)
	if d.Foreign != "" {
		p = s.View.Workload.HeldKey(d.Key)
	}
	if p == nil {
		return false
	}
	d.Whole, d.Waits = r.parkWhole(s, d, p), false
	return true
}

func (r *run) parkWhole(
	s *ownership.Assignment, d *message.Delivery, p *workload.Parking,
) *message.Disposition {
	to := s.Parking(d.Queue, p.Number)
	if _, wraps := d.Wrap(0); to == nil || d.Foreign != "" && !wraps {
		// Put as it is, the text of another program would get another name, by which it is not known
		// as done.
		return r.notNow(d, parkAgain)
	}
	return &message.Disposition{Forward: to, Parks: p.Number}
}

// parkTasks takes the tasks whose keys are paused out of an opened message. They go into parking
// queues, and the others into a message of their own, which is as new. Tasks that cannot be parked
// then are put anew where they were, for a while.
func (r *run) parkTasks(d *message.Delivery) *message.Disposition {
	s := r.Assignment.Load()
	w := s.View.Workload
	if len(w.Parkings) == 0 || !w.HoldsKeys(d.Header.Segment) {
		return nil
	}
	of := map[*workload.Parking][]int{}
	var rest []int
	for i := range d.Tasks {
		if p := w.HeldKey(d.Tasks[i].Key); p != nil {
			of[p] = append(of[p], i)
		} else {
			rest = append(rest, i)
		}
	}
	var pieces []message.Copy
	fits := true
	for i := range w.Parkings {
		p := &w.Parkings[i]
		if len(of[p]) == 0 {
			continue
		}
		if len(of[p]) == d.Count {
			return r.parkWhole(s, d, p)
		}
		to := s.Parking(d.Queue, p.Number)
		if to == nil {
			return r.notNow(d, parkAgain)
		}
		like := message.Copy{Queue: to, Forward: true, Segment: d.Header.Segment, Parks: p.Number}
		if pieces, fits = trial.Cut(d, pieces, of[p], like); !fits {
			return r.notNow(d, parkAgain)
		}
	}
	if len(pieces) == 0 {
		return nil
	}
	if len(rest) > 0 {
		pieces, fits = trial.Cut(d, pieces, rest, message.Copy{Queue: d.Queue})
	}
	if !fits {
		return r.notNow(d, parkAgain)
	}
	return &message.Disposition{Pieces: pieces}
}

// parkAgain is about how long a message goes back that cannot be parked now.
const parkAgain = ownership.PassOnMost
