package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

const (
	// commitEvery is how far apart commits of a partition begin at least. A crash repeats what was
	// done since the begin of the last answered commit.
	commitEvery = 50 * time.Millisecond
	// partitionMost and accountMost bound the entities that the commits of all processes ask one
	// partition and the control account for in a second: a quarter of what the service publishes,
	// because both get many other requests. A process has the share of the segments that it holds.
	partitionMost = 2000 / 4
	accountMost   = 20000 / 4
	// aloneMost is what a process that holds all segments asks a partition for: no other process adds
	// to that, and the process sees each refusal itself. So 64 segments are written every 50 ms.
	aloneMost = 1280
	// latePart is the part of the visibility that a result waits for a commit at most. The message's
	// lease is renewed after a third, so most deliveries still cost no renewal.
	latePart = 6
	// uncommittedMost bounds how many deliveries of all partitions may wait before nothing
	// more is got, and uncommittedPart of MaxBytes the texts they hold (P5.6). At a
	// kilobyte each it is 16 MiB.
	uncommittedMost = 16384
	uncommittedPart = 4
	// lostResults is how long results of a lost segment wait while the control plane does not tell
	// whether they can still be recorded. Their messages stay hidden that long, from a new owner too
	// if the control plane is dark for this process alone.
	lostResults = 15 * time.Minute
)

// Committer records the results of waiting deliveries, those of one partition of the ledger
// together, and hands each delivery back to its settler. One goroutine decides; each commit has its
// own, one at a time for a partition.
type Committer struct {
	c    *Recorder
	Wake chan struct{}
	// patience ends when commits that are not answered are given up.
	patience context.Context
	GiveUp   context.CancelFunc
	keeper   *Keeper // nil: results are not kept

	queue struct {
		sync.Mutex              // guards what follows
		partitions []*partition // by number
		waiting    int          // deliveries, in partitions or being recorded
		bytes      int64        // of text that they hold
		gathered   time.Time    // when results were put last
		putting    bool         // they are being put
	}
}

// partition is what waits for a commit to one partition of the ledger.
type partition struct {
	number  int
	waiting []*message.Delivery // in the order in which they came
	lines   int                 // of their results
	size    int64               // bytes of them
	hurried bool                // it is not waited for next
	busy    bool                // a commit is under way
	next    time.Time           // when the next commit may begin, for the load of the last
	fails   uint64              // commits without an outcome since the last that had one
	after   time.Time           // when one may begin after those
}

func newCommitter(c *Recorder) *Committer {
	m := &Committer{c: c, Wake: make(chan struct{}, 1)}
	m.patience, m.GiveUp = context.WithCancel(c.r.Wire)
	return m
}

// Add takes a delivery whose effects are done and whose copies are acknowledged. Its settler goes
// on with the delivery once the entries are recorded, or are not to be.
func (m *Committer) Add(d *message.Delivery) {
	r := m.c.r
	number := m.c.Ledger.Partition(d.Header.Segment)
	_, held := r.Member.Load().Hold(d.Header.Segment)
	d.Settler.Park(d)
	q := &m.queue
	q.Lock()
	defer q.Unlock()
	i, found := slices.BinarySearchFunc(q.partitions, number, func(p *partition, n int) int {
		return cmp.Compare(p.number, n)
	})
	if !found {
		q.partitions = slices.Insert(q.partitions, i, &partition{number: number})
	}
	p := q.partitions[i]
	p.waiting = append(p.waiting, d)
	p.lines += len(d.Plan.Lines)
	p.size += d.Kept.Load()
	// it is being handed over, or is lost; or the next trial waits for it
	p.hurried = p.hurried || !held || d.Trial
	q.waiting++
	q.bytes += int64(d.Held)
	// else it is known when p is due
	if len(p.waiting) == 1 || p.hurried || m.fullLocked() || m.keeper != nil {
		waits.Signal(m.Wake)
	}
}

