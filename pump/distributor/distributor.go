package distributor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/distributor/internal/send"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/tracing"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// BadLine says what becomes of a record that does not parse, lacks its key, or is too large for a
// message.
type BadLine string

// What to do with bad lines.
const (
	BadLineFail       BadLine = "fail"       // the run ends as broken, with the [*source.BadInput]
	BadLineSkip       BadLine = "skip"       // it is counted and logged
	BadLineQuarantine BadLine = "quarantine" // it is put into a poison queue, with its cause
)

// Options says how to distribute. The zero value works.
type Options struct {
	// Every repeats the distribution, this long after the end of the last. Any number of distributors
	// elect a leader for it; if the leader dies, another continues from the checkpoint. 0 distributes
	// once, without regard to others.
	Every time.Duration
	// Cron repeats the distribution at the due times of a schedule, in the fields of cron such as
	// "0 6 * * 1-5" or "@daily". A leader makes it as with Every, which it excludes. Each due time has
	// one run, and the time is the control account's. During a distribution the next one waits.
	Cron string
	// Timezone is that of Cron, such as Europe/Oslo. Default: UTC.
	Timezone string
	// Missed says what becomes of due times of Cron at which no distributor lived: "once" (the
	// default) has the latest made when one lives again; "skip" has none made, nor those that came
	// during a distribution.
	Missed string
	// Name lets the run be given again: it goes on where it stopped, and nothing is sent once all of
	// it was. While another process sends it, Run waits for a lease to learn whether that process
	// lives: if it does, the error is a [*TakenError], or with Wait Run goes on waiting. Another
	// source under the name is a [pump.ConfigError]. A source that can be read only once must give the
	// same from its start again; that is compared up to the last checkpoint. In mode at-least-once
	// what was put since then is put twice. The name is free again an hour after the run's row goes,
	// after the retention. At most 128 bytes. It excludes Every and Cron.
	Name string
	// Pack is the most tasks in one envelope. Default: as many as fit.
	Pack int
	// BlobAbove has the body of each task with more bytes put into a blob before its message:
	// handlers see no difference. It needs delivery mode [pump.Once], because a body can be removed
	// only when it is known that its task is done. Between 1 KiB and 44 KiB, which a message surely
	// holds; a body has 64 MiB at most. Default 0: none is, and a task that fits no message is bad.
	BlobAbove int
	// OnBadLine is for records that cannot be tasks. Default [BadLineFail].
	OnBadLine BadLine
	// SealAge is how long a task waits in an open envelope for others to fill it. While the source
	// gives more than the queues take, it is up to ten times as long. Default: 1 s with MaxRate, and
	// for a source that cannot be read again, because such a source may be slow. Other sources do not
	// stand still and have no bound. Negative: no bound.
	SealAge time.Duration
	// MaxRate is how many tasks a second are read from the source at most. The rate is that of one
	// distribution: of elected distributions one runs at a time. Default 0: no limit.
	MaxRate float64
	// Grace is how long a distributor that is told to stop goes on sending what
	// it has read. Default 20 s.
	Grace time.Duration
	// Beat and Lease are the times of the election and of the membership in the cluster: how often the
	// process says that it lives, and after how long without such a sign it counts as dead.
	Beat, Lease time.Duration
	// Wait, if it is not nil, makes Run wait after the one distribution until every task of
	// it is done or in quarantine; see runs.Wait. It needs delivery mode [pump.Once], and
	// excludes Every and Cron.
	Wait *pump.WaitOptions
	// Progress is called about five times a second while a run is under way, and
	// once at its end, never twice at once.
	Progress func(Progress)
	// OnRun is called after each distribution that this process took part in,
	// with the error that ended it, if any. With Every or Cron the errors of single
	// distributions are seen here and in the log only.
	OnRun func(Summary, error)
}

const (
	// defaultCheckpointEvery is the time between checkpoints: a takeover distributes a second of work
	// again, at a cost of 1.2 requests a second to one table.
	defaultCheckpointEvery = time.Second
	// defaultBarrierAge is how long a checkpoint waits for envelopes to fill before
	// they are sent as they are (P2.1, docs/protocols.md).
	defaultBarrierAge = 10 * time.Second
	// defaultMaxUnsaved bounds the tasks read since the last saved checkpoint, which a takeover
	// distributes again (P2.5); at the bound the distributor waits for the control plane. It is some
	// ten seconds of a fast machine.
	defaultMaxUnsaved = 4 << 20

	// slowSealAge is the default SealAge of a source that may be slow, or is made to be.
	slowSealAge = time.Second
)

