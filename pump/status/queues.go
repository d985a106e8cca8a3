package status

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// uses gives how each account of the map and of the configuration is used, and which queues it has.
func (r *statusReader) uses() (uses []accounts.Use, queues map[string][]string) {
	queues = map[string][]string{}
	if r.view != nil {
		uses = accounts.Uses(&r.cfg.Config, r.view.Workload.Map)
		for _, s := range r.view.Workload.Map.Shards {
			queues[s.Account] = append(queues[s.Account], s.Queue)
		}
	} else {
		shards := setup.Shards(r.cfg.Config)
		uses = accounts.UsesOf(&r.cfg.Config, shards, make([]int, len(shards))) // of no map
		for _, s := range shards {
			queues[s.Account] = append(queues[s.Account], s.Queue)
		}
	}
	for _, qs := range queues {
		slices.Sort(qs)
	}
	return uses, queues
}

// readAccounts looks at all queues of the accounts of the map and the configuration. Each account
// has its own few goroutines, so a dark one delays no other.
func (r *statusReader) readAccounts(ctx context.Context) {
	uses, queues := r.uses()
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
	r.readLast(ctx)
}

// LastLook is what an account held when its queues were looked at last.
type LastLook struct {
	Messages uint64    `json:"messages"`
	Time     time.Time `json:"time"`
}

// readLast finds in the history what is known of accounts whose queues cannot be looked at now.
func (r *statusReader) readLast(ctx context.Context) {
	missed := func(a Account) bool {
		return a.Dark != "" || a.State != accounts.Unused && !a.Configured
	}
	if r.view == nil || !slices.ContainsFunc(r.accounts, missed) {
		return
	}
	ctx, cancel := half(ctx)
	defer cancel()
	points, err := sampling.ReadHistory(ctx, r.table, r.cfg.Workload, time.Time{})
	r.note("history", "the history", err)
	for _, p := range points {
		for _, was := range p.Accounts {
			i := slices.IndexFunc(r.accounts, func(a Account) bool {
				return a.Name == was.Name && missed(a)
			})
			if i >= 0 && was.Sampled {
				r.accounts[i].Last = &LastLook{Messages: was.Messages, Time: p.Time}
			}
		}
	}
}

func (r *statusReader) readAccount(ctx context.Context, a *Account, qs []string) {
	store, poison := r.queues.Account(a.Name).Store, workload.PoisonQueue(r.cfg.Workload)
	a.ByQueue = make([]Queue, len(qs))
	errs := make([]error, len(qs)+1)
	// If one queue does not answer, the account does not.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var g errgroup.Group
	g.SetLimit(queues.AtOnce)
	look := func(i int, read func() error) {
		g.Go(func() error {
			if errs[i] = read(); errs[i] != nil && failure.Whole(errs[i]) {
				cancel(queues.ErrNotAsked)
			}
			return nil
		})
	}
	for i, name := range qs {
		a.ByQueue[i].Queue = name
		look(i, func() error {
			return readQueue(ctx, store.Queue(name), &a.ByQueue[i], r.options.Timeout/3, r.asked)
		})
	}
	look(len(qs), func() error {
		r.requests.Add(1)
		n, err := store.Queue(poison).Count(ctx)
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
		case errors.Is(err, queues.ErrNotAsked) || errors.Is(err, context.Canceled):
			err = queues.ErrNotAsked
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

// readQueue asks for the count and, unless that is zero, which is proof that the
// queue is empty, peeks at its visible messages; see [Depth]. Before each request it calls asked.
func readQueue(
	ctx context.Context, queue storage.Queue, q *Queue, patience time.Duration,
	asked func(context.Context) error,
) error {
	left := patience // for both answers; waiting for asked may take longer
	ask := func(request func(context.Context) error) error {
		if err := asked(ctx); err != nil {
			return err
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		defer func() { left -= time.Since(began) }()
		return request(limited)
	}
	var n int64
	err := ask(func(ctx context.Context) (err error) {
		n, err = queue.Count(ctx)
		return err
	})
	if err != nil || n == 0 {
		return err
	}
	var peeked []storage.Message
	if err := ask(func(ctx context.Context) (err error) {
		peeked, err = queue.Peek(ctx, storage.MaxGet)
		return err
	}); err != nil {
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

// asked counts a request.
func (r *statusReader) asked(context.Context) error {
	r.requests.Add(1)
	return nil
}