// Hurry has the results of some segments recorded now.
func (m *Committer) Hurry(segments []uint32) {
	q := &m.queue
	q.Lock()
	defer q.Unlock()
	for _, p := range q.partitions {
		p.hurried = p.hurried ||
			slices.ContainsFunc(p.waiting, func(d *message.Delivery) bool {
				return slices.Contains(segments, d.Header.Segment)
			})
	}
	waits.Signal(m.Wake)
}

// Full reports whether too many results wait to get more messages (P5.6).
func (m *Committer) Full() bool {
	m.queue.Lock()
	defer m.queue.Unlock()
	return m.fullLocked()
}

func (m *Committer) fullLocked() bool {
	return m.queue.waiting >= uncommittedMost || m.queue.bytes >= m.c.r.MaxBytes/uncommittedPart
}

// Uncommitted is how many deliveries wait.
func (m *Committer) Uncommitted() int {
	m.queue.Lock()
	defer m.queue.Unlock()
	return m.queue.waiting
}

// Run commits until ctx ends.
func (m *Committer) Run(ctx context.Context) {
	waits.Loop(ctx, m.Wake, func() time.Duration {
		m.c.r.Cfg.Sim.Seeding.Turn.Wait("commit")
		return m.round()
	})
}

// round starts the commits that are due and says how long nothing will be.
func (m *Committer) round() (wait time.Duration) {
	now := time.Now()
	q := &m.queue
	q.Lock()
	defer q.Unlock()
	wait = time.Hour
	var due []*partition
	for _, p := range q.partitions {
		if p.busy || len(p.waiting) == 0 {
			continue
		}
		at := p.after
		if !p.hurried && !m.c.r.Stopping.Load() && !m.fullLocked() && p.next.After(at) {
			at = p.next
		}
		if at.After(now) {
			wait = min(wait, at.Sub(now))
			continue
		}
		due = append(due, p)
	}
	if m.keeper != nil && len(due) > 0 {
		return min(wait, m.gather(due, now))
	}
	for _, p := range due {
		batch := p.take()
		m.c.r.Background.Go(func() { m.commit(p, batch) })
	}
	return wait
}

// take gives what waits in a partition, for one commit.
func (p *partition) take() []*message.Delivery {
	batch := p.waiting
	p.waiting, p.busy, p.hurried, p.lines, p.size = nil, true, false, 0, 0
	return batch
}

// apart is how far apart two commits of a partition are to begin if the first asked for so many
// entities. The process holds held of all segments of the partition; the workload has segments.
func apart(entities, held, all, segments int, visibility time.Duration) time.Duration {
	most := partitionMost
	if all == segments {
		most = aloneMost
	}
	each := min(float64(most)/ledger.PartitionSegments, accountMost/float64(segments))
	d := time.Duration(float64(entities) / (each * float64(max(held, 1))) * float64(time.Second))
	return min(max(d, commitEvery), visibility/latePart)
}

// commit records a batch and hands its deliveries back.
func (m *Committer) commit(p *partition, batch []*message.Delivery) {
	m.c.r.Cfg.Sim.Seeding.Turn.Wait("record", fmt.Sprint(p.number))
	// Contributions and requests must not depend on the order in which goroutines came (P9).
	slices.SortFunc(batch, func(a, b *message.Delivery) int { return strings.Compare(a.ID, b.ID) })
	var entries []*ledger.Entry
	for _, d := range batch {
		if err := d.Plan.Unkept; err != nil {
			for _, e := range d.Plan.Entries {
				e.Err = err
			}
			continue
		}
		entries = append(entries, d.Plan.Entries...)
	}
	ctx, cancel := context.WithTimeout(m.patience, lostResults)
	began := time.Now()
	entities := m.c.Ledger.Commit(ctx, entries)
	m.c.r.Counts.Commits.Add(1)
	cancel()
	var again []*message.Delivery
	batch = slices.DeleteFunc(batch, func(d *message.Delivery) bool {
		if m.outcome(d) {
			return false
		}
		again = append(again, d)
		return true
	})
	held, all := m.c.Holds(p.number)
	segments := m.c.r.Workload.Map.Segments
	next := began.Add(apart(entities, held, all, segments, m.c.parts.Timing.Lease()))
	m.leave(p, batch, again, next)
	for _, d := range batch {
		d.Settler.Unpark(d)
	}
}

