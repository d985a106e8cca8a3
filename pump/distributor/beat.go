package distributor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/send"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// runBeats is how many beats of a member pass between two of a run. Lost clients are noticed in
// minutes, and a thousand of them beat into one partition.
const runBeats = 3

// runBeat is how often this distributor beats in the row of its run.
func (d *Distributor) runBeat() time.Duration { return runBeats * d.times().Beat }

// times are those of a member, as they are now.
func (d *Distributor) times() *queues.Values { return d.fleet.Values() }

// beaten is an answered beat of a run: when it was sent, and the time between beats by which others
// judge. After a change that is the shorter of two, since either beat may have landed last.
type beaten struct {
	sent  time.Time
	every time.Duration
}

// errRunOver is that the run may not go on: an operator ended it, or another leader broke it.
var errRunOver = errors.New("the run was ended while it was distributed")

// keepBeating says, until the returned function is called, that this process is at work on the run.
// It ends the distribution when the run may not go on.
func (r *run) keepBeating(all context.Context) (finish func()) {
	if r.repairs {
		return func() {} // the run's maker is gone, or will see that it was sealed
	}
	ctx, cancel := context.WithCancel(all)
	name := r.id.String()
	var g sync.WaitGroup
	g.Go(func() {
		j := waits.Jitter(r.d.cfg.Instance)
		for n := uint64(0); waits.Wait(ctx, j.Around(r.d.runBeat(), "beat", name, n)); n++ {
			_ = r.beat(ctx)
		}
	})
	return func() {
		cancel()
		g.Wait()
	}
}

// beat says once that this process is at work on the run.
func (r *run) beat(ctx context.Context) error {
	every := r.d.runBeat()
	b := beaten{time.Now(), min(every, time.Duration(r.said.Swap(int64(every))))}
	if last := *r.beaten.Load(); b.every < last.every { // it may land, and never be answered
		r.beaten.Store(&beaten{last.sent, b.every})
	}
	err := r.runs.Beat(ctx, r.id, r.pulse(every))
	switch {
	case ctx.Err() != nil:
	case err == nil, errors.Is(err, pump.ErrNoRun) && r.putBack(ctx):
		r.beaten.Store(&b)
		return nil
	case errors.Is(err, pump.ErrRunState), errors.Is(err, pump.ErrNoRun):
		r.over.Store(true)
		r.end(fmt.Errorf("%w: %w", errRunOver, err))
	default:
		r.log.Debug("the run's row could not be beaten into; trying again", "error", err)
	}
	return err
}

// proven comes before each put and before its acknowledgement counts. It returns when the last
// answered beat is so recent that others do not take this process for gone. So a process that stood
// still for longer learns whether its run is over: what is put into such a run goes to quarantine.
func (r *run) proven(ctx context.Context) error {
	clock := r.d.cfg.Sim.Seeding.Clock()
	good := func() bool {
		b := r.beaten.Load()
		return clock.Since(b.sent) < closing.SilentBeats*b.every+closing.AbandonPressed
	}
	for n := uint64(0); !r.repairs && !good(); n++ {
		if r.asked.Do(ctx, r.beat) == nil {
			continue
		}
		j := waits.Jitter(r.d.cfg.Instance)
		waits.Wait(ctx, j.Around(r.d.runBeat()/8, "beat again", r.id.String(), n))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// pulse is what a beat says. A process that is not a member of the cluster has no other row for it.
func (r *run) pulse(every time.Duration) workload.Pulse {
	p := workload.Pulse{Every: every, Put: uint64(r.count.Acked.Load())}
	if s := r.d.running.Load(); s != nil && s.member.Load() == nil && r.leads == nil {
		p.Accounts = r.d.fleet.Names()
	}
	return p
}

// putBack makes a run's missing row again, and reports whether the row is there. Its account failed
// over, or the table was restored, to a time before the run. Without the row, messages of the run
// would go to quarantine as those of an unknown run. In a deleted workload putBack makes nothing.
func (r *run) putBack(ctx context.Context) bool {
	if _, err := send.Refresh(ctx, r.d.router.Current().Workload); workload.Lost(err) {
		return false
	}
	row := r.row
	row.State, row.Note, row.Ended = "", "", time.Time{}
	if err := r.runs.Create(ctx, row); err != nil {
		r.log.Error("the row of the run is gone, and cannot be made again", "error", err)
		return false
	}
	r.log.Error("the row of the run was gone, and is made again: its account failed over, " +
		"or the table was restored; tasks of the run that are in quarantine as those of an " +
		"unknown run can be redriven")
	return true
}

// rowLost is the note of a run whose row was gone when the next leader wanted to continue it.
const rowLost = "its row was gone when another process took it over: " +
	"the account failed over, or the table was restored; "

// What sends the source of such a run again.
const (
	nextSends = "another run reads the source again"
	nameSends = "use another name to send the source again"
)

// bringBack makes the row of such a run again, as a broken one, so that processors do its tasks.
// The run cannot be continued: no row tells its source any more (P2.3).
func (t *term) bringBack(ctx context.Context, id pump.RunID, mode string) error {
	runs, note := t.d.runs.By(t.won.Epoch), rowLost+nextSends
	if mode == closing.ModeNamed {
		note = rowLost + nameSends
	}
	t.d.cfg.Log.Error("a run cannot be continued", "run", id.String(), "note", note)
	err := runs.Create(ctx, workload.Run{
		ID: id, Workload: t.d.cfg.Workload, Mode: mode, Name: t.d.opts.Name,
		Instance: t.d.cfg.Instance, Beat: t.d.runBeat(),
	})
	if err != nil {
		return err
	}
	return runs.Break(ctx, id, note)
}

// sealedKept is how long a distributor that stands by looks whether the run that it sealed is still
// sealed.
const sealedKept = 10 * time.Minute

// sealedRun is what is kept of a distribution whose run is sealed: none of its buffers.
type sealedRun struct {
	of     *run
	counts []uint64
	at     time.Time
	closed bool // it was seen closed
}

// keepSealed seals the last run again if its row came back unsealed: no other process knows how
// many tasks the run has. It closes a closed run again, as the ledger may no longer know it.
func (d *Distributor) keepSealed(ctx context.Context) {
	last := d.sealed
	if last == nil || time.Since(last.at) > min(sealedKept, d.times().Retention/2) {
		d.sealed = nil
		return
	}
	r := last.of
	var run workload.Run
	err := waits.Within(ctx, func(ctx context.Context) (err error) {
		run, err = r.runs.Get(ctx, r.id)
		return err
	})
	switch gone := errors.Is(err, pump.ErrNoRun); {
	case err != nil && !gone, gone && !r.putBack(ctx):
		return
	case run.State == workload.RunClosed:
		last.closed = true
		return
	case run.State == workload.RunSealed && !last.closed:
		return
	case !gone && run.State != workload.RunOpen && run.State != workload.RunAbandoned &&
		run.State != workload.RunSealed:
		return // an operator or another leader has ended or broken it
	}
	if err = r.runs.Seal(ctx, r.id, last.counts); err == nil && last.closed {
		err = r.runs.Close(ctx, r.id)
	}
	if err != nil {
		r.log.Error("the row of the run came back as it was before the run's end, which "+
			"cannot be written again yet",
			"error", err)
		return
	}
	r.log.Error("the row of the run had come back as it was before the run's end, " +
		"and is as it was again: its account failed over, or the table was restored")
}
