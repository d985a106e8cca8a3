package distributor

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// A leader makes a run's row before it names the run in the election row (P1.1). A leader that
// dies, or loses the leadership, between the two leaves an open run. If no leader has led since,
// the next one begins that run: it cannot know whether the election row named the run and then came
// back older. An open run of an earlier term is an orphan: the leaders after that term did not
// learn of it from the election row. The next leader ends it.

// newestReads is how many of the newest runs' epochs are read if the election row is gone.
const newestReads = 16

// neverBegun is the note of an orphan if no beat says that anything of it was put.
const neverBegun = "no later leader learned of it, so its own was probably lost before it began; " +
	"no beat says that anything of it was sent"

// heldRun is how far the last run of this process is known to have come, if the process did not end
// it. All before a checkpoint is acknowledged, with any leader.
type heldRun struct {
	run        pump.RunID
	epoch      uint64
	checkpoint []byte
}

// holds notes how far a run has come.
func (t *term) holds(r *run, checkpoint []byte) {
	t.d.held = heldRun{run: r.id, epoch: t.won.Epoch, checkpoint: bytes.Clone(checkpoint)}
}

// left tells the election what is known of former terms besides the election row, which names an
// epoch. It notes the orphans. It must come before a term of this process begins its own run: once
// Begin is acknowledged, no process can have led after this term, so the process that made orphans
// cannot begin them any more. A leader that also had the term before need not look.
func (d *Distributor) left(ctx context.Context, epoch uint64) (l election.Left, err error) {
	d.orphans = nil
	if d.led != 0 && epoch == d.led && d.held.run.IsZero() {
		return l, nil
	}
	live, err := d.runs.Live(ctx)
	if err != nil {
		return l, err
	}
	for _, run := range live {
		open := run.State == workload.RunOpen || run.State == workload.RunAbandoned
		if run.Err != nil || !closing.Elected(run.Mode) {
			continue
		}
		l.Epoch, l.Made = max(l.Epoch, run.Epoch), l.Made || run.Mode == closing.ModeCron
		switch {
		case open && run.Epoch > 0 && run.Epoch >= max(epoch, l.RunEpoch):
			l.Run, l.RunEpoch = run.ID, run.Epoch
		case run.State == workload.RunOpen && run.Epoch < max(epoch, 1):
			d.orphans = append(d.orphans, run)
		}
	}
	if held := &d.held; !l.Run.IsZero() && l.Run == held.run {
		l.Held, l.Checkpoint = l.RunEpoch == held.epoch, held.checkpoint
	}
	if epoch > 0 {
		l.Made = false // the election row tells
		return l, nil
	}
	runs, err := d.runs.List(ctx, newestReads) // those that are done with too
	for _, run := range runs {
		if closing.Elected(run.Mode) { // the others have elections of their own, or none
			l.Epoch, l.Made = max(l.Epoch, run.Epoch), l.Made || run.Mode == closing.ModeCron
		}
	}
	if errors.Is(err, row.ErrCorrupt) {
		err = nil
	}
	return l, err
}

// bury ends orphans, but not the run that this term begins.
func (t *term) bury(ctx context.Context, own pump.RunID) {
	for _, run := range t.d.orphans {
		if run.ID == own || t.won.Resume != nil && run.ID == t.won.Resume.Run {
			continue
		}
		log, note := t.d.cfg.Log.With("run", run.ID.String(), "instance", run.Instance), neverBegun
		if run.Put > 0 {
			note = fmt.Sprintf("no later leader learned of it, though %d tasks or more were put: the "+
				"election row was gone, or came back as it was before", run.Put)
		}
		switch err := t.d.runs.By(t.won.Epoch).Break(ctx, run.ID, note); {
		case err != nil:
			log.Debug("a run that no leader continues could not be ended", "error", err)
		case run.Put > 0:
			log.Error("a run is broken", "note", note)
		default:
			log.Info("a run that never began was ended")
		}
	}
}

// refuse ends a run that cannot be continued. A new run may begin only when the row says so:
// otherwise a later leader would take the old run up again.
func (t *term) refuse(ctx context.Context, r *run, why error) error {
	note := noteOf(r, why.Error())
	r.log.Error("a run cannot be continued", "note", note)
	if err := r.runs.Break(ctx, r.id, note); err != nil {
		return err
	}
	*t.last, _ = t.d.report(r, why)
	return nil
}
