package worlds

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// simAbandoned is within which time a run is abandoned whose client has died: that long it may be
// silent, observed by a process of rank 0 that may be another one meanwhile.
func (p *simPlan) simAbandoned() time.Duration {
	return closing.SilentBeats*p.beat + closing.AbandonAfter + simClosing
}

// runsEnd waits, in worlds of many runs in mode once, until every run ends (A1): until all that are
// done are closed, also those with tasks in quarantine, at the pace at which they came and two
// minutes; until none is open whose client has died; and until ledgers have let go what is closed.
func (w *simWorld) runsEnd(ctx context.Context) bool {
	if w.plan.runs == 0 || w.plan.delivery != pump.Once {
		return true
	}
	for began := time.Now(); ; {
		waits.Wait(ctx, w.looks("runs end", int(w.now()/time.Second)))
		left, open, err := w.liveRuns(ctx)
		kept := 0
		if err == nil && left+open == 0 {
			kept, err = w.keptRuns(ctx)
		}
		took := time.Since(began)
		switch {
		case err != nil:
			w.wrongf("what lives of the runs cannot be read: %v", err)
		case left+open+kept == 0:
			return true
		case left > 0 && took > simClosing:
			w.wrongf("stuck: %d runs are done and not closed %v after the last fault", left, simClosing)
		case took > w.plan.simAbandoned()+simClosing:
			w.wrongf("stuck: %v after the last fault %d runs are open without a client and %d closed ones are kept",
				took, open, kept)
		default:
			continue
		}
		return false
	}
}

// liveRuns counts the runs that are done and not closed, and those that are open and nobody
// continues.
func (w *simWorld) liveRuns(ctx context.Context) (left, open int, err error) {
	runs, err := w.runs(ctx)
	for _, r := range runs {
		switch {
		case r.State == workload.RunSealed:
			left++
		case r.State == workload.RunOpen && r.Mode != closing.ModeEvery:
			open++
		}
	}
	return left, open, err
}

// keptRuns is how many closed runs the segment that is nearest to a bound has among its live ones.
func (w *simWorld) keptRuns(ctx context.Context) (int, error) {
	runs, err := w.runs(ctx)
	if err != nil {
		return 0, err
	}
	sums, err := ledger.ReadSums(ctx, w.openTable(), "work", w.plan.segments)
	if err != nil {
		return 0, err
	}
	others := 0
	for _, r := range runs {
		if _, is := sums.Runs[r.ID]; is && r.State != workload.RunClosed {
			others++
		}
	}
	return max(0, sums.Use.Runs-others), nil
}
