package distributor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/distributor/internal/send"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// How a distribution can end before its source does.
var (
	errGraceOver = errors.New(
		"the distributor was told to stop, and the time for sending what was read is over",
	)
)

// run is one process's part in one run: from the start or a checkpoint
// to the end of the source, a stop or a failure.
type run struct {
	d      *Distributor
	id     pump.RunID
	runs   *workload.Runs       // of this distribution's term
	row    workload.Run         // of the run, as this process made or found it
	from   *workload.Checkpoint // where to begin; nil: at the start
	source source.Source        // what is read: the distributor's, as it was looked up
	print  string               // the source's fingerprint
	live   bool                 // the source cannot be read again
	reader source.Reader        // of a source that was looked at and not read yet, or nil
	first  *pack.FirstRecord
	unread *pack.SourceError // why the source could not be read to its end here
	broken bool              // the run's row says so
	over   atomic.Bool       // the run's row says that it may not go on
	end    context.CancelCauseFunc
	beaten atomic.Pointer[beaten]
	said   atomic.Int64 // the time between beats that the last one said
	asked  row.Flight   // of beats before puts
	// repairs: it puts again what is missing of a run that another process made.
	repairs bool
	save    func(ctx context.Context, checkpoint []byte) error
	leads   context.Context // ends when leadership does; nil without an election
	// wanted and onBad are the segmenter's, of a repair; nil: every task, and what the options say.
	wanted func(segment uint32, n uint64) bool
	onBad  func(bad *source.BadInput, interval int) error
	log    *slog.Logger
	count  pack.Tally
	begun  time.Time
	// took is how long it took until the run was sealed. completion is how the wait for its tasks
	// ended, if there was one.
	took       time.Duration
	again      string // the state of a named run that was sent before
	name       string // of a run of a due time
	try        int    // the how manieth run of its due time; 0: not known
	completion *pump.Completion
	// before and beforeThrottled are what the process had asked for when this began.
	before          pump.Requests
	beforeThrottled int64

	read    *pack.Segmenter
	put     *send.Putter
	packing sync.WaitGroup // the lanes, and bodies on their way
}

// ending is how a distribution ended that did not fail.
type ending uint8

const (
	endOfSource ending = iota // everything was put and acknowledged
	endOfGrace                // told to stop; what was read may not have been sent in time
	endStopped                // told to stop; what was read was put and acknowledged
)

// sendAll moves the source's tasks into the queues.
//
// The stages: this goroutine reads; the lanes pack; workers of the sinks put; the checkpointer
// saves. A full sink blocks the lane, and a full lane blocks the reader. Nothing blocks puts and
// checkpoints. The first stage that fails ends all.
//
// Three contexts end them. reading ends when ctx does, softly: no more records,
// but what was read is packed and put. work ends every stage at once, when one has
// failed or all ends: after the grace, when leadership is lost (P5.2), or when reading failed.
func (r *run) sendAll(ctx context.Context) (ending, error) {
	reader, err := r.open(ctx)
	if err != nil {
		return 0, &pack.SourceError{Err: err}
	}
	defer reader.Close()

	all, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	if r.leads != nil {
		defer context.AfterFunc(r.leads, func() { end(context.Cause(r.leads)) })()
	}
	stages, work := errgroup.WithContext(all)
	reading, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() {
		stop(source.ErrHalted)
		grace, cancel := r.d.grace.Begin(all, r.d.opts.Grace)
		context.AfterFunc(grace, func() {
			cancel()
			end(errGraceOver) // all has another cause if that has ended it
		})
	})()

	r.end = end
	r.beaten.Store(&beaten{time.Now(), 0}) // the row was written or read just now
	check := r.assemble(stages, work, reader)
	for _, l := range r.read.Lanes {
		r.pack(stages, func() error { return l.Run(work) })
	}
	acknowledged := make(chan struct{}) // everything that was read
	if check != nil {
		stages.Go(func() error { return check.Run(work, acknowledged) })
	}
	var watching sync.WaitGroup
	watching.Go(r.put.Watch)
	defer watching.Wait() // after end, below
	defer end(nil)
	defer r.watch(all)()
	routes := send.Follower{
		Router: r.d.router, Log: r.log, Instance: r.d.cfg.Instance, MarkSpill: r.markSpill,
		Rounds: &r.d.loops.Map,
	}
	defer routes.Start(all)()
	defer r.keepBeating(all)()

	stopped, err := r.readOn(work, reading, check != nil)
	if err != nil {
		end(err) // what is open is not sent: the run is broken, or another continues it
	}
	for _, l := range r.read.Lanes {
		l.Close()
	}
	r.packing.Wait()
	r.put.Wait() // after the lanes, which add to it
	close(acknowledged)
	if err = stages.Wait(); err != nil {
		// What ended the work came first; what a stage gave after that may follow from it.
		return r.cutShort(context.Cause(work), check)
	}
	if cause := context.Cause(all); cause != nil {
		return r.cutShort(cause, check)
	}
	if !stopped {
		return endOfSource, unchanged(reader)
	}
	if check != nil {
		// Everything before this instant is acknowledged, so another distributor can continue without
		// sending anything twice.
		r.flush(check, r.read.Snapshot())
	}
	return endStopped, nil
}

