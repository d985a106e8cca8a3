package quarantine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// Lease is how long messages are taken for. Listing 50,000 takes about a minute; a message whose
	// lease ends is visible again by itself.
	Lease = 5 * time.Minute
	// quarantineMargin is what must be left of the lease when a message is about to be
	// settled: two requests of ten seconds.
	quarantineMargin = 30 * time.Second
	// quarantineTries is how often a request is made.
	quarantineTries = 4
	// putBackWithin bounds how long messages are put back after the context's end.
	putBackWithin = 15 * time.Second
	// putBackAtOnce is how many messages are put back at the same time.
	putBackAtOnce = 32
)

// scanVerdict is a visit's verdict on a message, and on those to come.
type scanVerdict uint8

const (
	scanKeep   scanVerdict = 0 // it is put back
	scanGone   scanVerdict = 1 // it was settled
	scanEnough scanVerdict = 2 // and nothing more is visited
)

// visitor visits messages that were taken together, and gives a verdict for each.
type visitor func(ts []*taken) []scanVerdict

// oneByOne visits messages in their order, until one was enough.
func oneByOne(visit func(*taken) scanVerdict) visitor {
	return func(ts []*taken) []scanVerdict {
		verdicts := make([]scanVerdict, len(ts))
		for i, t := range ts {
			if verdicts[i] = visit(t); verdicts[i]&scanEnough != 0 {
				break
			}
		}
		return verdicts
	}
}

// together visits messages at the same time.
func together(visit func(*taken) scanVerdict) visitor {
	return func(ts []*taken) []scanVerdict {
		verdicts := make([]scanVerdict, len(ts))
		var g sync.WaitGroup
		for i, t := range ts {
			g.Go(func() { verdicts[i] = visit(t) })
		}
		g.Wait()
		return verdicts
	}
}

// taken is a message that a scan has taken.
type taken struct {
	message *Message
	account *queues.Account
	receipt storage.Receipt
	until   time.Time // on the local clock: no other process gets it before
}

// sure reports whether no other process can get the message while it is settled.
func (t *taken) sure() bool { return time.Until(t.until) > quarantineMargin }

