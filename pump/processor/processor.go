package processor

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/tracing"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/poll"
	"github.com/queuepump/queuepump/pump/processor/internal/record"
	"github.com/queuepump/queuepump/pump/processor/internal/settle"
	"github.com/queuepump/queuepump/pump/processor/internal/trial"
)

// Summary counts what a processor has done. Tasks are counted once for
// each delivery.
type Summary struct {
	Instance string `json:"instance"`
	Waiting  string `json:"waiting,omitempty"` // the gate that it waits at
	Handled  int64  `json:"handled"`           // tasks that the handler has done
	Failed   int64  `json:"failed"`            // tasks whose handler failed
	Rejected int64  `json:"rejected"`          // tasks that the handler rejected
	Retried  int64  `json:"retried"`           // tasks that were put back for another attempt
	Released int64  `json:"released"`          // tasks that were put back without an attempt
	// Skipped are tasks settled without being handled, because their key was begun less than
	// MinInterval ago.
	Skipped int64 `json:"skipped"`
	// NotNow are tasks that were told "not now" by what their handler uses, and put back without an
	// attempt.
	NotNow int64 `json:"notNow"`
	// Quarantined are tasks put into a poison queue; a message that could not be read counts as one.
	Quarantined int64 `json:"quarantined"`
	Dropped     int64 `json:"dropped"` // tasks of runs that an operator ended with --drop
	// Duplicates are tasks recognised as done before, in mode once by the ledger, or because their run
	// was closed.
	Duplicates int64 `json:"duplicates"`
	Recorded   int64 `json:"recorded"` // tasks whose end was recorded in the ledger
	Commits    int64 `json:"commits"`  // writes to the ledger
	// Results are kept ones, of ResultBytes, which are not compressed. Objects of them were put;
	// ObjectsRefused were put elsewhere, or later.
	Results        int64 `json:"results,omitempty"`
	ResultBytes    int64 `json:"resultBytes,omitempty"`
	Objects        int64 `json:"objects,omitempty"`
	ObjectsRefused int64 `json:"objectsRefused,omitempty"`
	Foreign        int64 `json:"foreign"` // messages that no distributor made
	// Passed are messages of other processors' segments that were put back for them.
	Passed int64 `json:"passed"`
	// Forwarded are messages of other processors' segments that were put where they belong.
	Forwarded int64 `json:"forwarded"`
	// Split are messages cut into pieces, to find a task that may end its processes.
	Split     int64         `json:"split"`
	Lost      int64         `json:"lost"`      // messages whose lease ended while they were in hand
	Envelopes int64         `json:"envelopes"` // messages received
	Requests  pump.Requests `json:"requests"`
	Throttled int64         `json:"throttled"` // requests that were refused as too many
	Seconds   float64       `json:"seconds"`
	// from a message ready to be put to the start of its tasks
	Latency Latency `json:"latency"`
}

// Processor takes tasks from a workload's queues and hands them to a handler. The processors of a
// workload share its segments: each task is handled by the owner of its segment, also while
// processors come and go.
type Processor struct {
	cfg     setup.Config
	o       Options
	given   queues.Values
	handler pump.Handler
	running atomic.Pointer[run] // nil outside of Run
	last    atomic.Pointer[Summary]
	grace   waits.Grace // of a stop
}

// New makes a processor; no request is made. The handler may be nil
// with Options.Discard. An error is a [*pump.ConfigError].
func New(c pump.Config, h pump.Handler, o Options) (*Processor, error) {
	cfg, err := setup.Complete(c)
	if err != nil {
		return nil, err
	}
	if err := queues.Check(&cfg.Config); err != nil {
		return nil, err
	}
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if err := setup.CheckPerKey(o.PerKey, cfg.Segments == pump.Shared); err != nil {
		return nil, err
	}
	given := setup.ValuesOf(&c)
	given.Beat, given.Lease, given.MaxRate = o.Beat, o.Lease, o.MaxRate
	given.Retry, given.PerKey = o.Retry, o.PerKey
	if _, _, err := setup.WithSettings(given, nil); err != nil {
		return nil, err
	}
	if h == nil && !o.Discard {
		return nil, pump.Invalid("handler", "there is none", "give a handler, or set Discard")
	}
	if err := ledger.CheckReducer(h, &cfg.Config, o.Discard, o.MinInterval); err != nil {
		return nil, err
	}
	if _, reduces := h.(ledger.Reducing); reduces && o.Results {
		return nil, pump.Invalid("results",
			"the handler has a state, and no results", "leave it out, or give another handler")
	}
	return &Processor{cfg: cfg, o: o, given: given, handler: h}, nil
}

