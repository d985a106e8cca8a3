package processor

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

const (
	// putOffLeast and putOffMost bound how long tasks of paused runs and keys are put back: half as
	// long as this process has seen the mark. A quarter more or less is drawn, so the most is five
	// minutes.
	putOffLeast = 4 * time.Second
	putOffMost  = 4 * time.Minute
)

// followParts puts back what is in hand and not started of newly paused runs and keys. The
// processor then reads the queues whether it has room for tasks or not, until they bring nothing
// more of such a run. Otherwise a paused run would stand in the way of others for as long as
// handlers take for their tasks. followMu is held.
func (r *run) followParts(w *workload.Workload) {
	was := *r.pausedParts.Load()
	now := make(workload.PausedParts, len(w.PausedParts))
	var news workload.PausedParts
	for i, p := range w.PausedParts {
		if known := was.Find(p); known != nil {
			p.Seen = known.Seen
		} else {
			p.Seen = time.Now()
			news = append(news, p)
			r.Log.Info("tasks are put back until they are resumed", "paused", p.String(), "by", p.By,
				"since", p.Since)
		}
		now[i] = p
	}
	// This comes first: what a get brings from here on is put back where it arrives, or when it is
	// opened, and what came before is already kept.
	r.pausedParts.Store(&now)
	for i := range was {
		if now.Find(was[i]) == nil {
			r.Log.Info("what was paused goes on", "resumed", was[i].String())
		}
	}
	if len(news) == 0 || phase(r.phase.Load()) < phaseWorking {
		return
	}
	for _, d := range r.keeper.All() {
		if news.Run(d.Header.Run) != nil || news.HasKeyOf(d.Header.Segment, w.Map.Segments) {
			r.withdraw(d)
		}
	}
	r.poller.Sweep()
}

// putOffQuickly puts a message of a paused run back where it arrives, by its header alone, and
// reports whether it did. The ledger is asked about a redriven message first: a copy of a done task
// must not outlive its name.
func (r *run) putOffQuickly(d *message.Delivery) bool {
	p := r.pausedParts.Load().Run(d.Header.Run)
	if p == nil || d.Whole != nil || d.Header.Generation > 0 {
		return false
	}
	d.Whole, d.Waits = r.putOff(d, p), false
	return true
}

// putOff puts a wholly paused message back, or into its home queue if it is in a foreign queue or
// one that drains: the message is not put again into a queue of another program, and a queue that
// drains is to become empty. A message on trial stays, since its attempt is to be taken back.
func (r *run) putOff(d *message.Delivery, p *workload.PausedPart) *message.Disposition {
	home := r.Assignment.Load().Stray(d.Queue, d.Header.Segment)
	_, wraps := d.Wrap(d.Header.Attempt) // else it would have another name there
	if home != nil && (wraps || d.Foreign == "") && !d.Trial {
		return &message.Disposition{Forward: home}
	}
	w := r.notNow(d, putOffFor(p))
	w.Paused = true
	return w
}

func putOffFor(p *workload.PausedPart) time.Duration {
	return min(max(time.Since(p.Seen)/2, putOffLeast), putOffMost)
}

// putOffTasks puts the paused tasks of an opened message off, and reports whether no task of it is
// left to start. The ledger has been asked, so copies of done tasks are not among them.
func (r *run) putOffTasks(d *message.Delivery) (all bool) {
	parts := *r.pausedParts.Load()
	ofRun := parts.Run(d.Header.Run) // a redriven task's
	if ofRun == nil && !parts.HasKeyOf(d.Header.Segment, r.Workload.Map.Segments) {
		return false
	}
	var paused []int
	fresh := []int{} // which are not all, as nil would be
	var mark *workload.PausedPart
	for k := range d.Starts() {
		i := d.At(k)
		switch p := parts.Key(d.Tasks[i].Key); {
		case ofRun != nil:
			mark = ofRun
		case p != nil:
			mark = p
		default:
			fresh = append(fresh, i)
			continue
		}
		paused = append(paused, i)
	}
	if len(paused) == 0 {
		return false
	}
	if r.recorder != nil {
		r.recorder.PutOff(d, paused)
	}
	if len(paused) == d.Count {
		d.Whole = r.putOff(d, mark)
		return true
	}
	delay := r.notNow(d, putOffFor(mark)).Delay
	for _, i := range paused {
		d.Wait(i, delay)
	}
	d.Fresh = fresh
	return len(fresh) == 0
}
