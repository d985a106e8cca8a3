package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Options says which candidate stands for election, with which times. Candidates of one workload
// should have equal times; where they differ, an observer takes the longer of its own and the
// leader's, and the shorter period decides when a distribution is due.
type Options struct {
	// Instance is this process's unique name.
	Instance string
	// Run, if it is not zero, has an election of its own: who sends this run. A term of it resumes the
	// run, without Begin. Default: the election of who makes the workload's next distribution.
	Run codec.RunID
	// Every is the pause between the end of a distribution and the next one.
	// Default 60 s.
	Every time.Duration
	// Cron, if it is not nil, says when distributions are due, in place of Every.
	Cron *Schedule
	// Beat is how often a leader writes the row. Default 5 s: with it ten candidates make a few
	// requests a second, and three lost beats end trust.
	Beat time.Duration
	// Lease is how long a beat is good for, less Margin for the leader, plus
	// Margin for all others. Default 4 x Beat.
	Lease time.Duration
	// Margin covers clocks of different speed and requests under way when trust ends. Default 3/20 of
	// Lease.
	Margin time.Duration
	// Times gives a beat and a lease that may have changed, before each look and each beat of a term.
	// Default: they do not change.
	Times func() (beat, lease time.Duration)
	// Left is asked before a term is won, with the epoch that the row says. Default: nothing is known.
	Left func(ctx context.Context, epoch uint64) (Left, error)
	// Log receives wins, losses and trouble. Default: nothing.
	Log *slog.Logger
	// Rounds counts what a term does to keep the row, while it lasts. Default: none looks.
	Rounds *waits.Counter
}

// Left is what is known of former terms besides the row, which may be gone, or may have come back
// older: its account failed over, or the table was restored.
type Left struct {
	// Epoch is that of the latest term that is known.
	Epoch uint64
	// Run is the open run, and RunEpoch the epoch of the term that began it or took it over; zero
	// without a run.
	Run      codec.RunID
	RunEpoch uint64
	// Checkpoint is the last one of Run that this process knows; nil: it knows none.
	Checkpoint []byte
	// Held says that this process led the term RunEpoch.
	Held bool
	// Made says that the row is gone, and runs of a schedule were made before.
	Made bool
}

func (o Options) withDefaults() (Options, error) {
	o.retime()
	o.Every = cmp.Or(o.Every, time.Minute)
	o.Beat = cmp.Or(o.Beat, 5*time.Second)
	o.Lease = cmp.Or(o.Lease, 4*o.Beat)
	o.Margin = cmp.Or(o.Margin, o.Lease*3/20)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Rounds = cmp.Or(o.Rounds, &waits.Counter{})
	if o.Left == nil {
		o.Left = func(context.Context, uint64) (Left, error) { return Left{}, nil }
	}
	switch {
	case o.Instance == "":
		return o, errors.New("election: Instance is empty")
	case o.Every < 0 || o.Beat < 0 || o.Margin < 0:
		return o, errors.New("election: Every, Beat and Margin must not be negative")
	case o.trust() < 2*o.Beat:
		return o, fmt.Errorf("election: Lease %v less Margin %v must be at least two beats of %v, "+
			"or one lost beat ends a term", o.Lease, o.Margin, o.Beat)
	}
	return o, nil
}

// retime takes times that may have changed.
func (o *Options) retime() {
	if o.Times == nil {
		return
	}
	beat, lease := o.Times()
	if beat != o.Beat || lease != o.Lease {
		o.Beat, o.Lease, o.Margin = beat, lease, lease*3/20
	}
}

func (o Options) times() row.Times {
	return row.Times{Beat: o.Beat, Lease: o.Lease, Margin: o.Margin}
}
func (o Options) trust() time.Duration   { return o.times().Trust() }
func (o Options) timeout() time.Duration { return o.times().Timeout() }

// longestWait bounds what Try tells its caller to wait: a row may change in
// unforeseen ways (an operator changes Every, or deletes the row).
const longestWait = time.Minute

// Election decides which of any number of distributors runs a workload's next
// distribution. The package documentation tells how.
type Election struct {
	options Options
	err     error  // of the options
	token   string // Instance and a random part: no other process, and no earlier one of that name
	row     row.Row[electionRow]
	draw    row.Draw

	// What follows belongs to the caller of Try.
	watch    row.Watch
	schedule schedule
	term     *Term
	seen     uint64 // the latest epoch that the row had
	led      string // who the row said leads, ...
	beats    uint64 // ... with how many beats when it was seen first
	looked   Looked
	alive    bool   // the leader may be alive
	rival    uint64 // the epoch in which the row had another schedule, if that was said
	// first is the server's time of the first look. Up to upTo due times are considered. next is the
	// due time after them. All are zero without a schedule.
	first, upTo, next time.Time
}