// run is one Run of a processor. Along the data path: the poller gets messages (internal/poll),
// they are kept (internal/message/keep.go) and their headers judged (receive.go, segments.go,
// aside.go), they wait (internal/message/backlog.go), are opened, their tasks handled (workers.go,
// outcome.go), and the message is settled (internal/settle). The queues that it polls and the
// segments that are its own follow the cluster (cluster.go, internal/base/assignment.go).
type run struct {
	*base.Env
	o        *Options
	handler  pump.Handler
	batch    pump.BatchHandler // the handler, if it takes batches
	use      []Middleware      // around the handler
	tracer   *tracing.Tracer   // nil: nothing is traced
	recorder *record.Recorder  // nil: nothing is recorded
	results  *record.Keeper    // nil: results are not kept
	poller   *poll.Poller
	keeper   *message.Keeper
	timing   *leases.Timing
	backlog  *message.Backlog
	workers  *workers
	rate     *rateLimit
	notNows  *notNows
	failures *failures
	start    *start
	gate     *gateWaiter
	grace    *waits.Grace // Processor's
	phase    atomic.Int32 // a phase
	latency  latencies

	followMu sync.Mutex      // one view after the other; guards awaited
	awaited  map[string]bool // members whose leases are waited for, as the log says
	aside    *aside
	segments *segments // nil until connect, as the next
	trials   *trial.Trials
	settlers *settle.Settlers
	foreign  *jsonline.ForeignReader
	lobby    *lobby
	spills   *spillWatch
	reported reported
	told     told

	unfinished atomic.Int64 // runs that wait for their ends, as the closer says
	remaining  atomic.Int64 // tasks of live runs, as the closer says; -1: it does not
	sampler    *sampling.Sampler

	// endRun ends Run's own context, with the error that Run returns then.
	endRun context.CancelCauseFunc
	// Three contexts that end one after the other: Run's own ends getting; work
	// ends the handlers; wire ends the requests by which messages are kept and
	// settled.
	work    context.Context
	endWork context.CancelCauseFunc
}

// Run works until ctx ends, which does not count as an error, or until the queues are idle
// (Options.UntilIdle). It waits for the workload if no distributor has created it yet, joins its
// cluster and leaves it at the end. When it returns, every message that was taken is settled or
// visible again, except those about which storage did not answer. The summary is valid with an
// error as well.
func (p *Processor) Run(ctx context.Context) (Summary, error) {
	r := p.newProcessing(ctx)
	defer p.setRunning(r)()
	defer r.CutWire()
	defer r.endWork(ErrStopped)
	within := ctx
	ctx, r.endRun = context.WithCancelCause(ctx)
	defer r.endRun(nil)
	err := r.connect(ctx)
	if err == nil {
		err = r.join(ctx)
	}
	if err == nil {
		err = r.passGate(ctx)
	}
	if err != nil {
		r.leaveCluster()
		if within.Err() != nil {
			err = nil
		} else if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return r.summary(), err
	}
	r.launch()
	r.Member.Load().Admit()
	r.setPhase(phaseWorking)
	if err = r.poller.Run(ctx); err == nil && within.Err() == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the workload is gone
	}
	r.setPhase(phaseDraining)
	r.stop()
	summary := r.summary()
	if r.o.Progress != nil {
		r.o.Progress(summary)
	}
	return summary, err
}