// leave ends a commit: batch is on its way, again waits once more.
func (m *Committer) leave(p *partition, batch, again []*message.Delivery, next time.Time) {
	q := &m.queue
	q.Lock()
	wasFull := m.fullLocked()
	if len(again) > 0 {
		p.fails++
		p.waiting = append(again, p.waiting...)
		for _, d := range again {
			p.lines += len(d.Plan.Lines)
			p.size += d.Kept.Load()
		}
		p.after = time.Now().Add(m.c.r.Jitter.Around(waits.Doubled(fenceBase, fenceMost, p.fails),
			"commit", fmt.Sprint(p.number), p.fails))
	} else {
		p.fails = 0
	}
	p.busy, p.next = false, next
	q.waiting -= len(batch)
	for _, d := range batch {
		q.bytes -= int64(d.Held)
	}
	calm := wasFull && !m.fullLocked()
	q.Unlock()
	waits.Signal(m.Wake)
	if calm {
		m.c.parts.GetMore()
	}
}

// outcome derives from the commit of a delivery's entries how the delivery is settled. It is false
// if the entries are to be recorded once more: their commit is not known yet, and no other owner
// stops them.
func (m *Committer) outcome(d *message.Delivery) (known bool) {
	c, s := m.c, d.Plan
	var worst error
	for _, e := range s.Entries {
		switch {
		case e.Err == nil:
			c.r.Counts.Recorded.Add(int64(tasksOf(e)))
		case worst == nil || errors.Is(e.Err, ledger.ErrFenced):
			worst = e.Err
		}
	}
	switch {
	case worst == nil:
		tellKept(c.r, d)
		s.Entries, s.Recorded = nil, true
		c.recordedState(d)
		return true
	case errors.Is(worst, ledger.ErrResultsMoved):
		return false // they are put once more, behind those
	case errors.Is(worst, ledger.ErrFenced):
		// Another owner does these tasks, or has done them: the results are dropped (P3.5).
		waits.Signal(c.Fencer.wake) // or none does, as the rows came back older
		c.r.Log.Info("results came after another owner of their segment; they are dropped",
			append(d.Attrs(), "error", worst)...)
		s.PutBack(d, 0)
	case errors.Is(worst, ledger.ErrStateFull):
		c.endEntries(d)
		s.PutBack(d, c.refusedState(d, worst))
	case !mayPass(worst):
		c.r.AlarmOnce("ledger", "results cannot be recorded; their messages go back for a while",
			append(d.Attrs(), "error", worst)...)
		c.endEntries(d)
		s.PutBack(d, c.r.Jitter.Around(fullDelay, "full", d.ID, s.Tries))
	case m.patience.Err() == nil && c.r.Member.Load().Keeps(d.Header.Segment):
		return false
	default:
		c.r.Lines.Of("unrecorded").Say(c.r.Log.Warn,
			"results could not be recorded; their message is delivered again",
			append(d.Attrs(), "error", worst)...)
		c.endEntries(d)
		s.PutBack(d, 0)
	}
	return true
}