// New gives a candidate; it makes no request. Options that cannot work
// are reported by Try.
func New(t storage.Table, workloadName string, o Options) *Election {
	o, err := o.withDefaults()
	if err == nil {
		err = workload.CheckName(workloadName)
	}
	if err == nil {
		o.Log = o.Log.With("workload", workloadName, "instance", o.Instance)
	}
	e := &Election{
		options: o, err: err, draw: row.DrawOf(t), row: electionRowOf(t, workloadName, o),
	}
	e.schedule.clock = row.ServerClock{Table: t, Partition: e.row.Partition, Timeout: o.timeout()}
	e.token = row.TokenOf(t, o.Instance)
	return e
}

// Try looks once and, if a distribution is due or the leader is dead or gone, tries to become the
// leader. With a term the caller leads; it must end the term by Finish or Abandon and not call Try
// before it has ended. Without a term, another leads or no distribution is due: call again after
// wait, not much later, because a dead leader is recognised only by looking about once a beat. An
// error says that the look failed, ambiguously or not; wait is then the time to wait.
//
// ctx bounds this call and not the term. Try must not be called concurrently
// with itself.
func (e *Election) Try(ctx context.Context) (term *Term, wait time.Duration, err error) {
	if e.err != nil {
		return nil, longestWait, e.err
	}
	if e.term != nil && e.term.ctx.Err() == nil {
		return nil, e.options.Beat, errors.New("election: this instance leads already")
	}
	e.options.retime()
	e.row.Timeout = e.options.timeout()
	soon := e.draw.Jitter("look", e.row.Object(), e.options.Beat)
	v, err := e.row.Read(ctx)
	if err != nil {
		return nil, soon, fmt.Errorf("election: %w", err)
	}
	why, wait, err := e.judge(ctx, v)
	if err != nil {
		return nil, soon, fmt.Errorf("election: %w", err)
	}
	if why == "" {
		return nil, min(max(wait, time.Millisecond), max(longestWait, e.options.Beat)), nil
	}
	left, err := e.options.Left(ctx, v.Value.epoch)
	if err != nil {
		return nil, soon, fmt.Errorf("election: %w", err)
	}
	if left.Epoch > v.Value.epoch && !left.Run.IsZero() && !left.Held && e.alive {
		return nil, soon, nil // the holder of the run's checkpoint goes on with it, if it lives
	}
	term, err = e.win(ctx, v, left, why)
	if err != nil {
		return nil, soon, fmt.Errorf("election: %w", err)
	}
	if term == nil { // another was quicker, or the answer took too long
		return nil, e.draw.Jitter("lost", e.row.Object(), e.options.Beat/2), nil
	}
	e.term, e.seen = term, max(e.seen, term.Epoch)
	return term, 0, nil
}

// judge says why this instance may lead now, or after how long to look again.
func (e *Election) judge(
	ctx context.Context, v row.Version[electionRow],
) (why string, wait time.Duration, err error) {
	e.alive = e.watch.Look(v.ETag, v.Sent, v.Received,
		row.Longer(e.options.times(),
			row.Times{Beat: v.Value.beat, Lease: v.Value.lease, Margin: v.Value.margin}))
	if v.Value.leader != e.led || v.Absent() {
		e.led, e.beats = v.Value.leader, v.Value.beats
	}
	e.looked = Looked{
		Absent: v.Absent(), Leader: row.InstanceOf(e.led),
		Beats:    e.led != "" && v.Value.beats > e.beats && e.alive,
		Finished: !v.Absent() && v.Value.phase == Idle && v.Value.run == e.options.Run,
	}
	before := v.Value.epoch < e.seen
	if v.Value.epoch < row.MaxEpoch { // else the row is damaged, and may be mended
		e.seen = max(e.seen, v.Value.epoch)
	}
	if s := e.options.Cron; s != nil && v.Value.cron == s.Text {
		if e.upTo = later(e.upTo, v.Value.upTo); v.Value.phase == Running {
			e.next = s.Next(later(e.upTo, v.Value.made))
		}
	} else if s != nil && !e.upTo.IsZero() && !v.Absent() && v.Value.epoch != e.rival {
		e.rival = v.Value.epoch // since this candidate had its own schedule there
		e.options.Log.Error("another distributor has another schedule, so due times are left out: a "+
			"workload has one schedule", "by", e.looked.Leader, "its", v.Value.cron, "own", s.Text)
	}
	switch {
	case before && e.term != nil && e.term.Epoch == e.seen &&
		errors.Is(context.Cause(e.term.ctx), ErrDeposed):
		return "the row is not that of this instance's term any more, and no other led since", 0, nil
	case before && e.alive: // the last leader may live, and knows how far it came
		return "", e.draw.Jitter("look", e.row.Object(), e.options.Beat), nil
	case e.options.Cron != nil && (v.Absent() || v.Value.phase == Idle):
		return e.judgeDue(ctx, v.Value)
	case v.Absent() && time.Now().Before(e.schedule.due):
		return "", time.Until(e.schedule.due), nil
	case v.Absent():
		return "there was no leader before", 0, nil
	case v.Value.phase == Idle && !e.options.Run.IsZero():
		return "the run is not being sent", 0, nil
	case v.Value.phase == Idle:
		wait, err = e.schedule.untilDue(ctx, v, e.options.Every)
		if err != nil || wait > 0 {
			return "", wait, err
		}
		return "a distribution is due", 0, nil
	case v.Value.leader == "":
		return "the leader left", 0, nil
	case v.Value.leader == e.token:
		// A term of this very process, which has ended: no other process can hold it.
		return "this instance lost its term and no other took over", 0, nil
	case !e.alive:
		return "the leader's beat stopped", 0, nil
	}
	return "", e.draw.Jitter("look", e.row.Object(), e.options.Beat), nil
}

