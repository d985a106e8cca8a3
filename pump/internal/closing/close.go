package closing

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// How often runs that may be finished are looked at: seldom while there is nothing to do, else soon
// again until nothing is left to do.
const (
	Every      = 15 * time.Second
	closeAgain = 2 * time.Second
	// closeTogether is how many runs are ended at once if there are more than closeAlone: at 20 ms a
	// request some four hundred a second.
	closeTogether = 16
	closeAlone    = 8
	// observedMost is how much of the time between two looks counts as observed silence: a control
	// plane that was dark for an hour kept clients from beating, too.
	observedMost = time.Minute
	// refreshRuns is how often a run's own row is read although its row among the live runs has not
	// changed.
	refreshRuns = 10 * time.Minute
	// SumsEvery is how often the ledger is summed up although no live run needs it: it may know runs
	// whose rows are gone.
	SumsEvery = time.Minute
)

// When runs end that no process ends; see "The life of a run" in docs/protocols.md.
const (
	SilentBeats    = 4 // after that many missed a client seems gone
	AbandonAfter   = 10 * time.Minute
	AbandonPressed = time.Minute
	OverAfter      = time.Hour
	OverPressed    = 5 * time.Minute
	// Pressure is the part of a bound from which on runs are given less time.
	Pressure = 0.5
)

// Closer ends finished runs (P3.7, and "The life of a run" in docs/protocols.md), so that the
// ledger can drop what it keeps of them. It looks at live runs only, not at all runs that there
// ever were. Any number of processes may do it at the same time.
type Closer struct {
	workload string
	segments int
	once     bool // the ledger records what is done
	queues   *queues.Set
	Runs     *workload.Runs
	log      *slog.Logger
	retired  retired
	// Results has results of runs that are gone swept away.
	Results bool
	swept   sweeping

	Known             map[pump.RunID]*observed // runs that live, or that only the ledger knows
	looked            time.Time                // when the last pass saw what lives
	summed            time.Time                // and the ledger
	sums              *ledger.Sums             // nil: it was not read in this pass
	whole             *ledger.Sums             // as it was read last; nil: not of all segments
	use               ledger.Use               // when it was read last
	pressing, failing logs.Limited
	// changed is whether the last pass changed something, upon which the next one may do more.
	changed atomic.Bool
	listed  workload.Prunable // as this process wrote it last
	wrote   bool
	told    ends
	// Far learns how far the queues are read, horizon is what it said in this pass.
	Far     func(context.Context) (Horizon, error)
	horizon Horizon
	view    *cluster.View // that showed it, or nil
	waits   waiting
	// Unfinished is how many runs wait for their ends, for observers of this process.
	Unfinished *atomic.Int64
	// Remaining is how many tasks of runs that are not over are neither done nor in quarantine; -1:
	// this process does not know.
	Remaining *atomic.Int64
	// absent are runs that the ledger knows but that have no row, and since when.
	absent map[pump.RunID]time.Time
}

// observed is what was seen of a run, look after look.
type observed struct {
	live    workload.LiveRun
	listed  bool // in this pass
	sum     workload.RunSum
	tally   workload.Tally
	tallied bool
	indexed bool // where its results are is kept
	// silent is for how long the row was the same. quiet is for how long, as far as this process
	// looked, nothing of the run was met or recorded while the queues were read beyond its last sign.
	silent, quiet time.Duration
	// since is when the last sign of the run was seen, or until when something of it is hidden;
	// from is when quiet began to count.
	since, from time.Time
	refreshed   time.Time
	asked       time.Time // how old it is; see unproven.go
}

// New makes a closer of a workload. It makes no request.
func New(cfg *pump.Config, f *queues.Set, w *workload.Workload) *Closer {
	return &Closer{
		workload: cfg.Workload, segments: w.Map.Segments, once: w.Delivery == string(pump.Once),
		queues: f, Runs: workload.NewRuns(f.Control, cfg.Workload), log: cfg.Log,
		Known: map[pump.RunID]*observed{}, absent: map[pump.RunID]time.Time{},
		Unfinished: new(atomic.Int64), Remaining: new(atomic.Int64),
		told:  ends{told: logs.Limited{Every: endsEvery}},
		waits: waiting{told: logs.Limited{Every: waitsEvery}},
	}
}