func (o Options) withDefaults() (Options, error) {
	switch o.OnBadLine {
	case "":
		o.OnBadLine = BadLineFail
	case BadLineFail, BadLineSkip, BadLineQuarantine:
	default:
		return o, pump.Invalid("on-bad-line",
			fmt.Sprintf("%q is not possible", o.OnBadLine), "use fail, skip or quarantine")
	}
	for _, f := range []struct {
		field   string
		value   *time.Duration
		initial time.Duration
	}{
		{"every", &o.Every, 0},
		{"grace", &o.Grace, 20 * time.Second},
	} {
		if *f.value < 0 {
			return o, pump.Invalid(f.field, "it is negative", "use 0 or more")
		}
		if *f.value == 0 {
			*f.value = f.initial
		}
	}
	if err := setup.CheckMaxRate(o.MaxRate); err != nil {
		return o, err
	}
	if o.Wait != nil {
		wait, err := closing.CompleteWait(*o.Wait)
		if err != nil {
			return o, err
		}
		if o.repeats() {
			return o, pump.Invalid("wait", "a distribution that is made again and again has no end",
				"leave wait, every or cron out, and wait for single runs with: distributor runs wait RUN")
		}
		o.Wait = &wait
	}
	if o.Name != "" && o.repeats() {
		return o, pump.Invalid("name", "a distribution that is made again and again has a run each time",
			"leave name, every or cron out")
	}
	if o.Every > 0 && o.Cron != "" {
		return o, pump.Invalid("cron", "every says when to distribute, too", "leave cron or every out")
	}
	if err := checkName(o.Name); err != nil {
		return o, err
	}
	if o.BlobAbove != 0 && (o.BlobAbove < 1<<10 || o.BlobAbove > pack.SurelyFits) {
		return o, setup.OutOfRange("blob-above", o.BlobAbove,
			"use 1KiB to 44KiB, such as 40KiB, or leave it out")
	}
	if o.Pack < 0 {
		return o, pump.Invalid("pack", "it is negative", "use 1 or more, or leave it out")
	}
	return o, nil
}

// repeats reports whether distributions are made again and again, by an elected leader.
func (o *Options) repeats() bool { return o.Every > 0 || o.Cron != "" }

// Progress is how far a run has come.
type Progress struct {
	Run         pump.RunID
	Tasks       int64 // read, those before a takeover included
	Envelopes   int64 // acknowledged, by this process
	BytesIn     int64 // of the bodies of tasks, by this process
	BytesSent   int64 // of acknowledged message text, by this process
	Skipped     int64 // bad lines
	Quarantined int64 // bad lines
	// Done of Total is how much of the source has been read, in its own unit
	// (bytes or files); Total is 0 if it is not known.
	Done, Total int64
}

// Summary is the result of one distribution. Counts other than those of tasks and bad lines are of
// this process only; they leave out what an earlier leader of a resumed run did.
type Summary struct {
	Run       pump.RunID    `json:"run"`
	Tasks     int64         `json:"tasks"`     // in the run
	Envelopes int64         `json:"envelopes"` // put and acknowledged
	BytesIn   int64         `json:"bytesIn"`   // of the bodies of tasks
	BytesSent int64         `json:"bytesSent"` // of acknowledged message text
	Requests  pump.Requests `json:"requests"`
	Throttled int64         `json:"throttled"` // requests that were refused as too many
	// Seconds is from the start of the distribution to its end, without waiting for tasks to be done.
	Seconds     float64 `json:"seconds"`
	Skipped     int64   `json:"skipped"`     // bad lines left out
	Quarantined int64   `json:"quarantined"` // bad lines put into a poison queue
	// puts repeated after an answer that told nothing: possible duplicates
	Resent  int64 `json:"resent"`
	Resumed bool  `json:"resumed"` // begun by another process
	// Again is the state of a named run that had been sent before, so that nothing was put now:
	// "sealed", or "closed" once all of its tasks are done or in quarantine.
	Again string `json:"again,omitempty"`
	// Completion is how the run ended, with Options.Wait; nil if it came to no waiting.
	Completion *pump.Completion `json:"completion,omitempty"`
}

// Distributor reads tasks from a source and puts them into the queues of a
// workload. It makes the queues and the workload's rows if they are not there.
type Distributor struct {
	cfg    setup.Config
	opts   Options
	source source.Source
	fleet  *queues.Set
	runs   *workload.Runs
	tracer *tracing.Tracer
	mode   string // of the runs that it makes without an election
	stage  stage
	loops  send.Loops // of the distribution under way
	grace  waits.Grace
	// standing counts the steps to be elected and to stay elected, for any distribution and source.
	standing waits.Counter

	router  *send.Router               // where tasks go; it outlives Run
	running atomic.Pointer[membership] // of Run; nil outside of it

	saidExtra bool       // that accounts of the configuration are not in use
	alone     bool       // no other workload of its name was found
	unread    uint64     // how often in a row this process could not read the source when it led
	sealed    *sealedRun // the last that this process sealed as an elected leader
	led       uint64     // the epoch in which Run began a run last; 0: none, or not known
	held      heldRun    // zero: it had its end
	orphans   []workload.LiveRun
	cron      *election.Schedule        // nil: none
	nextDue   atomic.Pointer[time.Time] // of cron; nil or zero: not known
}