func (p *Processor) newProcessing(ctx context.Context) *run {
	reducer, _ := p.handler.(ledger.Reducing)
	r := &run{
		Env: base.NewEnv(ctx, &p.cfg, reducer, p.o.Discard, p.o.MaxBytes), o: &p.o,
		handler: p.handler, tracer: tracing.New(&p.cfg.Config), grace: &p.grace,
	}
	r.sampler = sampling.New(&r.Cfg.Config, r.Queues, r.view)
	r.remaining.Store(-1)
	r.lobby, r.aside, r.workers = &lobby{r: r}, &aside{r: r}, newWorkers(r)
	r.aside.parts.Store(&workload.PausedParts{})
	r.start, r.gate = &start{Env: r.Env, o: r.o}, newGateWaiter(r.Env, r.o.Gate)
	r.batch, _ = p.handler.(pump.BatchHandler)
	if r.use = r.o.Use; r.o.MinInterval > 0 && r.handler != nil {
		claims := coordination.NewClaims(r.Queues.Control, r.Cfg.Workload, r.o.MinInterval,
			r.Cfg.Instance)
		r.use = append(slices.Clip(r.use), settle.LimitKeys(r.Env, claims))
	}
	_ = setup.Begin(r.Queues, p.given, !r.o.Discard) // New has checked them
	r.timing = leases.NewTiming(r.o.Visibility, r.Queues.Values().Retry)
	r.keeper = message.NewKeeper(r.timing, r.Jitter, message.KeeperParts{
		OnLost: r.lost, OnStale: r.withdraw,
		OnRenewed: func(d *message.Delivery, length time.Duration) {
			r.Tallies.Spend(d.Header.Run, message.Request)
			r.Tallies.AddMet(d.Header.Run, length)
		},
		Step: r.Cfg.Sim.Seeding.Turn, Clock: r.Cfg.Sim.Seeding.Clock(),
	})
	room := r.o.room()
	room.Paced = func() bool { return r.Queues.Tasks.Load() != nil }
	r.backlog = message.NewBacklog(room, r.batch != nil, func() { r.poller.Wake() })
	r.notNows = newNotNows(r.Env, r.backlog, r.o.Concurrency)
	r.failures = &failures{Env: r.Env}
	r.rate = newRateLimit(r.Queues.Tasks.Load, r.notNows.brake)
	r.poller = poll.New(r.Env, poll.Parts{
		Backlog: r.backlog, Timing: r.timing, Receive: r.receive, LobbyFull: r.lobby.full,
		UntilIdle: r.o.UntilIdle, Recorder: func() *record.Recorder { return r.recorder },
		Blocked: func(q *queues.Queue) func() bool { return r.settlers.Of(q).Full },
	})
	r.spills = &spillWatch{Env: r.Env, poller: r.poller, marks: map[spillKey]*spillMark{}}
	r.work, r.endWork = context.WithCancelCause(tracing.Without(context.WithoutCancel(ctx)))
	return r
}

// connect loads the workload, waiting for it if need be, and checks that this
// process can reach all of it.
func (r *run) connect(ctx context.Context) error {
	if err := r.start.load(ctx); err != nil {
		return err
	}
	if err := r.heed(r.Workload); err != nil {
		return err
	}
	// This process would read other queues than those that tasks are put into (P6.6), or promise
	// another delivery (P3.8).
	if err := setup.SpecOf(r.Cfg).Check(r.Workload); err != nil {
		return err
	}
	if err := setup.CheckPerKey(r.o.PerKey, r.Workload.Shared); err != nil {
		return err
	}
	if err := r.start.refuseRival(ctx, r.endRun); err != nil {
		return err
	}
	if err := r.start.pinReducer(ctx, r.handler); err != nil {
		return err
	}
	if r.o.Make {
		if err := r.start.makeQueues(ctx); err != nil {
			return err
		}
	}
	r.foreign = jsonline.NewForeign(r.Cfg.ForeignEncoding, r.Workload.ForeignKey)
	if r.o.Results {
		r.results = record.NewKeeper(r.Env)
	}
	r.recorder = record.NewRecorder(r.Env, record.Parts{
		Keeper: r.results,
		Timing: r.timing, Follow: r.follow, GetMore: r.poller.Wake,
		Answered: r.poller.AllAnswer, Unread: func() time.Duration {
			seconds, _ := r.unread(time.Now())
			return time.Duration(seconds * float64(time.Second))
		},
	})
	r.segments = &segments{
		Env: r.Env, recorder: r.recorder, owned: &owned{segments: map[uint32][]*message.Delivery{}},
	}
	r.trials = trial.New(r.Env, trial.Parts{
		Backlog: r.backlog, Keeper: r.keeper, Recorder: r.recorder,
		Open: func(d *message.Delivery) { r.open(r.Wire, d) },
	}, trial.Options{
		MaxAttempts: func() int { return r.timing.Retry().MaxAttempts },
		Handlers:    r.o.Concurrency, Timeout: r.o.Timeout,
	})
	r.settlers = settle.New(r.Env, settle.Parts{
		Timing: r.timing, Keeper: r.keeper, Backlog: r.backlog, Poller: r.poller, Recorder: r.recorder,
		Results: r.results, Trials: r.trials, Disown: r.segments.disown,
	})
	setup.WarnExtra(r.Log, setup.SpecOf(r.Cfg).Extra(r.Workload))
	setup.WarnUnread(r.Log, setup.SpecOf(r.Cfg).ExtraQueues(r.Workload))
	for _, s := range r.Workload.Map.Shards { // draining ones too: they must become empty
		if _, err := r.Queues.Queue(s.Account, s.Queue); err != nil {
			return err
		}
	}
	return nil
}

