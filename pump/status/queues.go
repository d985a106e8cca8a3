package status

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/storage"
)

// readAccounts looks at all queues of the map's and the configuration's accounts.
// Each account has its own few goroutines, so a dark one delays no other.
func (r *statusReader) readAccounts(ctx context.Context) {
	queues := map[string][]string{}
	var uses []accounts.Use
	if r.view != nil {
		uses = accounts.Uses(r.cfg, r.view.Workload.Map)
		for _, s := range r.view.Workload.Map.Shards {
			queues[s.Account] = append(queues[s.Account], s.Queue)
		}
	} else {
		shards := settings.Shards(*r.cfg)
		uses = accounts.UsesOf(r.cfg, shards, make([]int, len(shards))) // of a map that there is not
		for _, s := range shards {
			queues[s.Account] = append(queues[s.Account], s.Queue)
		}
	}
	r.accounts = make([]Account, len(uses))
	var wg sync.WaitGroup
	for i, use := range uses {
		a := &r.accounts[i]
		a.Use, a.Limit, a.ByQueue = use, r.cfg.Budget.Account, []Queue{}
		if use.Configured && use.State != accounts.Unused {
			wg.Go(func() { r.readAccount(ctx, a, queues[use.Name]) })
		}
	}
	wg.Wait()
}

func (r *statusReader) readAccount(ctx context.Context, a *Account, qs []string) {
	slices.Sort(qs)
	store, poison := r.queues.Account(a.Name).Store, settings.PoisonQueue(r.cfg.Workload)
	a.ByQueue = make([]Queue, len(qs))
	errs := make([]error, len(qs)+1)
	// One queue without an answer is enough to know that the account gives none.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var g errgroup.Group
	g.SetLimit(queues.AtOnce)
	look := func(i int, read func() error) {
		g.Go(func() error {
			if errs[i] = read(); errs[i] != nil && hopeless(errs[i]) {
				cancel(errNotAsked)
			}
			return nil
		})
	}
	for i, name := range qs {
		a.ByQueue[i].Queue = name
		look(i, func() error { return r.readQueue(ctx, store.Queue(name), &a.ByQueue[i]) })
	}
	look(len(qs), func() error {
		n, err := r.count(ctx, store.Queue(poison))
		if err == nil || queues.NotThere(err) { // nothing was ever quarantined
			a.Poison, err = &n, nil
		}
		return err
	})
	_ = g.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
			continue
		case storage.Is(err, storage.Canceled) || errors.Is(err, context.Canceled):
			err = errNotAsked
		case r.view == nil && queues.NotThere(err): // which queues there should be is not known
		case a.Dark == "":
			a.Dark = why(err)
			r.problem("account %s, queue %s: %s", a.Name, append(qs, poison)[i], a.Dark)
		}
		if i < len(qs) {
			a.ByQueue[i].Dark = why(err)
		}
	}
}

var errNotAsked = errors.New("not asked, as another queue of the account did not answer")

// hopeless errors are those that the account's other queues will give too.
func hopeless(err error) bool {
	return storage.Is(err, storage.MaybeDone) || storage.Is(err, storage.Auth)
}

// readQueue asks for the count and, unless that is zero, which is proof that the
// queue is empty, peeks at its visible messages; see [Depth].
func (r *statusReader) readQueue(ctx context.Context, queue storage.Queue, q *Queue) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout/3)
	defer cancel()
	n, err := r.count(ctx, queue)
	if err != nil || n == 0 {
		return err
	}
	r.requests.Add(1)
	peeked, err := queue.Peek(ctx, storage.MaxGet)
	if err != nil {
		return err
	}
	// What came between the two requests makes the count too low.
	visible := int64(len(peeked))
	q.Messages = max(n, visible)
	q.Visible, q.InFlight, q.Bounds = visible, q.Messages-visible, visible == storage.MaxGet
	for _, m := range peeked {
		if q.oldest.IsZero() || m.Inserted.Before(q.oldest) {
			q.oldest = m.Inserted
		}
	}
	return nil
}

func (r *statusReader) count(ctx context.Context, queue storage.Queue) (int64, error) {
	r.requests.Add(1)
	return queue.Count(ctx)
}
