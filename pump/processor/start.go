package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/shardmap"
)

// start is the way of a Run to its workload, until it joins the cluster.
type start struct {
	*base.Env
	o *Options
	// noWorkload: the last look for the workload found that it is not made yet.
	noWorkload atomic.Bool
}

// load reads the workload's row. It waits for a row that is missing or cannot be read for
// now, with UntilIdle only that long.
func (s *start) load(ctx context.Context) error {
	var told error
	what := waitsForControl
	slow := setup.NewWaits(s.Log, what, "control")
	defer slow.Stop()
	slow.Begin(s.Cfg.Control, func() error { return s.Queues.Trouble(s.Cfg.Control) })
	whole := ctx
	ctx, gaveUp := slow.GiveUp(ctx, s.o.UntilIdle > 0) // which nothing restarts
	defer func() { _ = gaveUp() }()
	stopped := func() error {
		if hopeless := gaveUp(); hopeless != nil && whole.Err() == nil {
			return hopeless
		}
		if told != nil {
			s.Log.Info("stopped while "+what, "control", s.Cfg.Control)
		}
		return context.Cause(ctx)
	}
	for n := uint64(0); ; n++ {
		try, cancel := context.WithTimeout(ctx, waits.RequestTimeout)
		w, err := workload.Load(try, s.Queues.Control, s.Cfg.Workload)
		cancel()
		s.noWorkload.Store(errors.Is(err, pump.ErrNoWorkload))
		if err == nil {
			s.Workload = w
			return nil
		}
		if ctx.Err() != nil {
			return stopped()
		}
		absent := errors.Is(err, pump.ErrNoWorkload)
		if absent && s.o.Make {
			return s.makeWorkload(ctx)
		}
		if absent && n%elsewhereEvery == 0 {
			if there, ok := errors.AsType[*pump.ConfigError](setup.WithAdvice(ctx, s.Cfg, err)); ok {
				return there
			}
		}
		if absent && s.isOver() {
			return fmt.Errorf("%w in account %q, and no distributor made it within %v", err, s.Cfg.Control,
				s.o.UntilIdle)
		}
		if !absent && (s.isOver() || failure.Ends(failure.ControlAccount, err, s.stake())) {
			return fmt.Errorf("load workload %q from account %q: %w", s.Cfg.Workload, s.Cfg.Control, err)
		}
		if absent && !errors.Is(told, pump.ErrNoWorkload) {
			slow.End(s.Cfg.Control) // which has answered
			what = "waiting for the workload to be created by its first distributor"
			s.Log.Info(what, "control", s.Cfg.Control)
		} else if !absent && errors.Is(told, pump.ErrNoWorkload) {
			what = waitsForControl
			slow.Begin(s.Cfg.Control, func() error { return s.Queues.Trouble(s.Cfg.Control) })
		}
		told = err
		if !s.later(ctx, "load", n) {
			return stopped()
		}
	}
}

const waitsForControl = "waiting for the control account to answer"

// stake is what is at stake until this process has joined. A process with UntilIdle is not
// restarted.
func (s *start) stake() failure.Stake {
	if s.o.UntilIdle > 0 {
		return failure.Command
	}
	return failure.Service
}

// isOver reports that a start has tried for as long as UntilIdle allows.
func (s *start) isOver() bool {
	return s.o.UntilIdle > 0 && time.Since(s.Began) >= s.o.UntilIdle
}

// later waits before a step of a start is tried again for the n-th time. It is false if ctx
// has ended.
func (s *start) later(ctx context.Context, step string, n uint64) bool {
	wait := s.Jitter.Around(waits.Doubled(250*time.Millisecond, 5*time.Second, n), step,
		s.Cfg.Workload, n)
	if idle := s.o.UntilIdle; idle > 0 {
		wait = min(wait, max(idle-time.Since(s.Began), time.Millisecond))
	}
	return waits.Wait(ctx, wait)
}

// elsewhereEvery is how many looks for a missing workload go with one look into the other accounts,
// the first included: that is once a minute.
const elsewhereEvery = 12

// rivalSoon is how long a processor waits for all accounts to say that they have no other workload
// of its name. It listens to slower accounts while it already works.
const rivalSoon = 250 * time.Millisecond

// refuseRival refuses to start beside another workload of the same name.
func (s *start) refuseRival(ctx context.Context, endRun context.CancelCauseFunc) error {
	found, w := make(chan error, 1), s.Workload
	go func() { found <- setup.Unrivalled(ctx, s.Cfg, w) }()
	soon := time.NewTimer(rivalSoon)
	defer soon.Stop()
	select {
	case err := <-found:
		return err
	case <-soon.C:
	}
	go func() {
		if err := <-found; err != nil {
			endRun(err)
		}
	}()
	return nil
}

// pinReducer makes sure that all processors of the workload reduce by the same reducer, or by none.
// A request that the control account does not answer is tried again, as when the workload is
// loaded: a machine that stands still for a minute in between must not end its processor. The row
// says which process pinned which reducer.
func (s *start) pinReducer(ctx context.Context, handler pump.Handler) error {
	name := ""
	if reducer, is := handler.(ledger.Reducing); is {
		name = reducer.Pinned()
	}
	for n := uint64(0); ; n++ {
		w, err := s.Workload.PinReducer(ctx, name)
		switch {
		case err == nil:
			s.Workload = w
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !member.MayJoinLater(err, s.stake()) || s.isOver():
			return err
		}
		s.Log.Warn("the reducer could not be noted in the workload's row; trying again",
			"control", s.Cfg.Control, "error", err)
		if !s.later(ctx, "pin", n) {
			return context.Cause(ctx)
		}
	}
}

