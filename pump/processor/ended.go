package processor

import (
	"slices"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// followEnds reads the rows of newly ended runs again. It puts back what is in hand of these runs
// and not started: the run's end decides about it when it comes again. If such a run is dropped,
// the processor then reads the queues whether it has room for tasks or not, until they bring
// nothing more of such a run. Otherwise it would drop a run of millions of tasks no quicker than
// handlers take up tasks of other runs. followMu is held.
func (r *run) followEnds(now []workload.EndedRun) {
	was := r.ended
	r.ended = now
	if phase(r.phase.Load()) < phaseWorking { // no message is in hand, and no run's row was read
		return
	}
	var news []pump.RunID
	for _, e := range now {
		if !slices.Contains(was, e) {
			news = append(news, e.Run)
		}
	}
	if len(news) == 0 {
		return
	}
	r.Runs.Forget(news)
	if len(news) == workload.KeptEnded { // a script ended so many and perhaps more since the last look
		r.Runs.ForgetAll()
	}
	for _, d := range r.keeper.All() {
		if slices.Contains(news, d.Header.Run) {
			r.withdraw(d)
		}
	}
	r.Background.Go(func() {
		dropped := false
		for _, id := range news { // first, or what comes would wait for its row where tasks do
			dropped = r.Runs.Look(r.Wire, id) == closing.Dropped || dropped
		}
		if dropped {
			r.poller.Sweep()
		}
	})
}

// dropQuickly settles a message of a run that is known to be dropped where it arrives, by its
// header alone, and reports whether it did.
func (r *run) dropQuickly(d *message.Delivery) bool {
	if d.Whole != nil || d.Waits || d.Foreign != "" || !r.Runs.Stands(d.Header.Run, closing.Dropped) {
		return false
	}
	d.Whole = r.beginRun(r.Wire, d)
	return d.Whole != nil && d.Whole.Forget
}