// scan visits the messages that a filter means, and puts back what is not settled. It
// does not visit messages that were put into quarantine after it began: a task that is
// redriven and fails again at once would be redriven for ever. At most so many are taken
// at once.
func (q *Quarantine) scan(ctx context.Context, f Filter, atOnce int, visit visitor) error {
	if err := q.readCauses(ctx); err != nil {
		return err
	}
	starts := q.starts(ctx)
	var errs []error
	for i, name := range q.accounts {
		a := q.of.Queues.Account(name)
		switch s := starts[i]; {
		case s.err != nil:
			errs = append(errs, fmt.Errorf("quarantine of account %s: %w", name, s.err))
		case s.empty:
		default:
			enough, err := q.scanAccount(ctx, a, s.at, f, atOnce, visit)
			if err != nil {
				errs = append(errs, fmt.Errorf("quarantine of account %s: %w", name, err))
			}
			if enough {
				return errors.Join(errs...)
			}
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	for _, s := range q.of.Workload.Map.Shards {
		if q.of.Queues.Account(s.Account) == nil && !slices.ContainsFunc(errs, func(e error) bool {
			c, ok := errors.AsType[*pump.ConfigError](e)
			return ok && c.Field == "accounts"
		}) {
			_, err := q.of.Queues.Queue(s.Account, s.Queue)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// scanStart is the beginning of a scan of one account, by its own clock.
type scanStart struct {
	at    time.Time
	empty bool
	err   error
}

// starts asks all accounts, before anything is changed, whether there is something in
// quarantine, and what time it is there. The answer to a get says both.
func (q *Quarantine) starts(ctx context.Context) []scanStart {
	out := make([]scanStart, len(q.accounts))
	_ = queues.Each(ctx, q.accounts, func(ctx context.Context, i int, name string) error {
		s := &out[i]
		poison := q.of.Queues.Account(name).Poison
		const short = 10 * time.Second
		msgs, _, err := q.take(ctx, poison, 1, short)
		switch {
		case err != nil:
			s.err = err
		case len(msgs) == 0:
			s.empty = true
		default:
			s.at = msgs[0].NextVisible.Add(-short)
			s.err = q.trying(ctx, poison, "put back", msgs[0].ID, func(ctx context.Context) error {
				return poison.Release(ctx, msgs[0].Receipt, 0)
			})
			if storage.Is(s.err, storage.Gone) { // it comes back by itself
				s.err = nil
			}
		}
		return nil
	})
	return out
}

// take gets messages, trying again: each try that is not answered may hide some.
func (q *Quarantine) take(
	ctx context.Context, s *queues.Queue, limit int, lease time.Duration,
) (msgs []storage.Message, sent time.Time, err error) {
	err = q.trying(ctx, s, "get", "", func(ctx context.Context) (err error) {
		msgs, sent, err = s.Get(ctx, context.WithoutCancel(ctx), limit, lease)
		if storage.Ambiguous(err) && !storage.Is(err, storage.Throttled) {
			q.of.Cfg.Log.Warn("a request was not answered; up to 32 messages may be hidden for a while",
				"queue", s.String(), "for", lease, "error", err)
		}
		return err
	})
	if queues.NotThere(err) { // its tasks were never quarantined
		return nil, sent, nil
	}
	return msgs, sent, err
}

// trying makes a request until it is answered, a few times.
func (q *Quarantine) trying(
	ctx context.Context, s *queues.Queue, operation, object string, f func(context.Context) error,
) (err error) {
	for try := range uint64(quarantineTries) {
		if err = f(ctx); !again(err) || !q.pauseAfter(ctx, err, operation, s.String()+object, try) {
			return err
		}
	}
	return err
}

// again reports whether a request is made again after err, which may be nil.
func again(err error) bool {
	return err != nil &&
		failure.Decide(failure.Quarantine, err, failure.Command).Do == failure.Wait
}

// pauseAfter waits before a request that failed is made again; false: ctx has ended.
func (q *Quarantine) pauseAfter(
	ctx context.Context, err error, operation, object string, try uint64,
) bool {
	wait := waits.Jitter(q.of.Cfg.Instance).Full(time.Second, 5*time.Second, operation, object, try)
	if e, ok := queues.AsError(err); ok {
		wait += e.RetryAfter
	}
	return waits.Wait(ctx, wait)
}

// scanAccount visits the messages of one account.
func (q *Quarantine) scanAccount(
	ctx context.Context, a *queues.Account, start time.Time, f Filter, atOnce int, visit visitor,
) (enough bool, err error) {
	var back []storage.Receipt
	seen := map[string]bool{}
	defer func() {
		if e := q.putBack(ctx, a, back); err == nil {
			err = e
		}
	}()
	for !enough && ctx.Err() == nil {
		msgs, sent, err := q.take(ctx, a.Poison, atOnce, Lease)
		if err != nil {
			return false, err
		}
		news := false
		var meant []*taken
		for i := range msgs {
			m := &msgs[i]
			t := &taken{account: a, receipt: m.Receipt, until: sent.Add(Lease)}
			if !seen[m.ID] {
				seen[m.ID], news = true, true
				if ctx.Err() == nil && !m.Inserted.After(start) {
					if t.message = q.judge(ctx, a.Name, m, &f); t.message.Matching > 0 {
						meant = append(meant, t)
						continue
					}
				}
			}
			back = append(back, t.receipt)
		}
		verdicts := visit(meant)
		for i, t := range meant {
			enough = enough || verdicts[i]&scanEnough != 0
			if verdicts[i]&scanGone == 0 {
				back = append(back, t.receipt)
			}
		}
		if !news { // nothing more, or the first ones are visible again
			return enough, nil
		}
	}
	return enough, nil
}

// putBack makes messages visible again, also after the context has ended.
func (q *Quarantine) putBack(ctx context.Context, a *queues.Account, back []storage.Receipt) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), putBackWithin)
		defer cancel()
	}
	var g errgroup.Group
	g.SetLimit(putBackAtOnce)
	for _, r := range back {
		g.Go(func() error {
			err := q.trying(ctx, a.Poison, "put back", r.ID, func(ctx context.Context) error {
				return a.Poison.Release(ctx, r, 0)
			})
			if storage.Is(err, storage.Gone) { // a repeated try's own effect, or the lease was over
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("not every message was put back; the others are visible within %v: %w",
			Lease, err)
	}
	return nil
}