// Pass ends what can be ended, and says whether there may be more to do soon. An error ends it
// early, or concerns some runs only; the next pass makes up for it.
func (c *Closer) Pass(ctx context.Context) (more bool, err error) {
	c.changed.Store(false)
	live, err := c.Runs.Live(ctx)
	if err != nil {
		return false, err
	}
	now := time.Now()
	gap := time.Duration(0)
	if !c.looked.IsZero() {
		gap = min(now.Sub(c.looked), observedMost)
	}
	c.looked = now
	// The horizon is read before the notes of met tasks: a message delivered by then is noted by now,
	// or will be while the run is quiet.
	if c.horizon, err = c.Far(ctx); err != nil {
		c.log.Debug("how far the queues are read is not known", "error", err)
	}
	damage, err := c.sum(ctx, live)
	if err != nil {
		return false, err
	}
	w := &closing{c: c, damaged: damage != nil}
	c.observe(live, gap)
	wait := 0
	for i := range live {
		w.judge(&live[i])
		if c.once && WaitsForEnd(live[i].State, live[i].Over) {
			wait++
		}
	}
	c.Unfinished.Store(int64(wait))
	c.countRemaining(live)
	c.tellWaits()
	w.strangers()
	more, err = w.carryOut(ctx)
	maps.DeleteFunc(c.Known, func(_ pump.RunID, k *observed) bool { return !k.listed })
	return more, errors.Join(damage, err)
}

// sum reads the ledger if that is worth it. Damage is about some segments only.
func (c *Closer) sum(ctx context.Context, live []workload.LiveRun) (damage, err error) {
	c.sums = nil
	worth := c.once && time.Since(c.summed) >= SumsEvery
	for i := range live {
		worth = worth || c.once && live[i].State != workload.RunOpen
	}
	if !worth {
		return nil, nil
	}
	sums, err := ledger.ReadSums(ctx, c.queues.Control, c.workload, c.segments)
	if sums == nil {
		return nil, err
	}
	c.sums, c.use, c.summed = sums, sums.Use, time.Now()
	if c.whole = sums; err != nil {
		c.whole = nil
	}
	c.warn()
	return err, nil
}

// warn says once in a while that a segment is near a bound.
func (c *Closer) warn() {
	if c.pressed() {
		c.pressing.Say(c.log.Warn,
			"a segment's ledger is half full or more; runs that no process continues end sooner, "+
				"and at the bound tasks of further runs wait until others have ended",
			UseAttrs(c.use)...)
	}
}

// UseAttrs says in the log how much of its bounds a segment uses.
func UseAttrs(use ledger.Use) []any {
	return []any{
		"segment", use.Segment, "runs", use.Runs, "runs_most", ledger.MaxLiveRuns, "pages", use.Pages,
		"pages_most", ledger.MaxPages,
		"bytes", use.Bytes, "bytes_most", ledger.MaxBytes, "foreign", use.Foreign, "foreign_most",
		ledger.MaxForeign,
	}
}

// pressed reports whether a segment is near a bound.
func (c *Closer) pressed() bool { return pressed(c.use) }

func pressed(use ledger.Use) bool { return use.Fullest() >= Pressure }

// observe notes what is the same as in the last look.
func (c *Closer) observe(live []workload.LiveRun, gap time.Duration) {
	for _, k := range c.Known {
		k.listed = false
	}
	for _, l := range live {
		k := c.Known[l.ID]
		if k == nil {
			k = &observed{refreshed: time.Now()}
			c.Known[l.ID] = k
		}
		k.listed = true
		if k.live.Version != l.Version {
			k.silent, k.tallied = 0, false
			k.sign(time.Now())
		} else {
			k.silent += gap
		}
		k.live = l
		c.observeSum(k, gap)
	}
}

