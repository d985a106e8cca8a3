package status

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/setup"
)

// HistorySpan is how far back [History] reaches.
const HistorySpan = sampling.Span

type (
	// HistoryPoint is what the workload was like in one minute.
	HistoryPoint = sampling.HistoryPoint
	// HistoryAccount is what one account was like.
	HistoryAccount = sampling.HistoryAccount
	// Requests counts requests of the queue and of the table service.
	Requests = sampling.Requests
)

// History gives what the workload was like in each minute later than after (the zero time: in all
// of the last six hours), in the order of time. The process that samples the queues writes them
// ([pump.Config].Sample), so a minute without such a process is missing. Rows that cannot be read
// are part of the error, beside the rows that can.
func History(ctx context.Context, cfg pump.Config, after time.Time) ([]HistoryPoint, error) {
	o, err := setup.Reach(cfg)
	if err != nil {
		return nil, err
	}
	return sampling.ReadHistory(ctx, o.Queues.Control, cfg.Workload, after)
}
