package quarantine

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// hintViewFor is how long owners are looked up in one view of the cluster. A hint to the owner of
// shortly before only costs a request.
const hintViewFor = 10 * time.Second

// redriveHints tell the owners of segments that something was put back into their queues (P8.2):
// these may have been idle for long, and are asked seldom.
type redriveHints struct {
	q      *Quarantine
	nudges *nudging.Sender

	busy chan struct{} // capacity 1: guards the fields below
	view *cluster.View // nil: it could not be read
	read time.Time
}

func (q *Quarantine) hints(ctx context.Context) *redriveHints {
	return &redriveHints{
		q: q, busy: make(chan struct{}, 1),
		nudges: nudging.NewSender(context.WithoutCancel(ctx), &q.of.Cfg.Config),
	}
}

// put says that something was put into a queue. It never fails: owners look by themselves, later.
func (h *redriveHints) put(ctx context.Context, queue *queues.Queue, segment uint32) {
	h.busy <- struct{}{}
	defer func() { <-h.busy }()
	if h.read.IsZero() || time.Since(h.read) >= hintViewFor {
		view, err := waits.Get(ctx, func(ctx context.Context) (*cluster.View, error) {
			return cluster.LoadView(ctx, h.q.of.Queues.Control, h.q.of.Cfg.Workload)
		})
		if h.view = view; err != nil {
			h.q.of.Cfg.Log.Debug("who owns the segments could not be read; owners are not "+
				"told that tasks come back", "error", err)
		}
		h.read = time.Now()
	}
	if h.view != nil {
		h.nudges.NudgeOwner(h.view, h.q.of.Cfg.Instance, queue.String(), segment)
	}
}
