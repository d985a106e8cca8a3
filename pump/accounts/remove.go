package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// RemoveOptions are the options of [Remove].
type RemoveOptions struct {
	// Wait: wait until the account may be removed, for as long as ctx lasts, rather
	// than fail. The quarantine is not waited for: nothing empties it by itself.
	Wait bool
	// Lost: the account is gone for good, and what is in its queues is given up; [Lost] says before
	// what that may be. The error is an [*Error] while one of the queues can be counted with
	// the configured credentials, and for [LostAfter] after the drain. The configuration must still
	// have these credentials, although they are of no use any more.
	Lost bool
	// Progress, if set, is called about every two seconds of waiting.
	Progress func(Progress)
}

// Progress is what a removal still waits for.
type Progress struct {
	// Noticing is how long writers may still use the map from before; then only
	// Left counts.
	Noticing time.Duration
	Left     []QueueLeft
}

// Messages is how many messages are left, poison included.
func (p Progress) Messages() (n int64) {
	for _, q := range p.Left {
		n += q.Messages
	}
	return n
}

// Remove takes an account out of the workload when it has been draining for long enough and all its
// queues, quarantine included, are empty. Until then it waits if Wait is set, and else gives an
// [*Error] that names what is left. The queues stay where they are. The control account cannot be
// removed. To remove an account that the workload does not use is success. An account that is gone
// for good is removed with Lost. An error beside a change says that the account is out of the
// workload, but its anchor may be left. Removing the account again removes the anchor too.
func Remove(ctx context.Context, cfg pump.Config, name string, opts RemoveOptions) (Change, error) {
	o, err := openAccounts(ctx, cfg)
	if err != nil {
		return Change{}, err
	}
	if name == o.Cfg.Control {
		return Change{}, &Error{
			Account: name,
			Problem: "it is the control account, which holds the workload's rows and cannot be removed",
			Fix: "drain it if only its queues should not be used, or make a new workload beside this one, " +
				"with another name and another control account",
		}
	}
	version, err := o.waitRemovable(ctx, name, opts)
	if err != nil {
		return Change{}, err
	}
	if opts.Lost {
		losses, err := o.losses(ctx, name)
		if err != nil {
			return Change{}, err
		}
		change, err := o.remove(ctx, name, version) // its anchor is gone with it
		if change.Changed {
			change.Lost = losses
		}
		return change, err
	}
	// Noted before the change: a process that adds the account afterwards changes the anchor, which
	// then stays.
	removeAnchor := o.noteAnchor(ctx, name)
	change, err := o.remove(ctx, name, version)
	if err == nil {
		err = removeAnchor(ctx)
	}
	return change, err
}

// WaitDrained waits until an account that drains may be removed, as long as ctx lasts;
// progress, which may be nil, is called about every two seconds. If only
// quarantined messages are left, the error is an [*Error]: nothing takes those away by itself.
func WaitDrained(ctx context.Context, cfg pump.Config, name string, progress func(Progress)) error {
	o, err := openAccounts(ctx, cfg)
	if err != nil {
		return err
	}
	_, err = o.waitRemovable(ctx, name, RemoveOptions{Wait: true, Progress: progress})
	return err
}

// waitRemovable gives the version of the map by which the account may be removed.
func (o *accountsOf) waitRemovable(
	ctx context.Context, name string, opts RemoveOptions,
) (version uint64, err error) {
	for {
		version, progress, err := o.removable(ctx, name, opts.Lost)
		_, refused := errors.AsType[*Error](err)
		_, config := errors.AsType[*pump.ConfigError](err)
		switch {
		case err == nil:
			return version, nil
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case !opts.Wait || config || refused && (progress == nil || onlyPoison(*progress)):
			return 0, err
		case progress == nil:
			o.Cfg.Log.Warn("what is left in the account could not be learned; trying again", "account", name,
				"error", err)
		case opts.Progress != nil:
			opts.Progress(*progress)
		}
		if !waits.Wait(ctx, setup.CountEvery) {
			return 0, context.Cause(ctx)
		}
		// A question that storage did not answer is asked again. Other answers do not change, such as a
		// row that says that the workload was made again: judged by the old map, the removal would report
		// a success.
		err = o.Reload(ctx)
		if e, unanswered := errors.AsType[*storage.Error](err); err != nil &&
			!(unanswered && e.Ambiguous()) {
			return 0, err
		}
	}
}

// removable learns from the map of the version that it gives whether an account may be removed. If
// not, the error says why. Progress says what is missing, unless that is not known or waiting does
// not help.
func (o *accountsOf) removable(
	ctx context.Context, name string, lost bool,
) (version uint64, progress *Progress, err error) {
	w := o.Workload
	var qs []string
	for _, s := range w.Map.Shards {
		switch {
		case s.Account != name:
		case s.State == shardmap.Active:
			return 0, nil, &Error{
				Account: name, Problem: "it is active",
				Fix: fmt.Sprintf("drain it first: distributor accounts drain %s", name),
			}
		default:
			qs = append(qs, s.Queue)
		}
	}
	switch {
	case qs == nil && !slices.Contains(o.Queues.Names(), name):
		return 0, nil, notConfigured(name)
	case qs == nil:
		return w.Map.Version, nil, nil
	case !slices.Contains(o.Queues.Names(), name):
		return 0, nil, pump.Invalid("accounts",
			fmt.Sprintf("there is no credential for %q here, and its queues must be seen to be empty", name),
			"keep it in the configuration until it is removed")
	}
	if lost {
		problem, left, err := o.NotGone(ctx, name, LostAfter)
		if err != nil || problem == "" {
			return w.Map.Version, nil, err
		}
		refusal := &Error{Account: name, Problem: problem, Fix: "wait, or remove it without --lost"}
		if left == 0 { // no waiting helps
			return 0, nil, refusal
		}
		return 0, &Progress{Noticing: left}, refusal
	}
	// Any change of the map restarts the time: which change made the account drain is not kept, and a
	// minute more does no harm.
	server, _, err := workload.ServerTime(ctx, o.Queues.Control, o.Cfg.Workload)
	if err != nil {
		return 0, nil, err
	}
	p := Progress{Noticing: max(0, queues.RemoveAfter-server.Sub(w.Changed))}
	// The counts come after the time: what they say of now holds for ever.
	if p.Left, err = o.left(ctx, name, qs); err != nil {
		return 0, nil, err
	}
	if p.Noticing == 0 && len(p.Left) == 0 {
		return w.Map.Version, nil, o.refuseResults(ctx, name)
	}
	return 0, &p, p.refusal(name)
}