// mayPass reports whether an error of a commit lies with the control plane, and not with the
// results or the rows: a full ledger, a damaged row, a state that cannot be encoded.
func mayPass(err error) bool {
	_, storage := queues.AsError(err)
	return storage || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// endEntries takes the tasks of entries that are not recorded out of hand.
func (c *Recorder) endEntries(d *message.Delivery) {
	for _, e := range d.Plan.Entries {
		switch {
		case e.Err == nil:
		case e.Foreign != "":
			c.Ledger.EndForeign(e.Segment, e.Epoch, e.Foreign)
		default:
			c.End(d, e.Done)
			c.End(d, e.Quarantined)
		}
	}
}

func tasksOf(e *ledger.Entry) int {
	if e.Foreign != "" {
		return 1
	}
	return e.Done.Len() + e.Quarantined.Len()
}

// Enter makes the entries of a delivery whose settling is planned, and takes what will not be
// recorded out of hand. poison are the tasks to be copied into quarantine.
func (c *Recorder) Enter(d *message.Delivery, s *message.Plan, poison []message.ToQuarantine) {
	verdicts, _ := d.Outcomes.All()
	switch w := d.Whole; {
	case !c.Once && w != nil: // there is nothing to contribute
	case w != nil && (w.Record || w.Reason != "") && d.Begun.Len() > 0:
		e := &ledger.Entry{
			Segment: d.Header.Segment, Epoch: d.Epoch, Run: d.Header.Run, Generation: d.Header.Generation,
		}
		if w.Record {
			e.Done = d.Begun
		} else {
			e.Quarantined = d.Begun
		}
		s.Entries = append(s.Entries, e)
	case w != nil && w.Record:
		for k := range d.Starts() {
			s.Entries = append(s.Entries, c.foreignEntry(d, d.At(k)))
		}
	case w != nil || verdicts == nil:
		c.End(d, d.Begun)
	case d.Header.Run == (pump.RunID{}) || d.Runless:
		c.enterForeign(d, s)
	default:
		c.enterTasks(d, s, poison)
	}
	d.Begun = codec.NSet{}
}

func (c *Recorder) enterTasks(d *message.Delivery, s *message.Plan, poison []message.ToQuarantine) {
	var done, poisoned, rest []uint64
	verdicts, _ := d.Outcomes.All()
	for _, p := range poison {
		poisoned = append(poisoned, d.N(p.Task))
	}
	slices.Sort(poisoned)
	for k := range d.Starts() {
		i := d.At(k)
		n := d.N(i)
		switch v := verdicts[i]; {
		case v == message.Finished || v == message.Skipped:
			done = append(done, n)
		default:
			if _, found := slices.BinarySearch(poisoned, n); !found {
				rest = append(rest, n)
			}
		}
	}
	c.End(d, codec.MakeNSet(rest...))
	done = slices.AppendSeq(done, d.Named.All())
	if len(done)+len(poisoned) == 0 {
		return
	}
	e := &ledger.Entry{
		Segment: d.Header.Segment, Epoch: d.Epoch, Run: d.Header.Run, Generation: d.Header.Generation,
		Done: codec.MakeNSet(done...), Quarantined: codec.MakeNSet(poisoned...),
		Contributions: d.Contributed(),
	}
	if c.Once || len(e.Contributions) > 0 {
		s.Entries = append(s.Entries, e)
	}
}

// enterForeign does the same for tasks without a run. A task in quarantine needs no record: a
// redrive puts it back under the same identity, and it is to be done then.
func (c *Recorder) enterForeign(d *message.Delivery, s *message.Plan) {
	var rest []int
	verdicts, _ := d.Outcomes.All()
	for k := range d.Starts() {
		i := d.At(k)
		if v := verdicts[i]; v == message.Finished || v == message.Skipped {
			s.Entries = append(s.Entries, c.foreignEntry(d, i))
		} else {
			rest = append(rest, i)
		}
	}
	if c.Once {
		c.EndForeign(d, rest)
	}
}

// foreignEntry records one task without a run.
func (c *Recorder) foreignEntry(d *message.Delivery, i int) *ledger.Entry {
	e := &ledger.Entry{Segment: d.Header.Segment, Epoch: d.Epoch, Foreign: d.Name(i)}
	if d.Contributions == nil || d.Contributions[i] == nil {
		return e
	}
	if verdicts, _ := d.Outcomes.All(); verdicts[i] == message.Finished {
		e.Contributions = []ledger.Contribution{{Value: *d.Contributions[i]}}
	}
	return e
}

// Unquarantine gives up quarantining: those tasks come back with the message. Its done tasks are
// still recorded.
func (c *Recorder) Unquarantine(d *message.Delivery) {
	s := d.Plan
	s.Entries = slices.DeleteFunc(s.Entries, func(e *ledger.Entry) bool {
		c.End(d, e.Quarantined)
		e.Quarantined = codec.NSet{}
		return e.Foreign == "" && e.Done.Len() == 0
	})
}
