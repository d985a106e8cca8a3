package distributor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// RepairOptions are the options of [Distributor.Repair]. The zero value works.
type RepairOptions struct {
	// DryRun finds out what would be put, and puts nothing.
	DryRun bool
}

// RepairSummary is what a repair came to.
type RepairSummary struct {
	Run pump.RunID `json:"run"`
	// State is the run's when the repair began: "open", "sealed", "closed", "broken", "abandoned",
	// "ended".
	State  string `json:"state"`
	DryRun bool   `json:"dryRun"`
	// Tasks is how many the run has, by its source, Done and Quarantined how many of them
	// are recorded, and Missing the others, when the repair began.
	Tasks       uint64 `json:"tasks"`
	Done        uint64 `json:"done"`
	Quarantined uint64 `json:"quarantined"`
	Missing     uint64 `json:"missing"`
	// Lacking are the segments that something is missing of; never null.
	Lacking []pump.SegmentLack `json:"lacking"`
	// Messages is how many messages were in the queues when the repair began, null if that could not
	// be learned: what is missing may be in them, and is put again in any case.
	Messages  *int64 `json:"messages"`
	Put       int64  `json:"put"`       // tasks put and acknowledged
	Envelopes int64  `json:"envelopes"` // that they were put in
	// Sealed: the run was open or broken, and all of it is put now.
	Sealed    bool          `json:"sealed"`
	Requests  pump.Requests `json:"requests"`
	Throttled int64         `json:"throttled"`
	Seconds   float64       `json:"seconds"`
}

// Repair reads the source of a run again and puts those of its tasks that the ledger has neither
// done nor in quarantine, each under the identity it had. So nothing happens twice: a task that was
// not lost after all is recognised. The delivery mode must be [pump.Once].
//
// The source and the settings must be those of the run: the fingerprint is compared, then the whole
// source is read and counted before anything is put, and what was sealed is compared with that
// ([source.ErrSourceChanged]). A run that broke, or was left open by a distributor that is gone, is
// put to the end of its source and sealed, as its distributor would have done; if the source cannot
// be read to its end, as with a bad line under [BadLineFail], the run cannot be repaired. An open
// run whose distributor is at work is refused (pump.ErrRunState), and so is a run whose source
// cannot be read again ([source.ErrNotReplayable]). A closed run lacks nothing.
//
// It uses the options that say how to read and put. Progress is that of reading twice; only the
// second reading puts. The summary is valid with an error as well. Do not call Repair concurrently
// with itself or with Run.
func (d *Distributor) Repair(
	ctx context.Context, run pump.RunID, o RepairOptions,
) (RepairSummary, error) {
	defer d.stage.begin(ctx)()
	s := newMembership(d)
	d.running.Store(s)
	defer d.running.Store(nil)
	defer s.end(ctx)
	r := &repair{
		d: d, o: o, began: time.Now(),
		summary: RepairSummary{Run: run, DryRun: o.DryRun, Lacking: []pump.SegmentLack{}},
	}
	before, throttled := d.fleet.Requests()
	err := r.repair(ctx)
	all, now := d.fleet.Requests()
	r.summary.Requests, r.summary.Throttled = queues.Since(all, before), now-throttled
	r.summary.Seconds = time.Since(r.began).Seconds()
	return r.summary, err
}

// repair is one Repair.
type repair struct {
	d     *Distributor
	o     RepairOptions
	began time.Time

	run     workload.Run
	source  source.Source // as it was looked up
	counts  []uint64      // tasks of each segment, by the source
	missing []gapCursor   // by segment

	summary RepairSummary
}

func (r *repair) repair(ctx context.Context) error {
	if err := r.find(ctx); err != nil || r.run.State == workload.RunClosed {
		return err
	}
	kept, done := r.keep(ctx)
	defer done()
	err := r.mend(kept)
	if err != nil && ctx.Err() == nil && kept.Err() != nil {
		err = context.Cause(kept)
	}
	return err
}

