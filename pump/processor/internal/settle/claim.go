package settle

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
)

const (
	// claimsAtOnce is how many tasks of one batch are claimed at the same time.
	claimsAtOnce = 16
	// claimAgain is for how long a task is put back when the claims cannot be read.
	// Until it comes back its message is in no process's hands.
	claimAgain = 10 * time.Second
	// claimLastWords is how long the end of a claim may take once the handler's
	// context has ended: a processor that stops waits for it.
	claimLastWords = 3 * time.Second
)

// LimitKeys puts claims before the handler, as a processor's Middleware.
func LimitKeys(
	env *base.Env, claims *coordination.Claims,
) func(context.Context, []*pump.Task, func(context.Context, []*pump.Task) []error) []error {
	return (&limiter{env, claims}).around
}

// limiter lets work on a key begin at most once in an interval, by a row a key (origins B2 to B4).
// It stands between the pool and the handler. A task is skipped if another task of its key was done
// less than the interval ago. A task that a process had begun before it died comes back when the
// interval is over. The retry of a failed task does not count as a second beginning.
//
// A task without a key shares it with no other task and is not limited.
type limiter struct {
	*base.Env
	claims *coordination.Claims
}

// around hands those tasks on together whose claims are granted.
func (l *limiter) around(
	ctx context.Context, tasks []*pump.Task, next func(context.Context, []*pump.Task) []error,
) []error {
	errs := make([]error, len(tasks))
	claims := make([]*coordination.Claim, len(tasks))
	l.each(tasks, func(i int) { claims[i], errs[i] = l.claim(ctx, tasks[i]) })
	var granted []*pump.Task
	var at []int // their places
	for i, t := range tasks {
		if errs[i] == nil {
			granted, at = append(granted, t), append(at, i)
		}
	}
	if len(granted) == 0 {
		return errs
	}
	// As if all had failed, until the handler has said otherwise: it may panic.
	outcomes := make([]error, len(granted))
	for k := range outcomes {
		outcomes[k] = errUnsaid
	}
	defer func() {
		l.each(granted, func(k int) { l.done(ctx, claims[at[k]], granted[k], outcomes[k] != nil) })
	}()
	copy(outcomes, next(ctx, granted))
	for k, i := range at {
		errs[i] = outcomes[k]
	}
	return errs
}

// errUnsaid is the outcome of a task whose handler has not returned.
var errUnsaid = errors.New("the handler did not return")

// each calls f for each task's place, several at once.
func (l *limiter) each(tasks []*pump.Task, f func(i int)) {
	var g errgroup.Group
	g.SetLimit(claimsAtOnce)
	for i := range tasks {
		g.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = g.Wait()
}

// claim gives the claim that a task is handled under, nil if the task needs no claim. If the task
// may not be handled, it gives what becomes of the task as a handler's error.
func (l *limiter) claim(ctx context.Context, t *pump.Task) (*coordination.Claim, error) {
	if len(t.Key) == 0 {
		return nil, nil
	}
	claim, verdict, wait, err := l.claims.Claim(ctx, t.Key, coordination.TaskRef{
		Run: t.Run, Segment: t.Segment, N: t.N, Foreign: t.Foreign,
	})
	switch {
	case err == nil && verdict == coordination.Granted:
		return claim, nil
	case err == nil && verdict == coordination.Fresh:
		return nil, &pump.TaskError{Outcome: pump.OutcomeDone}
	case err == nil: // Busy
		l.Log.Debug("another process began this task and has not ended it; it comes back later",
			"task", taskRef(t), "after", wait)
		return nil, &pump.TaskError{Outcome: pump.OutcomeUntried, After: max(wait, time.Second)}
	case ctx.Err() != nil:
		return nil, pump.Release(context.Cause(ctx))
	case errors.Is(err, row.ErrCorrupt):
		return nil, err // no waiting mends it: the task fails, and its cause names the row
	}
	l.AlarmOnce("claims", "keys cannot be claimed; their tasks go back for a while", "error", err)
	return nil, &pump.TaskError{
		Outcome: pump.OutcomeUntried, Err: err,
		After: l.Jitter.Around(claimAgain, "claim", taskRef(t), uint64(t.Attempt)),
	}
}

// done ends a claim. If that cannot be written the key counts as at work until the interval is
// over, and then as abandoned; the task's outcome still stands.
func (l *limiter) done(ctx context.Context, claim *coordination.Claim, t *pump.Task, failed bool) {
	if claim == nil {
		return
	}
	patience := waits.RequestTimeout
	if ctx.Err() != nil {
		patience = claimLastWords
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	switch err := claim.Done(ctx, failed); {
	case err == nil:
	case errors.Is(err, coordination.ErrClaimTaken):
		l.AlarmOnce("taken over",
			"work on a key took longer than the least interval between two, so another began meanwhile; "+
				"make the interval longer than any work takes",
			"task", taskRef(t))
	default:
		l.AlarmOnce("claims", "the end of work on a key could not be written", "task", taskRef(t),
			"error", err)
	}
}

func taskRef(t *pump.Task) string {
	return coordination.TaskRef{Run: t.Run, Segment: t.Segment, N: t.N, Foreign: t.Foreign}.String()
}