// pack does a step before everything that was read is packed.
func (r *run) pack(stages *errgroup.Group, step func() error) {
	r.packing.Add(1)
	stages.Go(func() error {
		defer r.packing.Done()
		return step()
	})
}

// readOn reads the source to its end, or until it is stopped there.
func (r *run) readOn(work, reading context.Context, saves bool) (stopped bool, err error) {
	err = r.read.Read(work, reading)
	// A failure in the moment of the stop is a failure: the reader may stand behind a bad line.
	stopped = err != nil && reading.Err() != nil &&
		(errors.Is(err, source.ErrHalted) || errors.Is(err, context.Canceled))
	if !stopped && saves && !r.live && troubled(err) {
		// Another, or this one later, reads on where this ends.
		r.unread, _ = errors.AsType[*pack.SourceError](err)
		stopped = true
	}
	if stopped {
		return true, nil
	}
	return false, err
}

// cutShort saves what can still be saved after a hard end.
func (r *run) cutShort(cause error, check *pack.Checkpointer) (ending, error) {
	if cause != errGraceOver {
		return 0, cause
	}
	if check != nil {
		r.flush(check, nil)
	}
	return endOfGrace, nil
}

func (r *run) flush(check *pack.Checkpointer, final *pack.Barrier) {
	ctx, cancel := context.WithTimeout(r.leads, lastWords)
	defer cancel()
	if err := check.Flush(ctx, final); err != nil {
		r.log.Warn("the last checkpoint could not be saved; the next leader sends some tasks again",
			"error", err)
	}
}

// unchanged is an error if a source that was read to its end cannot be what was read.
func unchanged(from source.Reader) error {
	if s, ok := from.(source.Lasting); ok {
		if err := s.Unchanged(); err != nil {
			return &pack.SourceError{Err: err}
		}
	}
	return nil
}

// goOn has the run continue at a checkpoint; nil: from its start.
func (r *run) goOn(checkpoint []byte) error {
	segments := r.d.router.Current().Workload.Map.Segments
	r.from = &workload.Checkpoint{Counts: make([]uint64, segments)}
	if checkpoint == nil {
		return nil
	}
	saved, err := workload.DecodeCheckpoint(checkpoint, segments)
	if err != nil {
		return err
	}
	r.from = saved
	r.count.Tasks.Store(saved.Tasks())
	r.count.Acked.Store(saved.Tasks())
	return nil
}

func (r *run) open(ctx context.Context) (source.Reader, error) {
	if opened := r.reader; opened != nil {
		r.reader = nil
		return opened, nil
	}
	if r.from == nil || len(r.from.Cursor) == 0 { // taken over before the first checkpoint
		return r.source.Open(ctx, nil)
	}
	return r.source.Open(ctx, r.from.Cursor)
}

