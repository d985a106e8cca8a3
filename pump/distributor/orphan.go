package distributor

import (
	"context"

	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// A leader makes a run's row before it names the run in the election row (P1.1). A leader that
// dies, or loses the leadership, between the two leaves an open run without a task. No distributor
// continues that run, because no election row ever named it. The next leader ends it.

// orphanReads is how many of the newest runs a leader looks at for such ones: more leaders
// than that do not die in the same place without one that lives.
const orphanReads = 16

// neverBegun is the note of such a run.
const neverBegun = "its leader was lost before the run began; nothing of it was sent"

// orphans lists runs that look never begun. It must be read before this term begins its own run:
// once Begin is acknowledged, no process can have led after this term, so who made them cannot
// begin them any more. A leader whose own last term was the one before need not look.
func (t *term) orphans(ctx context.Context) []workload.Run {
	if t.d.led != 0 && t.won.Epoch == t.d.led+1 {
		return nil
	}
	runs, err := t.d.runs.List(ctx, orphanReads)
	if err != nil {
		t.d.cfg.Log.Debug("runs that never began could not all be looked for", "error", err)
		// Another leader looks again.
	}
	var open []workload.Run
	for _, run := range runs {
		if run.State == workload.RunOpen && run.Mode == closing.ModeEvery &&
			(t.won.Resume == nil || run.ID != t.won.Resume.Run) {
			open = append(open, run)
		}
	}
	return open
}

// bury ends runs that were never begun.
func (t *term) bury(ctx context.Context, orphans []workload.Run) {
	for _, run := range orphans {
		if err := t.d.runs.By(t.won.Epoch).Break(ctx, run.ID, neverBegun); err != nil {
			t.d.cfg.Log.Debug("a run that never began could not be ended", "run", run.ID.String(),
				"error", err)
			continue
		}
		t.d.cfg.Log.Info("a run that never began was ended", "run", run.ID.String(),
			"instance", run.Instance)
	}
}