func (c *Closer) observeSum(k *observed, gap time.Duration) {
	if c.sums == nil {
		return
	}
	now := time.Now()
	if sum := c.sums.Runs[k.live.ID]; sum != k.sum {
		k.sum, k.tallied = sum, false
		k.sign(now)
		return
	}
	if !c.horizon.At.After(k.since) {
		return
	}
	if k.from.IsZero() {
		k.from = now
	}
	k.quiet += gap
}

// sign notes that something of the run was seen, or is hidden until then.
func (k *observed) sign(until time.Time) { k.since, k.from, k.quiet = until, time.Time{}, 0 }

// isQuiet reports whether nothing of a run has happened for so long that it is over. All
// messages that the queues had when the quiet began must have been delivered, too: a message
// whose processor was killed comes back behind all others.
func (c *Closer) isQuiet(k *observed) bool {
	quiet := c.quietOf(&k.live)
	return k.quiet >= quiet && c.horizon.At.After(k.from.Add(quiet/2))
}

// patience is how long an open run may be without a beat.
func (c *Closer) patience(l *workload.LiveRun) time.Duration {
	switch {
	case c.pressed():
		return SilentBeats*l.Beat + AbandonPressed
	case Elected(l.Mode) || l.Mode == ModeNamed || l.Beat == 0:
		return c.retain() // a process that comes later continues it; or none promised to beat
	}
	return SilentBeats*l.Beat + AbandonAfter
}

// retain is how long what is over is kept.
func (c *Closer) retain() time.Duration { return c.queues.Values().Retention }

// quietFor is after how long without a sign a run is over.
func (c *Closer) quietFor() time.Duration { return QuietFor(c.use) }

// quietOf is quietFor of one run.
func (c *Closer) quietOf(l *workload.LiveRun) time.Duration {
	return quietOf(l.Mode, c.quietFor(), c.retain())
}

func quietOf(mode string, quiet, retain time.Duration) time.Duration {
	if mode == ModePosts { // no key is kept for longer than the retention
		return max(quiet, retain)
	}
	return quiet
}

// QuietFor is after how long without a met task a run is over, by how full ledgers are.
func QuietFor(use ledger.Use) time.Duration {
	if pressed(use) {
		return OverPressed
	}
	return OverAfter
}

// Keep makes passes until ctx ends, each if it is this process's turn.
func (c *Closer) Keep(ctx context.Context, j waits.Jitter, mine func(context.Context) bool) {
	wait := Every
	for n := uint64(0); waits.Wait(ctx, j.Around(wait, "close", c.workload, n)); n++ {
		last := wait
		wait = Every
		if !mine(ctx) {
			clear(c.Known) // what others see meanwhile is not observed here
			clear(c.absent)
			c.wrote = false
			c.looked = time.Time{}
			c.Unfinished.Store(0)
			c.Remaining.Store(-1)
			continue
		}
		more, err := c.Pass(ctx)
		switch {
		case c.changed.Load():
			wait = closeAgain
		case more: // what is left waits for others, such as the owners of segments
			wait = min(2*last, Every)
		}
		// One row that cannot be read must not keep what does not depend on it from its end.
		err = errors.Join(err, c.retire(ctx), c.sweep(ctx), c.resumeEnded(ctx))
		if c.retired.keys.more || c.swept.kept != nil {
			wait = closeAgain
		}
		c.failing.Tell(ctx, c.log, err,
			"runs and pauses that are done with could not all be ended; trying again",
			"runs and pauses that are done with are ended again")
	}
}

// write tells the owners of segments which runs are done with.
func (c *Closer) write(ctx context.Context, list workload.Prunable) error {
	if c.wrote && list.Equal(c.listed) {
		return nil
	}
	err := c.Runs.SetPrunable(ctx, list)
	if err == nil {
		c.listed, c.wrote = list, true
		c.changed.Store(true)
	}
	return err
}

func (c *Closer) abandon(ctx context.Context, l *workload.LiveRun, k *observed) error {
	const note = "its client no longer beats; what it put is done as always, " +
		"and its source can be sent to the end with: distributor runs repair"
	return c.ended(c.Runs.Abandon(ctx, l.ID, note), &c.told.abandoned, l.ID,
		"an open run is abandoned", "instance", l.Instance, "silent", k.silent.Round(time.Second))
}