// refuseResults refuses to remove an account with results of runs that are kept.
func (o *accountsOf) refuseResults(ctx context.Context, name string) error {
	kept, err := closing.HasResults(ctx, &o.Cfg.Config, o.Queues, o.Workload, name)
	if err != nil || len(kept) == 0 {
		return err
	}
	var ids []string
	for _, id := range kept {
		ids = append(ids, id.String())
	}
	slices.Sort(ids)
	return &Error{
		Account: name, Problem: "it has results of runs that are kept: " + setup.SomeOf(ids, 10),
		Fix: "fetch them (distributor results RUN), and remove the account when the runs' retention " +
			"is over; it stays drained until then",
	}
}

// quietRounds is how often in a row everything must be found empty.
const quietRounds = 2

// left counts what is in the queues of an account, those at zero left out. Messages go from
// work queues into quarantine, so the queues that they leave are counted before the one that they
// come into: the other way round a message that is quarantined in between is seen in neither.
func (o *accountsOf) left(
	ctx context.Context, name string, queues []string,
) (left []QueueLeft, err error) {
	for range quietRounds {
		for _, list := range [][]string{queues, {workload.PoisonQueue(o.Cfg.Workload)}} {
			found, err := o.countAll(ctx, name, list)
			if err != nil {
				return nil, fmt.Errorf("what is left in account %s could not be learned: %w", name, err)
			}
			left = append(left, found...)
		}
		if len(left) > 0 {
			break
		}
	}
	slices.SortFunc(left, func(a, b QueueLeft) int { return cmp.Compare(a.Queue, b.Queue) })
	return left, nil
}

// countAll counts some queues of an account at once.
func (o *accountsOf) countAll(ctx context.Context, name string, qs []string) ([]QueueLeft, error) {
	store, poison := o.Queues.Account(name).Store, workload.PoisonQueue(o.Cfg.Workload)
	left := make([]QueueLeft, len(qs))
	err := queues.Each(ctx, qs, func(ctx context.Context, i int, q string) (err error) {
		left[i] = QueueLeft{Queue: q, Poison: q == poison}
		left[i].Messages, err = o.count(ctx, store.Queue(q))
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(left, func(q QueueLeft) bool { return q.Messages == 0 }), nil
}

// countTries is how often a count is asked for.
const countTries = 3

func (o *accountsOf) count(ctx context.Context, q storage.Queue) (n int64, err error) {
	for try := range uint64(countTries) {
		n, err = waits.Get(ctx, q.Count)
		switch {
		case err == nil:
			return n, nil
		case queues.NotThere(err):
			return 0, nil
		case !storage.Ambiguous(err):
			return 0, err
		}
		waits.Wait(ctx, waits.Jitter(o.Cfg.Instance).Around(time.Second, "count", q.Name(), try))
	}
	return 0, err
}

func onlyPoison(p Progress) bool {
	return p.Noticing == 0 && !slices.ContainsFunc(p.Left, func(q QueueLeft) bool { return !q.Poison })
}

func (p Progress) refusal(name string) *Error {
	e := &Error{Account: name, Left: p.Left}
	var parts []string
	for _, q := range p.Left {
		part := fmt.Sprintf("%d in %s", q.Messages, q.Queue)
		if q.Poison {
			part += " (quarantine)"
		}
		parts = append(parts, part)
	}
	switch {
	case len(p.Left) == 0:
		e.Problem = fmt.Sprintf("it has not been draining for long enough: "+
			"for another %v a distributor may still write to it", p.Noticing.Round(time.Second))
		e.Fix = "wait, or let the command wait"
	case onlyPoison(p):
		e.Problem = "quarantined messages are left: " + strings.Join(parts, ", ")
		e.Fix = "redrive or drop them, and try again: distributor quarantine list"
	default:
		e.Problem = "messages are left (counts may be too high, never too low): " +
			strings.Join(parts, ", ")
		e.Fix = "let processors work them off, and try again, or let the command wait"
	}
	return e
}

// remove takes the account out of the map that was judged, and of no other: in
// a later one it may be in use again.
func (o *accountsOf) remove(ctx context.Context, name string, version uint64) (Change, error) {
	return o.change(ctx, name, Unused, func(m *shardmap.Map) ([]shardmap.Shard, error) {
		rest := slices.DeleteFunc(slices.Clone(m.Shards), func(s shardmap.Shard) bool {
			return s.Account == name
		})
		switch {
		case len(rest) == len(m.Shards):
			return nil, nil
		case m.Version != version:
			return nil, &Error{
				Account: name, Problem: "the map was changed by somebody else in the meantime",
				Fix: "try again",
			}
		}
		return rest, nil
	})
}