// makeWorkload makes the workload as a distributor would, unless another process is first.
func (s *start) makeWorkload(ctx context.Context) error {
	spec := setup.SpecOf(s.Cfg)
	spec.Maker = setup.Maker(s.Cfg, func() (asked func()) { return func() {} })
	w, err := workload.Ensure(ctx, s.Queues.Control, spec)
	if err == nil {
		s.Workload = w
		s.Log.Info("the workload is there", "control", s.Cfg.Control, "queues", len(w.Map.Shards))
	}
	return err
}

// makeSlow is for how long a start waits for queues to be made, as a distribution does.
const makeSlow = 2 * time.Second

// makeQueues makes the workload's own queues, each time that such a processor starts: the process
// that made the workload may have been killed before it made them. Queues of an account that does
// not answer are made while the processor works.
func (s *start) makeQueues(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, makeSlow)
	defer cancel()
	all, soon := errgroup.WithContext(soon)
	var mu sync.Mutex
	var late []*queues.Queue
	for account, list := range s.ownQueues() {
		all.Go(func() error {
			list = append(list, s.Queues.Account(account).Poison)
			return queues.Each(soon, list, func(soon context.Context, _ int, q *queues.Queue) error {
				err := queues.Create(soon, q, s.Jitter, s.Log)
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
	s.makeLater(late)
	return nil
}

// ownQueues are the queues of the map that tasks are put into, by account.
func (s *start) ownQueues() map[string][]*queues.Queue {
	own := map[string][]*queues.Queue{}
	for _, shard := range s.Workload.Map.Shards {
		if q := s.Reach(shard); q != nil && shard.State == shardmap.Active {
			own[shard.Account] = append(own[shard.Account], q)
		}
	}
	return own
}

// makeLater goes on with queues that could not be made at once.
func (s *start) makeLater(late []*queues.Queue) {
	var names []string
	for _, q := range late {
		names = append(names, q.String())
		s.Background.Go(func() {
			if err := queues.Create(s.Wire, q, s.Jitter, s.Log); err != nil && s.Wire.Err() == nil {
				s.Log.Error("a queue could not be made; start a processor with "+
					"--make-workload again, or make it",
					"queue", q.String(), "error", err)
			}
		})
	}
	slices.Sort(names)
	s.Log.Warn("queues could not be made yet; the others are read meanwhile",
		"queues", strings.Join(names, " "))
}

// gateWaiter is the gate that a processor waits at before it takes anything: it has started, is a
// member of the cluster and holds nothing (origins T3). The gate's row is the truth; a nudge makes
// it look at once (origins T4).
type gateWaiter struct {
	name   string // empty: there is none
	gate   *coordination.Gate
	look   chan struct{} // has room for one hint
	opened atomic.Int64  // when the gate was found open, Unix ns; 0 without a wait
}

func newGateWaiter(env *base.Env, name string) *gateWaiter {
	e := &gateWaiter{name: name, look: make(chan struct{}, 1)}
	if e.name != "" {
		e.gate = coordination.NewGate(env.Queues.Control, env.Cfg.Workload, e.name)
		e.gate.Log = env.Log
	}
	return e
}

// hint makes the waiting goroutine look at the gate.
func (e *gateWaiter) hint(gate string) {
	if gate == e.name && gate != "" {
		waits.Signal(e.look)
	}
}

// passGate waits until the gate is open. It fails with the error of ctx, or if waiting cannot help.
func (r *run) passGate(ctx context.Context) error {
	if r.gate.name == "" {
		return nil
	}
	r.Log.Info("waiting at the gate", "gate", r.gate.name)
	r.setPhase(phaseWaiting)
	reporting, end := context.WithCancel(ctx)
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		r.reportProgress(reporting)
	}()
	began := time.Now()
	err := r.gate.gate.Wait(ctx, r.gate.look)
	end()
	<-reported // Progress is called by one goroutine at a time
	if err != nil {
		return err
	}
	r.setPhase(phaseStarting)
	// The wait was not idle time and must not count in any rate.
	r.Messages.Restart()
	r.gate.opened.Store(time.Now().UnixNano())
	r.Log.Info("the gate is open", "gate", r.gate.name,
		"waited", time.Since(began).Round(time.Millisecond))
	return nil
}

// working is for how long a processor has been at it since it began, without its wait at the gate.
func (e *gateWaiter) working(began time.Time) time.Duration {
	if opened := e.opened.Load(); opened != 0 {
		return time.Since(time.Unix(0, opened))
	}
	return time.Since(began)
}

func checkGate(name string) error {
	if name == "" {
		return nil
	}
	if err := coordination.CheckGate(name); err != nil {
		return &pump.ConfigError{
			Field: "gate", Problem: fmt.Sprintf("%.80q is not the name of a gate", name),
			Fix: "use 1 to 63 of letters, digits, _ . ~ and -", Err: err,
		}
	}
	return nil
}
