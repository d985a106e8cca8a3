package processor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// makeWorkload makes the workload as a distributor would, unless another process is first.
func (r *run) makeWorkload(ctx context.Context) error {
	spec := setup.SpecOf(r.Cfg)
	spec.Maker = setup.Maker(r.Cfg, func() (asked func()) { return func() {} })
	w, err := workload.Ensure(ctx, r.Queues.Control, spec)
	if err == nil {
		r.Workload = w
		r.Log.Info("the workload is there", "control", r.Cfg.Control, "queues", len(w.Map.Shards))
	}
	return err
}

// makeSlow is for how long a start waits for queues to be made, as a distribution does.
const makeSlow = 2 * time.Second

// makeQueues makes the workload's own queues, each time that such a processor starts: the process
// that made the workload may have been killed before it made them. Queues of an account that does
// not answer are made while the processor works.
func (r *run) makeQueues(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, makeSlow)
	defer cancel()
	all, soon := errgroup.WithContext(soon)
	var mu sync.Mutex
	var late []*queues.Queue
	for account, list := range r.ownQueues() {
		all.Go(func() error {
			list = append(list, r.Queues.Account(account).Poison)
			return queues.Each(soon, list, func(soon context.Context, _ int, q *queues.Queue) error {
				err := queues.Create(soon, q, r.Jitter, r.Log)
				if err != nil && soon.Err() != nil && ctx.Err() == nil {
					mu.Lock()
					defer mu.Unlock()
					late = append(late, q)
					return nil
				}
				return err
			})
		})
	}
	if err := all.Wait(); err != nil || len(late) == 0 {
		return err
	}
	r.makeLater(late)
	return nil
}

// ownQueues are the queues of the map that tasks are put into, by account.
func (r *run) ownQueues() map[string][]*queues.Queue {
	own := map[string][]*queues.Queue{}
	for _, s := range r.Workload.Map.Shards {
		if q := r.reach(s); q != nil && s.State == shardmap.Active {
			own[s.Account] = append(own[s.Account], q)
		}
	}
	return own
}

// makeLater goes on with queues that could not be made at once.
func (r *run) makeLater(late []*queues.Queue) {
	var names []string
	for _, q := range late {
		names = append(names, q.String())
		r.Background.Go(func() {
			if err := queues.Create(r.Wire, q, r.Jitter, r.Log); err != nil && r.Wire.Err() == nil {
				r.Log.Error("a queue could not be made; start a processor with "+
					"--make-workload again, or make it",
					"queue", q.String(), "error", err)
			}
		})
	}
	slices.Sort(names)
	r.Log.Warn("queues could not be made yet; the others are read meanwhile",
		"queues", strings.Join(names, " "))
}