// launch starts everything but the poller, which Run is.
func (r *run) launch() {
	r.Background.Go(func() { r.keeper.Run(r.Wire) })
	r.Background.Go(func() { r.workers.watch(r.Wire) })
	r.Background.Go(func() { r.reportProgress(r.Wire) })
	r.Background.Go(func() { r.spills.run(r.Wire) })
	r.Background.Go(func() { r.closeRuns(r.Wire) })
	if r.sampler != nil {
		r.Background.Go(func() { r.sampler.Keep(r.Wire) })
	}
	if c := r.recorder; c != nil {
		r.Background.Go(func() { c.Fence(r.Wire) })
		r.Background.Go(func() { c.Committer.Run(r.Wire) })
		r.Background.Go(func() { c.Prune(r.Wire) })
		r.Background.Go(func() { c.Checker.Check(r.Wire) })
	}
	if k := r.results; k != nil {
		r.Background.Go(func() { k.Run(r.Wire) })
	}
	r.Background.Go(func() { r.Tallies.Keep(r.Wire, r.beat, r.Jitter) })
	for range openers(r.Cfg.Sim.Seeding.Turn != nil) {
		r.Background.Go(func() { r.openAll(r.Wire) })
	}
	r.workers.start()
}

// openers is how many messages are opened at once: unpacking is work for a processor.
func openers(simulated bool) int {
	if simulated {
		return 2 // on every machine
	}
	return max(2, runtime.GOMAXPROCS(0))
}

// summary is what was done so far.
func (r *run) summary() Summary {
	c := &r.Counts
	s := Summary{
		Instance: r.Cfg.Instance, Handled: c.Handled.Load(), Failed: c.Failed.Load(),
		Rejected: c.Rejected.Load(), Retried: c.Retried.Load(), Released: c.Released.Load(),
		Skipped: c.Skipped.Load(), NotNow: c.NotNow.Load(), Quarantined: c.Quarantined.Load(),
		Duplicates: c.Duplicates.Load(), Dropped: c.Dropped.Load(),
		Foreign: c.Foreign.Load(), Passed: c.Passed.Load(), Forwarded: c.Forwarded.Load(),
		Split: c.Split.Load(), Lost: c.Lost.Load(),
		Results: c.Results.Load(), ResultBytes: c.ResultBytes.Load(),
		Objects: c.Objects.Load(), ObjectsRefused: c.ObjectsRefused.Load(),
		Envelopes: c.Envelopes.Load(), Recorded: c.Recorded.Load(), Commits: c.Commits.Load(),
		Seconds: r.gate.working(r.Began).Seconds(),
	}
	if phase(r.phase.Load()) == phaseWaiting {
		s.Waiting = r.gate.name
	}
	s.Requests, s.Throttled = r.Queues.Requests()
	s.Latency = r.latency.total()
	return s
}