// close closes a run when enough of it is done.
func (c *Closer) close(ctx context.Context, l *workload.LiveRun, k *observed) error {
	return c.ended(c.Runs.CloseSummed(ctx, l.ID, k.sum), &c.told.closed, l.ID,
		"a run is done and closed", "tasks", l.Tasks, "quarantined", k.sum.Quarantined)
}

// lookMet looks at what processors have noted of a run, and reports whether that is the same as
// before. If it has changed, the quiet time begins again.
func (c *Closer) lookMet(
	ctx context.Context, l *workload.LiveRun, k *observed,
) (same bool, err error) {
	tallies, err := workload.Tallies(ctx, c.queues.Control, c.workload, l.ID)
	if err != nil {
		return false, err
	}
	sum := workload.SumTallies(tallies)
	if k.tallied && k.tally == sum {
		return true, nil
	}
	k.tally, k.tallied = sum, true
	k.sign(time.Now().Add(sum.Hides))
	return false, nil
}

// over ends a run if no task of it was met for long enough.
func (c *Closer) over(ctx context.Context, l *workload.LiveRun, k *observed) error {
	if same, err := c.lookMet(ctx, l, k); !same || err != nil {
		return err
	}
	note := "nothing of it was met or recorded for " + k.quiet.Round(time.Second).String()
	return c.ended(c.Runs.Over(ctx, l.ID, note), &c.told.over, l.ID,
		"a run that was not finished has ended", "state", string(l.State), "done", k.sum.Done,
		"quarantined", k.sum.Quarantined)
}

// WaitsForEnd reports whether a run that no distributor continues is not over.
func WaitsForEnd(state workload.RunState, over bool) bool {
	return !over && (state == workload.RunBroken || state == workload.RunAbandoned ||
		state == workload.RunEnded)
}

// LedgerStatus is the use of the fullest ledger, as state and status show it.
func LedgerStatus(use ledger.Use) pump.LedgerStatus {
	return pump.LedgerStatus{
		Segment: use.Segment, Used: use.Fullest(), Runs: use.Runs, RunsMost: ledger.MaxLiveRuns,
		Pages: use.Pages, PagesMost: ledger.MaxPages, Bytes: use.Bytes, BytesMost: ledger.MaxBytes,
		Foreign: use.Foreign, ForeignMost: ledger.MaxForeign,
	}
}

// ModeEvery is the mode of a run that an elected leader made a while after the last one.
const ModeEvery = "every"

// ModeCron is the mode of a run that an elected leader made by a schedule.
const ModeCron = "cron"

// Elected reports whether a run of a mode is made by an elected leader.
func Elected(mode string) bool { return mode == ModeEvery || mode == ModeCron }

// ModeNamed is the mode of a run with a name, which may be given again.
const ModeNamed = "named"

// ModeClient is the mode of a run that a sender made. ModePosts is that of one that takes posts
// with keys: a post may be repeated, and so the run must not be over, as long as its key is kept.
const (
	ModeClient = "client"
	ModePosts  = "posts"
)

// OfClient reports whether a run of this mode is a sender's.
func OfClient(mode string) bool { return mode == ModeClient || mode == ModePosts }

// countRemaining adds up what is left of all runs that are not over. For an open run it is what was
// put, by its client's last beat. Without a new reading of the ledger the last number stands.
func (c *Closer) countRemaining(live []workload.LiveRun) {
	if !c.once {
		c.Remaining.Store(-1)
		return
	}
	if c.sums == nil && len(live) > 0 {
		return
	}
	left := int64(0)
	for i := range live {
		l := &live[i]
		if l.Err != nil || l.Over || l.State == workload.RunClosed {
			continue
		}
		put, sum := l.Put, c.sums.Runs[l.ID]
		if l.State == workload.RunSealed {
			put = l.Tasks
		}
		left += max(int64(put)-int64(sum.Done+sum.Quarantined), 0)
	}
	c.Remaining.Store(left)
}