// Hurry shortens Options.Grace to most from now on, for a stop that comes or is under way: the
// machine has no more time. It may be called from any goroutine.
func (d *Distributor) Hurry(most time.Duration) { d.grace.Hurry(most) }

// Memory is how many bytes suffice for a process that distributes, as a goal of the garbage
// collector: the messages that may be open, those that may be on their way to the queues of the
// configuration or, once Run knows it, of the workload if that has more (64 MiB at least, so that
// the collector has room between them), and 48 MiB for lanes, sources, connections and stacks.
func (d *Distributor) Memory() int64 {
	queues := len(setup.Shards(d.cfg.Config))
	if r := d.router.Current(); r != nil {
		queues = max(queues, len(r.Workload.Map.Shards))
	}
	most := int64(pack.DefaultMaxOpen) + max(send.MemoryFor(queues), 64<<20) + 48<<20
	if d.opts.BlobAbove > 0 {
		most += 2 * pack.BodiesMemory
	}
	return most
}

// New checks the configuration; it makes no request.
func New(c pump.Config, from source.Source, o Options) (*Distributor, error) {
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
	cron, err := o.schedule(cfg.Retention)
	if err != nil {
		return nil, err
	}
	if s, ok := from.(source.Checked); ok {
		if err := s.Check(); err != nil {
			return nil, err
		}
	}
	if o.Wait != nil {
		if err := setup.NeedOnce(string(cfg.Delivery), "wait",
			"waiting for tasks to be done"); err != nil {
			return nil, err
		}
	}
	if o.BlobAbove > 0 {
		if err := setup.NeedOnce(string(cfg.Delivery), "blob-above",
			"knowing when the body of a task can go"); err != nil {
			return nil, err
		}
	}
	d := &Distributor{
		cfg: cfg, opts: o, source: from, tracer: tracing.New(&cfg.Config), mode: "once",
		cron: cron,
	}
	setup.Default(&d.cfg.Sim.Lanes, min(runtime.GOMAXPROCS(0), pack.MaxLanes))
	setup.Default(&d.cfg.Sim.CheckpointEvery, defaultCheckpointEvery)
	setup.Default(&d.cfg.Sim.BarrierAge, defaultBarrierAge)
	setup.Default(&d.cfg.Sim.SenderIdle, senderIdle)
	setup.Default(&d.cfg.Sim.MaxUnsaved, defaultMaxUnsaved)
	d.fleet = queues.Open(&cfg.Config)
	own := setup.ValuesOf(&c)
	own.Beat, own.Lease = o.Beat, o.Lease
	if err := setup.Begin(d.fleet, own, false); err != nil {
		return nil, err
	}
	d.runs = workload.NewRuns(d.fleet.Control, cfg.Workload)
	d.router = send.NewRouter(d.fleet, cfg.Log)
	d.router.Heeded = func() {
		if s := d.running.Load(); s != nil {
			s.member.Load().Heed()
		}
	}
	return d, nil
}

// Run distributes. Without Every and Cron it returns after the one distribution. It returns nil if
// it put every task with an acknowledgement and sealed the run, and with Wait if all tasks are done
// or in quarantine. If ctx ends earlier, Run sends what it has read (within Grace) and marks the
// run as broken.
//
// With Every or Cron it goes on until ctx ends, which does not count as an error: within Grace it
// sends what it has read and saves how far it came, so that another distributor continues there at
// once. Only errors that waiting does not mend end it earlier, such as a configuration that
// disagrees with the workload. The summary is of the last distribution.
//
// For the time of Run the distributor is a member of the workload's cluster, if that
// can be reached. While a queue is dark or at its limit, its tasks go to others.
//
// Run must not be called concurrently with itself.
func (d *Distributor) Run(ctx context.Context) (Summary, error) {
	defer d.stage.begin(ctx)()
	s := newMembership(d)
	d.running.Store(s)
	defer d.running.Store(nil)
	defer s.end(ctx)
	switch {
	case d.opts.repeats():
		return d.elected(ctx)
	case d.opts.Name != "":
		return d.named(ctx)
	}
	return d.once(ctx)
}

// errNotRunning says that no Run is there to take a configuration.
var errNotRunning = errors.New("the distributor does not run")

// Reload takes from a configuration, while Run goes on, the accounts that are new in it, the limits
// of budgets, the cap on what a day costs and prices. A new account can be added to the workload
// from then on (package accounts). Everything else stays as it was when Run began. A change of what
// cannot change is a [*pump.ConfigError], and then nothing has changed. It may be called from any
// goroutine.
func (d *Distributor) Reload(cfg pump.Config) error {
	s := d.running.Load()
	if s == nil && closing.OfClient(d.mode) { // a sender without a task
		_, err := setup.Reload(d.fleet, &d.cfg, cfg)
		return err
	}
	if s == nil {
		return errNotRunning
	}
	changed, err := setup.Reload(d.fleet, &d.cfg, cfg)
	if err != nil || !changed {
		return err
	}
	d.router.Reachable()
	s.member.Load().Reloaded()
	return nil
}