// mend repairs a run that is found.
func (r *repair) mend(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.compare, r.count, r.plan} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := r.confirm(ctx); err != nil || r.o.DryRun || r.run.State == workload.RunClosed {
		return err
	}
	if r.summary.Missing > 0 {
		// The second reading gives what the first one gave.
		if err := r.compare(ctx); err != nil {
			return err
		}
		if err := r.put(ctx); err != nil {
			return err
		}
	}
	if r.run.State == workload.RunSealed {
		return nil
	}
	if err := r.d.runs.Mend(ctx, r.run.ID, r.counts); err != nil {
		return fmt.Errorf("every missing task was put, but the run could not be sealed: %w", err)
	}
	r.summary.Sealed = true
	return nil
}

// find reads the run's row, and refuses a run that cannot be repaired from any source.
func (r *repair) find(ctx context.Context) error {
	d := r.d
	if err := d.Prepare(ctx); err != nil {
		return err
	}
	w := d.router.Current().Workload
	if err := setup.NeedOnce(w.Delivery, "delivery", "a repair"); err != nil {
		return err
	}
	var err error
	if r.run, err = d.runs.Get(ctx, r.summary.Run); err != nil {
		return err
	}
	r.summary.State = string(r.run.State)
	switch r.run.State {
	case workload.RunClosed:
		r.summary.Tasks, r.summary.Done = r.run.Tasks, r.run.Tasks
		return nil
	case workload.RunOpen:
		by, err := closing.AtWork(ctx, &d.cfg.Config, d.fleet, &r.run, d.times().Lease)
		if err == nil && by != "" {
			err = fmt.Errorf("run %s: %w: it is open, and %s is at work on it; wait until it has ended",
				r.run.ID, pump.ErrRunState, by)
		}
		return err
	case workload.RunEnded:
		return hasEnded(&r.run)
	}
	if n := len(r.run.Sealed); r.run.State == workload.RunSealed && n != w.Map.Segments {
		return fmt.Errorf("run %s: %w: it was sealed with %d segments, and the workload has %d",
			r.run.ID, pump.ErrRunState, n, w.Map.Segments)
	}
	return nil
}

// keepEvery is how often a repair gives a sign of life of its run: a run that no distributor
// continues is over after five minutes, or more, without a sign.
const keepEvery = time.Minute

// keep gives signs of life of a run that no distributor continues, until done is called: to read a
// large source twice may take longer than such a run lives. The context ends when the run does.
// *Without these signs a run was over by then, and the ledger had forgotten it: all of it was put
// again.*
func (r *repair) keep(ctx context.Context) (kept context.Context, done func()) {
	if r.o.DryRun || r.run.State == workload.RunSealed { // which waits for a repair for a retention
		return ctx, func() {}
	}
	kept, end := context.WithCancelCause(ctx)
	var g sync.WaitGroup
	g.Go(func() {
		j := waits.Jitter(r.d.cfg.Instance)
		for n := uint64(0); ; n++ {
			err := r.d.runs.Keep(kept, r.run.ID)
			if errors.Is(err, pump.ErrRunState) || errors.Is(err, pump.ErrNoRun) {
				end(err)
			}
			if !waits.Wait(kept, j.Around(keepEvery, "keep", r.run.ID.String(), n)) {
				return
			}
		}
	})
	return kept, func() {
		end(nil)
		g.Wait()
	}
}

// confirm reads the run's row again, after the ledger: the ledger forgets a run's tasks only after
// its row says that it is closed or over. A run that is closed by now lacks nothing.
func (r *repair) confirm(ctx context.Context) error {
	run, err := r.d.runs.Get(ctx, r.run.ID)
	switch {
	case err != nil:
		return err
	case run.State == workload.RunEnded:
		return hasEnded(&run)
	case run.State == workload.RunClosed:
		r.run = run
		r.summary.Tasks, r.summary.Done, r.summary.Quarantined = run.Tasks, run.Tasks, 0
		r.summary.Missing, r.summary.Lacking = 0, []pump.SegmentLack{}
	}
	return nil
}

