package pump

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/control"
)

// runBeats is how many beats of a member pass between two of a run. Whether a client is gone is
// judged in minutes, and a thousand of them beat into one partition.
const runBeats = 3

// runBeat is how often this distributor beats in the row of its run.
func (d *Distributor) runBeat() time.Duration { return runBeats * d.opts.Beat }

// errRunOver is that the run may not go on: an operator ended it, or somebody else broke it.
var errRunOver = errors.New("the run was ended while it was distributed")

// keepBeating says that this process is at work on the run until the returned function is called, and
// ends the distribution when the run may not go on.
func (r *distribution) keepBeating(all context.Context, end context.CancelCauseFunc) (finish func()) {
	if r.repairs {
		return func() {} // whoever made the run is gone, or will see that it was sealed
	}
	ctx, cancel := context.WithCancel(all)
	every, name := r.d.runBeat(), r.id.String()
	var g sync.WaitGroup
	g.Go(func() {
		j := jitter(r.d.cfg.Instance)
		for n := uint64(0); waitFor(ctx, j.around(every, "beat", name, n)); n++ {
			err := r.runs.Beat(ctx, r.id, r.pulse(every))
			switch {
			case ctx.Err() != nil || err == nil:
			case errors.Is(err, control.ErrRunState), errors.Is(err, control.ErrNoRun):
				r.over.Store(true)
				end(fmt.Errorf("%w: %w", errRunOver, err))
			default:
				r.log.Debug("the run's row could not be beaten into; trying again", "error", err)
			}
		}
	})
	return func() {
		cancel()
		g.Wait()
	}
}

// pulse is what a beat says. A guest of the cluster has no other row to say it in.
func (r *distribution) pulse(every time.Duration) control.Pulse {
	p := control.Pulse{Every: every, Put: uint64(r.count.acked.Load())}
	if s := r.d.running.Load(); s != nil && s.guest() {
		p.Accounts = r.d.fleet.names
	}
	return p
}