// assemble builds the stages from the source to the sinks.
func (r *run) assemble(
	stages *errgroup.Group, work context.Context, from source.Reader,
) *pack.Checkpointer {
	d, w := r.d, r.d.router.Current().Workload
	track := pack.NewTracker(d.cfg.Sim.Lanes)
	o := send.Options{
		Ctx: work, Stages: stages, Log: r.log, Hooks: &d.fleet.Cfg.Hooks,
		Jitter: waits.Jitter(d.cfg.Instance), Turn: d.cfg.Sim.Seeding.Turn, Router: d.router,
		Count: &r.count, Acked: track.Done, Delivered: r.delivered, Loops: &d.loops, Stake: d.stake(),
		Proven: r.proven,
	}
	r.put = send.NewPutter(o)
	head := codec.Header{Workload: w.Name, Run: r.id, MapVersion: w.Map.Version}
	age := d.opts.SealAge
	if _, slow := r.source.(*stream); age == 0 && (r.live || slow || d.opts.MaxRate > 0) {
		age = slowSealAge
	}
	lanes := make([]*pack.Lane, d.cfg.Sim.Lanes)
	for i := range lanes {
		lanes[i] = pack.NewLane(&pack.Packer{
			Head: head, Most: d.opts.Pack, MaxHeld: pack.DefaultMaxOpen / d.cfg.Sim.Lanes,
			Opened: track.Opened, Open: make([]*pack.OpenEnvelope, w.Map.Segments/d.cfg.Sim.Lanes+1),
			Stride: d.cfg.Sim.Lanes, Emit: r.put.Send, MapVersion: d.mapVersion,
			Writes: d.router.Writes, Limit: d.router.Limit,
		})
		lanes[i].SealAge = max(age, 0)
		lanes[i].Passed, lanes[i].Turn, lanes[i].Name = track.Passed, d.cfg.Sim.Seeding.Turn,
			strconv.Itoa(i)
	}
	r.read = &pack.Segmenter{
		Source: from, Counts: make([]uint64, w.Map.Segments), Lanes: lanes, Tracker: track,
		Count: &r.count, Whole: head, Trial: codec.NewBuilder(0),
		Quarantines: d.opts.OnBadLine == BadLineQuarantine,
	}
	r.read.Wanted, r.read.OnBad, r.read.First = r.wanted, r.onBad, r.first
	if t := d.tracer; t != nil {
		r.read.Trace = func(ctx context.Context, segment uint32, n uint64) []byte {
			return t.Created(ctx, coordination.TaskRef{Run: head.Run, Segment: segment, N: n})
		}
	}
	if most := d.opts.MaxRate; most > 0 {
		r.read.Pace = rate.NewLimiter(rate.Limit(most), max(1, int(most/20)))
	}
	if r.onBad == nil {
		r.read.OnBad = r.badLine
	}
	r.read.Put, r.read.Bodies = r.put.Send, d.bodies(r.log)
	if b := r.read.Bodies; b != nil {
		b.Go = func(step func() error) { r.pack(stages, step) }
	}
	if in, is := r.source.(*intake); is {
		in.posts.of.Store(r)
	}
	if r.from != nil {
		copy(r.read.Counts, r.from.Counts)
		r.read.BadLines, r.read.PoisonLines = r.from.Skipped, r.from.Quarantined
		r.count.Tasks.Store(r.from.Tasks())
		r.count.Acked.Store(r.from.Tasks()) // the barrier was complete
		r.count.Skipped.Store(int64(r.from.Skipped))
		r.count.Quarantined.Store(int64(r.from.Quarantined))
		r.read.BarrierAt = r.from.Tasks()
	}
	if r.save == nil {
		return nil
	}
	check := &pack.Checkpointer{
		Tracker: track, Save: r.save, Lanes: lanes, Log: r.log, Turn: d.cfg.Sim.Seeding.Turn,
		Every: d.cfg.Sim.CheckpointEvery, Age: d.cfg.Sim.BarrierAge,
		Max: d.cfg.Sim.MaxUnsaved, Saved: make(chan struct{}, 1),
	}
	check.SavedTasks.Store(r.count.Tasks.Load())
	r.read.Check = check
	_, r.read.Stalls = r.source.(*stream)
	return check
}