// hasEnded refuses a run that cannot be sealed and whose further tasks would go to quarantine.
func hasEnded(run *workload.Run) error {
	return fmt.Errorf("run %s: %w: it has ended: %s", run.ID, pump.ErrRunState, run.Note)
}

// compare compares source and settings with those of the run (P2.3, P2.4).
func (r *repair) compare(ctx context.Context) error {
	if r.run.Fingerprint == "" {
		return fmt.Errorf("run %s: %w", r.run.ID, source.ErrNotReplayable)
	}
	of := r.d.begin()
	if err := r.d.fix(ctx, of); err != nil {
		return err
	}
	r.source = of.source
	print := r.d.fingerprint(of.print)
	switch {
	case of.live:
		return source.ErrNotReplayable
	case print != r.run.Fingerprint:
		return fmt.Errorf("run %s: %w: %s",
			r.run.ID, source.ErrSourceChanged, strings.Join(differences(r.run.Fingerprint, print), "; "))
	}
	return nil
}

// differences says in words how two fingerprints differ; see Distributor.fingerprint.
func differences(was, is string) (said []string) {
	a, b := strings.SplitN(was, " ", 4), strings.SplitN(is, " ", 4)
	if len(a) < 4 || len(b) < 4 {
		return []string{fmt.Sprintf("it was %q and is %q", was, is)}
	}
	for i, what := range []string{
		"the version of the program's numbering", "the number of segments",
		"what is done with bad lines (--on-bad-line)",
	} {
		if a[i] != b[i] {
			said = append(said, fmt.Sprintf("%s was %s and is %s", what, value(a[i]), value(b[i])))
		}
	}
	kindA, _, knownA := strings.Cut(a[3], ":")
	kindB, _, knownB := strings.Cut(b[3], ":")
	switch {
	case knownA && knownB && kindA != kindB:
		said = append(said, fmt.Sprintf("the kind of source was %s and is %s", kindA, kindB))
	case a[3] != b[3]:
		said = append(said, "the source is another one or was changed: the files, their order, sizes, "+
			"times of change (a copy must keep them) and first 64 KiB, "+
			"and --key, --id, --encoding and --max-line must be as they were")
	}
	return said
}

// value is what stands behind the equals sign, if there is one.
func value(s string) string {
	if _, v, ok := strings.Cut(s, "="); ok {
		return v
	}
	return s
}

// count reads the whole source and numbers its tasks, and puts nothing. Only then is it known that
// tasks will be put under their former identities.
func (r *repair) count(ctx context.Context) error {
	d := r.d
	dist := r.reading()
	src, err := r.source.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer src.Close()
	dist.read = &pack.Segmenter{
		Source: src, Counts: make([]uint64, d.router.Current().Workload.Map.Segments), Count: &dist.count,
		Whole: codec.Header{Workload: d.cfg.Workload, Run: r.run.ID}, Trial: codec.NewBuilder(0),
		Wanted: func(uint32, uint64) bool { return false }, Bodies: d.bodies(d.cfg.Log),
		OnBad: func(bad *source.BadInput, _ int) error { return r.passOver(dist, bad) },
	}
	done := dist.watch(ctx)
	err = dist.read.Read(ctx, ctx)
	done()
	if err == nil {
		err = unchanged(src)
	}
	if err != nil {
		return err
	}
	r.counts = dist.read.Counts
	r.summary.Tasks = uint64(dist.count.Tasks.Load())
	if r.run.State != workload.RunSealed {
		return nil
	}
	for s, n := range r.counts {
		if sealed := r.run.Sealed[s]; n != sealed {
			return fmt.Errorf("run %s: %w: the source has %d tasks, %d of them in segment %d, "+
				"and the run was sealed with %d, and %d in that",
				r.run.ID, source.ErrSourceChanged, r.summary.Tasks, n, s, r.run.Tasks, sealed)
		}
	}
	return nil
}

