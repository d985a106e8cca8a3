package processor

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
)

// hardGrace is for how long, after Grace, handlers may still return and then
// messages be released.
const hardGrace = 5 * time.Second

// stop is the shutdown, in this order. The poller has ended: no get is sent any
// more, and what those under way bring is released on arrival.
func (r *run) stop() {
	began := time.Now()
	// 0. The others may plan without this process from now on. Each of its segments is given up as
	// soon as none of its messages is in hand.
	r.Stopping.Store(true)
	if r.recorder != nil {
		waits.Signal(r.recorder.Committer.Wake) // results wait for no others any more
	}
	if r.results != nil {
		waits.Signal(r.results.Wake)
	}
	if m := r.Member.Load(); m != nil {
		m.Look()
	}
	// 1. Messages are not opened and tasks not started any more; what was not started is settled
	// without an attempt: released, or rewritten without the done tasks.
	r.lobby.close()
	for _, d := range r.backlog.Close() {
		r.withdraw(d)
	}
	r.rate.end() // after the backlog, or it would give one task after the other
	r.trials.Close()
	// 2. Handlers that run may finish, and everything is settled as usual.
	patience, cancel := r.grace.Begin(r.Wire, max(r.o.Grace, 0))
	calm := r.calm(patience)
	cancel()
	if !calm {
		// 3. Their contexts end, which does not count as an attempt either.
		r.Log.Warn("grace period is over; handlers are stopped", "grace", r.grace.Of(max(r.o.Grace, 0)))
		r.endWork(ErrStopped)
		calm = r.calmWithin(hardGrace)
	}
	if !calm {
		// 4. Handlers that ignore it are left behind, and their tasks put back.
		r.workers.giveUp()
		calm = r.calmWithin(hardGrace)
	}
	if !calm && (r.recorder != nil || r.results != nil) {
		// Results that cannot be recorded are not waited for any longer.
		if r.recorder != nil {
			r.recorder.GiveUp()
		}
		if r.results != nil {
			r.results.GiveUp()
			waits.Signal(r.results.Wake)
		}
		calm = r.calmWithin(hardGrace)
	}
	if !calm {
		r.Log.Error("stopped with messages that could not be put back; they are delivered " +
			"again when their leases end")
	}
	// 5. The processor gives up the segments that it still holds, and leaves the cluster.
	r.Tallies.Last(r.Wire)
	r.sampler.Last(r.Wire)
	r.Cfg.Sim.Seeding.Turn.Wait("leave")
	r.leaveCluster()
	// 6. No request is made any more. What waited for one ends.
	r.CutWire()
	r.Background.Wait()
	r.Lines.Flush()
	r.Log.Info("stopped", "after", time.Since(began).Round(time.Millisecond))
}

// calm waits until no get and no message is left, and reports whether that
// came before the context's end.
func (r *run) calm(ctx context.Context) bool {
	return r.Gets.Wait(ctx) && r.Messages.Wait(ctx)
}

func (r *run) calmWithin(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(r.Wire, d)
	defer cancel()
	return r.calm(ctx)
}

// Hurry shortens Options.Grace to most from now on, for a stop that comes or is under way: the
// machine has no more time. It may be called from any goroutine.
func (p *Processor) Hurry(most time.Duration) { p.grace.Hurry(most) }
