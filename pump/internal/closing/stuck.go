package closing

import (
	"context"
	"log/slog"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
)

// idleness finds out that a run is stuck: tasks are missing and no queue has a message that could
// still bring them. It never says that a run is complete. The service's count may be too high,
// never too low; but a message that is brought from one queue to another while they are counted is
// in neither, so they must count as empty twice, apart, and between and after that nothing may have
// been recorded.
type idleness struct {
	cfg    *pump.Config
	queues *queues.Set
	run    pump.RunID
	after  time.Duration

	settled uint64    // of the run, when it changed last
	changed time.Time // when that was; zero: judge was not called yet
	counted time.Time // when the queues were counted last
	empty   time.Time // since when every count was zero; zero: the last was not
	twice   bool      // and another count, later by after, was too
	told    logs.Limited
}

// countEvery is how often the queues are counted while no task is recorded: one request for each
// queue.
const countEvery = 10 * time.Second

// judge takes the result of a look at the ledger, and is a [*pump.StuckError] if the missing tasks
// will not come.
func (i *idleness) judge(ctx context.Context, lack []pump.SegmentLack, settled uint64) error {
	now := time.Now()
	if settled != i.settled || i.changed.IsZero() {
		i.settled, i.changed, i.twice = settled, now, false
		i.counted, i.empty = time.Time{}, time.Time{}
		return nil
	}
	if i.twice { // and this look at the ledger came after
		e := &pump.StuckError{Run: i.run, Lacking: lack}
		for _, l := range lack {
			e.Missing += l.Tasks
		}
		return e
	}
	if now.Sub(i.changed) < i.after || now.Sub(i.counted) < min(countEvery, i.after) {
		return nil
	}
	messages, err := i.queues.CountAll(ctx, i.cfg.Workload)
	i.counted = time.Now()
	switch {
	case err == nil && messages == 0 && i.empty.IsZero():
		i.empty = now
	case err == nil && messages == 0:
		i.twice = now.Sub(i.empty) >= i.after
	default:
		i.empty = time.Time{}
		i.tell(messages, err)
	}
	return nil
}

// tell says once a minute why nothing happens, as far as that can be seen.
func (i *idleness) tell(messages int64, err error) {
	what, last := "messages are left in the queues, hidden or waiting", slog.Any("messages", messages)
	if err != nil {
		what, last = "whether messages are left could not be learned", slog.Any("error", err)
	}
	i.told.Say(i.cfg.Log.Warn, "no task of the run was recorded lately; "+what,
		"run", i.run.String(), "for", time.Since(i.changed).Round(time.Second), last)
}