// passOver is for a bad line that is only met: it counts, or ends what cannot go on.
func (r *repair) passOver(dist *run, bad *source.BadInput) error {
	if r.d.opts.OnBadLine == BadLineFail {
		return bad
	}
	dist.count.Skipped.Add(1)
	return nil
}

// reading makes a distribution of this run.
func (r *repair) reading() *run {
	dist := r.d.begin()
	dist.repairs = true
	dist.source = r.source
	dist.id, dist.log = r.run.ID, r.d.cfg.Log.With("run", r.run.ID.String())
	return dist
}

// plan learns from the ledger which tasks are missing.
func (r *repair) plan(ctx context.Context) error {
	d := r.d
	r.missing = make([]gapCursor, len(r.counts))
	for rec, err := range ledger.ReadRecord(ctx, d.fleet.Control, d.cfg.Workload, len(r.counts)) {
		if err != nil {
			return fmt.Errorf("what is done of the run could not be learned: %w", err)
		}
		n := r.counts[rec.Segment]
		var missing uint64
		gaps := &r.missing[rec.Segment]
		for from, to := range rec.Unsettled(r.run.ID, n) {
			gaps.spans = append(gaps.spans, gap{from, to})
			missing += to - from
		}
		done, quarantined := rec.Counts(r.run.ID)
		if done+quarantined != n-missing {
			return fmt.Errorf("run %s: %w: of segment %d more tasks are recorded than the source has",
				r.run.ID, source.ErrSourceChanged, rec.Segment)
		}
		if missing > 0 {
			r.summary.Lacking = append(r.summary.Lacking,
				pump.SegmentLack{Segment: rec.Segment, Tasks: missing})
		}
		r.summary.Done += done
		r.summary.Quarantined += quarantined
		r.summary.Missing += missing
	}
	messages, err := d.fleet.CountAll(ctx, d.cfg.Workload)
	if err != nil {
		d.cfg.Log.Warn("whether the missing tasks are in the queues still could not be learned",
			"error", err)
		return nil
	}
	r.summary.Messages = &messages
	if messages > 0 && r.summary.Missing > 0 {
		d.cfg.Log.Warn("messages are left in the queues, and missing tasks may be in them; what "+
			"is put again is recognised",
			"messages", messages, "missing", r.summary.Missing)
	}
	return nil
}

// put reads the source once more and puts what is missing.
func (r *repair) put(ctx context.Context) error {
	dist := r.reading()
	dist.wanted = func(segment uint32, n uint64) bool { return r.missing[segment].has(n) }
	if r.run.State == workload.RunSealed {
		// A run is sealed after its bad lines were put into quarantine (P2.2), where they would then be
		// twice. No row says which lines of another run were bad.
		dist.onBad = func(bad *source.BadInput, _ int) error { return r.passOver(dist, bad) }
	}
	dist.log.Info("putting what is missing", "tasks", r.summary.Missing,
		"segments", len(r.summary.Lacking))
	r.d.stage.hasRun(dist)
	how, err := dist.sendAll(ctx)
	r.summary.Put, r.summary.Envelopes = dist.count.Acked.Load(), dist.count.Envelopes.Load()
	switch {
	case err == nil && how != endOfSource:
		err = errors.Join(fmt.Errorf("%w: what is still missing was not put; repair the run again",
			errBroken),
			context.Cause(ctx))
	case err == nil && !slices.Equal(dist.read.Counts, r.counts):
		err = fmt.Errorf("run %s: %w while it was read; what was put may have been "+
			"other tasks than were lost",
			r.run.ID, source.ErrSourceChanged)
	}
	r.d.stage.ended(dist, err)
	return err
}

// gap is the n of from <= n < to.
type gap struct{ from, to uint64 }

// gapCursor finds out which n of a segment are missing, when they are asked for in order.
type gapCursor struct{ spans []gap }

func (c *gapCursor) has(n uint64) bool {
	for len(c.spans) > 0 && c.spans[0].to <= n {
		c.spans = c.spans[1:]
	}
	return len(c.spans) > 0 && c.spans[0].from <= n
}