// win tries the compare-and-swap with an epoch above all known ones. It gives nil if another won.
func (e *Election) win(
	ctx context.Context, v row.Version[electionRow], left Left, why string,
) (*Term, error) {
	known := max(v.Value.epoch, left.Epoch, e.seen)
	if known >= row.MaxEpoch {
		return nil, fmt.Errorf("row %s: %w: no epoch is left", e.row.Object(), row.ErrCorrupt)
	}
	o := e.options
	next := electionRow{
		leader: e.token, epoch: known + 1, phase: Running,
		every: o.Every, beat: o.Beat, lease: o.Lease, margin: o.Margin, run: o.Run,
	}
	if v.Value.phase == Running && !v.Value.run.IsZero() {
		next.run, next.checkpoint, next.made = v.Value.run, v.Value.checkpoint, v.Value.made
	}
	if o.Cron != nil {
		now, err := e.now(ctx)
		if err != nil {
			return nil, err
		}
		next.cron, next.upTo, next.next = o.Cron.Text, e.base(v.Value, left, now), e.next
	}
	switch {
	case left.Run.IsZero(), left.RunEpoch < v.Value.epoch,
		left.RunEpoch == v.Value.epoch && v.Value.phase == Idle: // it had its end in that term
	case left.Run != next.run || left.Held || next.checkpoint == nil:
		next.run, next.checkpoint, next.made = left.Run, left.Checkpoint, time.Time{}
	}
	if known > v.Value.epoch {
		o.Log.Error("the election row was gone, or had come back as it was before: its account failed "+
			"over, or the table was restored", "epoch", v.Value.epoch, "known", known,
			"run", row.RunText(next.run), "checkpoint", len(next.checkpoint) > 0)
	}
	// A win that is learned of after its trust has ended is void.
	bounded, cancel := context.WithTimeout(ctx, o.trust())
	defer cancel()
	won, err := e.row.TryWrite(bounded, v, next)
	if errors.Is(err, row.ErrLost) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if row.ClockOf(e.row.Table).Since(won.Sent) >= o.trust() {
		o.Log.Warn("election won too late to be trusted", "epoch", next.epoch)
		return nil, nil
	}
	o.Log.Info("leading", "epoch", next.epoch, "because", why, "run", row.RunText(next.run))
	t := newTerm(e.row, o, e.draw, won)
	t.base, t.now = next.upTo, e.now
	return t, nil
}

// Looked is what the row said when Try read it last.
type Looked struct {
	Absent bool
	// Leader is the instance that leads; empty: none. Beats: it was seen to beat, so it lives.
	Leader string
	Beats  bool
	// Finished: the run of Options.Run was sent to its end.
	Finished bool
}

// Looked belongs to the caller of Try; Options.Left may call it.
func (e *Election) Looked() Looked { return e.looked }

// Status is what the election row says, for people.
type Status struct {
	// Leader is the instance that leads, or led last; empty if it left.
	Leader string
	Epoch  uint64
	Phase  Phase
	// Run is the run under way, or the last one.
	Run codec.RunID
	// Changed is the last write of the row, a beat while running, by the server's clock. Lease is for
	// how long that is good.
	Changed time.Time
	Lease   time.Duration
	// NextRun is when the next distribution is due, by the server's clock; zero while one is running
	// or before the first. Of a schedule it may have come, and its run not have begun.
	NextRun time.Time
	// Cron names the schedule, and Due is the due time of Run; zero without a schedule.
	Cron string
	Due  time.Time
	// Checkpoint is the size of the stored checkpoint in bytes.
	Checkpoint int
	// Saved is the stored checkpoint, as it was given to Save.
	Saved string
}

// Status reads the election row once. Before the first distribution all fields are zero except the
// phase, which is Idle.
func (e *Election) Status(ctx context.Context) (Status, error) {
	v, err := e.row.Read(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("election: %w", err)
	}
	if v.Absent() {
		return Status{Phase: Idle}, nil
	}
	r := v.Value
	s := Status{
		Leader: row.InstanceOf(r.leader), Epoch: r.epoch, Phase: r.phase, Run: r.run,
		Changed: v.Modified, Lease: r.lease, Checkpoint: len(r.checkpoint),
		Saved: string(r.checkpoint), Cron: r.cron, Due: r.made,
	}
	switch {
	case r.cron != "" && (r.phase == Idle || r.run.IsZero()):
		s.NextRun = r.next
	case r.phase == Idle:
		s.NextRun = v.Modified.Add(r.every)
	}
	return s, nil
}
