package processor

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// aside is what is not worked on for now: tasks of a workload, of runs or of keys that an operator
// has paused, and of runs that are ended.
type aside struct {
	r      *run
	paused atomic.Pointer[workload.Pause]
	// parts are the runs and keys that are paused by themselves, as the last view had them.
	parts atomic.Pointer[workload.PausedParts]

	// These are follow's, which is called with run.followMu held.
	pausedAt time.Time
	ended    []workload.EndedRun // as the last view had them
}

// follow takes what the workload's row says, as the last view has it.
func (a *aside) follow(w *workload.Workload) {
	a.followPause(w)
	a.followParts(w)
	a.followEnds(w.Ended)
}

// isPaused reports whether an operator has paused the workload, as far as this process has seen.
func (a *aside) isPaused() bool { return a.paused.Load() != nil }

// followPause stops starting tasks, or goes on, as the workload's row says; see "Pause" in
// docs/protocols.md.
func (a *aside) followPause(w *workload.Workload) {
	r := a.r
	was := a.paused.Load()
	now := w.Paused
	switch {
	case !now.Is() && was == nil, now.Is() && was != nil && *was == now:
	case !now.Is():
		a.paused.Store(nil)
		r.poller.Pause(false)
		r.Log.Info("the workload goes on", "paused_for", time.Since(a.pausedAt).Round(time.Millisecond))
	default:
		// The mark comes first: what a get brings from here on is put back where it arrives, and what
		// came before is already kept and found below.
		a.paused.Store(&now)
		if was != nil { // resumed and paused again between two looks
			return
		}
		a.pausedAt = time.Now()
		r.poller.Pause(true)
		r.rate.pause()
		for _, d := range r.keeper.All() {
			r.withdraw(d)
		}
		r.Log.Info("the workload is paused: what is begun is finished, and nothing more is started",
			"by", now.By, "since", now.Since)
	}
}

// stands reports whether nothing is started and no handler is at work.
func (a *aside) stands() bool { return a.isPaused() && a.r.backlog.AtWork() == 0 }

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
// handlers take for their tasks.
func (a *aside) followParts(w *workload.Workload) {
	r := a.r
	was := *a.parts.Load()
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
	a.parts.Store(&now)
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
func (a *aside) putOffQuickly(d *message.Delivery) bool {
	p := a.parts.Load().Run(d.Header.Run)
	if p == nil || d.Whole != nil || d.Header.Generation > 0 {
		return false
	}
	d.Whole, d.Waits = a.putOff(d, p), false
	return true
}

// putOff puts a wholly paused message back, or into its home queue if it is in a foreign queue or
// one that drains: the message is not put again into a queue of another program, and a queue that
// drains is to become empty. A message on trial stays, since its attempt is to be taken back.
func (a *aside) putOff(d *message.Delivery, p *workload.PausedPart) *message.Disposition {
	home := a.r.Assignment.Load().Stray(d.Queue, d.Header.Segment)
	_, wraps := d.Wrap(d.Header.Attempt) // else it would have another name there
	if home != nil && (wraps || d.Foreign == "") && !d.Trial {
		return &message.Disposition{Forward: home}
	}
	w := notNow(a.r.Jitter, d, putOffFor(p))
	w.Paused = true
	return w
}

func putOffFor(p *workload.PausedPart) time.Duration {
	return min(max(time.Since(p.Seen)/2, putOffLeast), putOffMost)
}

// putOffTasks puts the paused tasks of an opened message off, and reports whether no task of it is
// left to start. The ledger has been asked, so copies of done tasks are not among them.
func (a *aside) putOffTasks(d *message.Delivery) (all bool) {
	r := a.r
	parts := *a.parts.Load()
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
		d.Whole = a.putOff(d, mark)
		return true
	}
	delay := notNow(r.Jitter, d, putOffFor(mark)).Delay
	for _, i := range paused {
		d.Wait(i, delay)
	}
	d.Fresh = fresh
	return len(fresh) == 0
}

// followEnds reads the rows of newly ended runs again. It puts back what is in hand of these runs
// and not started: the run's end decides about it when it comes again. If such a run is dropped,
// the processor then reads the queues whether it has room for tasks or not, until they bring
// nothing more of such a run. Otherwise it would drop a run of millions of tasks no quicker than
// handlers take up tasks of other runs.
func (a *aside) followEnds(now []workload.EndedRun) {
	r := a.r
	was := a.ended
	a.ended = now
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
func (a *aside) dropQuickly(d *message.Delivery) bool {
	if d.Whole != nil || d.Waits || d.Foreign != "" ||
		!a.r.Runs.Stands(d.Header.Run, closing.Dropped) {
		return false
	}
	d.Whole = a.r.beginRun(a.r.Wire, d)
	return d.Whole != nil && d.Whole.Forget
}