// bodies is what puts the bodies of large tasks into blobs; nil: nothing does.
func (d *Distributor) bodies(log *slog.Logger) *pack.Bodies {
	if d.opts.BlobAbove == 0 {
		return nil
	}
	store := &bodies.Store{
		Queues: d.fleet, Workload: d.cfg.Workload, Jitter: waits.Jitter(d.cfg.Instance), Log: log,
		Active: func() map[string]bool {
			return queues.ActiveAccounts(d.router.Current().Workload.Map)
		},
	}
	if !d.opts.repeats() {
		store.Patience = refusedFor
	}
	return &pack.Bodies{
		Above: d.opts.BlobAbove, Store: store, MapVersion: d.mapVersion, Turn: d.cfg.Sim.Seeding.Turn,
	}
}

// refusedFor is for how long a command goes on while every account refuses a body.
const refusedFor = time.Minute

func (d *Distributor) mapVersion() uint64 { return d.router.Current().Workload.Map.Version }

// loggedBadLines is how many bad lines of a run are named in the log; a file of bad lines must not
// become a log of the same size.
const loggedBadLines = 20

// badLine does with a bad line what the options say.
func (r *run) badLine(bad *source.BadInput, interval int) error {
	switch r.d.opts.OnBadLine {
	case BadLineSkip:
		if n := r.count.Skipped.Add(1); n <= loggedBadLines {
			r.log.Warn("skipped a bad record", "where", bad.Where, "error", bad.Err)
		}
		return nil
	case BadLineQuarantine:
		segment := shardmap.Segment(bad.Raw, len(r.read.Counts))
		c, err := send.BadLine(r.d.cfg.Workload, r.d.cfg.Instance, r.id, bad, segment, interval)
		if err != nil {
			return fmt.Errorf("%s cannot be quarantined: %w", bad.Where, err)
		}
		if r.read.PoisonLines < loggedBadLines {
			r.log.Warn("quarantining a bad record", "where", bad.Where, "error", bad.Err)
		}
		// Counted before it is sent: until it is acknowledged no later barrier
		// may be saved (P2.2).
		r.read.Tracker.Opened(interval)
		return r.put.Send(c)
	}
	return bad
}

func (r *run) delivered(into *send.Sink, m *pack.Message) {
	if s := r.d.running.Load(); s != nil {
		s.delivered(into, m)
	}
}

// markSpill has a choice of segments marked by this process's member.
func (r *run) markSpill(ctx context.Context, segments []uint32, choice int) error {
	s := r.d.running.Load()
	if s == nil {
		return member.ErrOutside
	}
	m := s.member.Load()
	if m == nil {
		return member.ErrOutside // a guest whose queues are in trouble joins
	}
	return m.MarkSpill(ctx, segments, choice)
}

// watch reports progress until the returned function is called.
func (r *run) watch(all context.Context) (finish func()) {
	report := r.d.opts.Progress
	if report == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(all)
	var g sync.WaitGroup
	g.Go(func() {
		waits.Every(ctx, 200*time.Millisecond, func(time.Time) { report(r.progress()) })
	})
	return func() {
		cancel()
		g.Wait()
		report(r.progress())
	}
}

func (r *run) progress() Progress {
	c := &r.count
	return Progress{
		Run: r.id, Tasks: c.Tasks.Load(), Envelopes: c.Envelopes.Load(), BytesIn: c.BytesIn.Load(),
		BytesSent: c.Sent.Load(), Skipped: c.Skipped.Load(), Quarantined: c.Quarantined.Load(),
		Done: c.Done.Load(), Total: c.Total.Load(),
	}
}

// summary is called after run, and after the run's row has its end.
func (r *run) summary() Summary {
	c := &r.count
	total, throttled := r.d.fleet.Requests()
	return Summary{
		Run: r.id, Tasks: c.Tasks.Load(), Envelopes: c.Envelopes.Load(), BytesIn: c.BytesIn.Load(),
		BytesSent: c.Sent.Load(), Requests: queues.Since(total, r.before),
		Throttled: throttled - r.beforeThrottled, Seconds: cmp.Or(r.took, time.Since(r.begun)).Seconds(),
		Skipped: c.Skipped.Load(), Quarantined: c.Quarantined.Load(), Resent: c.Resent.Load(),
		Resumed: r.from != nil, Again: r.again, Completion: r.completion,
	}
}

// newRun draws the id of a new run.
func newRun(s sim.Seeding, workload string) pump.RunID {
	if s.Draw == nil {
		return codec.NewRunID()
	}
	return row.SeededRunID(s.Draw, workload)
}
