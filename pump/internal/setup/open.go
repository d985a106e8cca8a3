package setup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// CountEvery is how often a command counts what is left in queues while it waits for that to go. A
// count is a request for each queue.
const CountEvery = 2 * time.Second

// Session is a workload as a command of an operator looks at it or changes it. One goroutine uses
// it.
type Session struct {
	Cfg      Config
	Queues   *queues.Set
	Workload *workload.Workload
}

// Reach completes a configuration and opens its accounts. It makes no request: the workload is nil.
func Reach(given pump.Config) (*Session, error) {
	cfg, err := Complete(given)
	if err != nil {
		return nil, err
	}
	return &Session{Cfg: cfg, Queues: queues.Open(&cfg.Config)}, nil
}

// Find reads the workload of a configuration. Without a session the error says what to do.
func Find(ctx context.Context, cfg pump.Config) (*Session, error) {
	o, err := Reach(cfg)
	if err == nil {
		err = o.Reload(ctx)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Open gives the session also of a workload that is being deleted, beside the error.
func Open(ctx context.Context, cfg pump.Config) (*Session, error) {
	o, err := Reach(cfg)
	if err != nil {
		return nil, err
	}
	if err = o.Load(ctx); err != nil && !errors.Is(err, workload.ErrDeleting) {
		return nil, o.Advise(ctx, err)
	}
	return o, err
}

// Load reads the workload's row. It fails if the row is not the same or a later version of what was
// read, or if the workload is being deleted.
func (o *Session) Load(ctx context.Context) error {
	w, err := workload.Load(ctx, o.Queues.Control, o.Cfg.Workload)
	if err == nil && o.Workload != nil {
		err = o.Workload.Replaced(w)
	}
	if err == nil || errors.Is(err, workload.ErrDeleting) {
		o.Workload = w
		o.heed()
	}
	return err
}

// Reload is Load, with an error that says what to do.
func (o *Session) Reload(ctx context.Context) error { return o.Advise(ctx, o.Load(ctx)) }

// Advise is [WithAdvice].
func (o *Session) Advise(ctx context.Context, err error) error {
	return WithAdvice(ctx, &o.Cfg, err)
}

// Check refuses a configuration that says something else than what is pinned.
func (o *Session) Check() error { return SpecOf(&o.Cfg).Check(o.Workload) }

// Tell nudges all members to look at the cluster's rows. That it fails costs a beat.
func (o *Session) Tell(ctx context.Context) (members, nudged int) {
	v, err := cluster.LoadView(ctx, o.Queues.Control, o.Cfg.Workload)
	if err != nil {
		o.Cfg.Log.Warn("the members could not be told; they see the new map at their next beat",
			"error", err)
		return 0, 0
	}
	var nudges []pump.Nudge
	for i := range v.Members {
		nudges = append(nudges, nudging.To(&v.Members[i], pump.Nudge{}))
	}
	return len(v.Members), nudging.Send(ctx, &o.Cfg.Config, nudges)
}

// Runs are the runs of the workload.
func (o *Session) Runs() *workload.Runs {
	return workload.NewRuns(o.Queues.Control, o.Cfg.Workload)
}

// RunsNamed is how many runs an error names at most.
const RunsNamed = 8

// runDigits is how many digits of a run's id a user writes at least: among a hundred runs two have
// the same first 4 once in 13 times, but a user who types 4 is told so.
const runDigits = 4

// RunDigits reads what a user wrote for a run: a whole id, or its first digits.
func RunDigits(text string) (digits string, whole pump.RunID, err error) {
	digits = strings.ToLower(strings.TrimSpace(text))
	bad := func(problem string) (string, pump.RunID, error) {
		return "", pump.RunID{}, pump.Invalid("run", problem, "see: distributor runs list")
	}
	switch {
	case len(digits) > 2*len(whole) || strings.Trim(digits, "0123456789abcdef") != "":
		return bad(fmt.Sprintf("%q is not the name of a run, nor its id, which is "+
			"32 of 0-9 and a-f, nor the beginning of one", text))
	case len(digits) < runDigits:
		return bad(fmt.Sprintf("%q is too short for the beginning of a run's id; write %d digits or more",
			text, runDigits))
	case len(digits) < 2*len(whole):
		return digits, whole, nil
	}
	if whole, err = codec.ParseRunID(digits); err != nil || whole.IsZero() {
		return bad(fmt.Sprintf("%q is not the id of a run", text))
	}
	return digits, whole, nil
}

// FindRun gives the run with the name that a user wrote, or the only one whose id is that or begins
// with it.
func (o *Session) FindRun(ctx context.Context, id string) (pump.RunID, error) {
	digits, whole, err := RunDigits(id)
	if !whole.IsZero() {
		return whole, nil
	}
	named := workload.NamedRun(o.Workload.Incarnation, id)
	if _, not := o.Runs().Get(ctx, named); !errors.Is(not, pump.ErrNoRun) {
		return named, not // also that the row cannot be read: else the name would be called wrong
	}
	if err != nil {
		return whole, err
	}
	found, err := o.Runs().Find(ctx, digits, RunsNamed+1)
	switch {
	case err != nil:
		return pump.RunID{}, err
	case len(found) == 0:
		return pump.RunID{}, fmt.Errorf("run %s: %w; see: distributor runs list "+
			"(of a run whose row is gone only the whole id is known)", digits, pump.ErrNoRun)
	case len(found) == 1:
		return found[0], nil
	}
	var names []string
	for _, f := range found[:min(len(found), RunsNamed)] {
		names = append(names, f.String())
	}
	if len(found) > RunsNamed {
		names = append(names, "and others")
	}
	return pump.RunID{}, pump.Invalid("run", fmt.Sprintf("the ids of several runs begin with %s: %s",
		digits, strings.Join(names, ", ")), "write more digits")
}

// goneTries is how often each queue of an account is asked for that may be gone.
const goneTries = 3

// NotGone is why an account does not count as gone for good, and for how long if that is a matter
// of time; empty if it does. It must have been draining for as long as after says. An account
// exists while one of its queues can be counted with the configured credentials, or is certainly
// missing in it. A name that a stranger has taken refuses the credential, which does not count.
func (o *Session) NotGone(
	ctx context.Context, name string, after time.Duration,
) (problem string, left time.Duration, err error) {
	qs, drains := []string{workload.PoisonQueue(o.Cfg.Workload)}, false
	for _, s := range o.Workload.Map.Shards {
		if s.Account == name {
			qs, drains = append(qs, s.Queue), s.State == shardmap.Draining || drains
		}
	}
	server, _, err := workload.ServerTime(ctx, o.Queues.Control, o.Cfg.Workload)
	if left = after - server.Sub(o.Workload.Changed); err == nil && drains && left > 0 &&
		o.Workload.Deleting.IsZero() {
		return fmt.Sprintf("it has not been draining for long enough: it may answer again for another %v",
			left.Round(time.Second)), left, nil
	}
	for try := uint64(0); err == nil && try < goneTries; try++ {
		if queue := o.answers(ctx, name, qs); queue != "" {
			return "it is not gone: it answers for its queue " + queue, 0, nil
		}
		wait := waits.Jitter(o.Cfg.Instance).Around(time.Second, "gone", name, try)
		if !waits.Wait(ctx, wait) {
			err = context.Cause(ctx)
		}
	}
	return "", 0, err
}

// answers gives a queue that an account answers for, asking for all at once; empty without one.
func (o *Session) answers(ctx context.Context, name string, qs []string) string {
	store := o.Queues.Account(name).Store
	g, ctx := errgroup.WithContext(ctx)
	for _, queue := range qs {
		g.Go(func() error {
			_, err := waits.Get(ctx, store.Queue(queue).Count)
			if err == nil || queues.NotThere(err) {
				return errors.New(queue) // which ends the others
			}
			return nil
		})
	}
	if found := g.Wait(); found != nil {
		return found.Error()
	}
	return ""
}
