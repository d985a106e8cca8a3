package processor

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/workload"
)

// isPaused reports whether an operator has paused the workload, as far as this process has seen.
func (r *run) isPaused() bool { return r.paused.Load() != nil }

// followPause stops starting tasks, or goes on, as the workload's row says; see "Pause" in
// docs/protocols.md. followMu is held.
func (r *run) followPause(w *workload.Workload) {
	was := r.paused.Load()
	now := w.Paused
	switch {
	case !now.Is() && was == nil, now.Is() && was != nil && *was == now:
	case !now.Is():
		r.paused.Store(nil)
		r.poller.Pause(false)
		r.Log.Info("the workload goes on", "paused_for", time.Since(r.pausedAt).Round(time.Millisecond))
	default:
		// The mark comes first: what a get brings from here on is put back where it arrives, and what
		// came before is already kept and found below.
		r.paused.Store(&now)
		if was != nil { // resumed and paused again between two looks
			return
		}
		r.pausedAt = time.Now()
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
func (r *run) stands() bool { return r.isPaused() && r.backlog.AtWork() == 0 }
