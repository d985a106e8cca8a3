package processor

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
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
)

// When results are recorded. Each commit is a request, and each delivery costs one
// anyway (and a part of a get), so commits that wait for some hundred and forty requests of the
// others are 0.7 percent of them. Reading and fencing the ledger comes to that at the start, and all of it
// is to be less than two percent also of a run of ten seconds.
const (
	creditPerSecond  = 0.5
	creditPerRequest = 0.007
	// creditMost lets an idle process record the first few results at once.
	creditMost = 4
	// creditIdle is down to where a process records what it has when nothing else is in
	// hand: nobody else is going to share the commit. When nothing has come for creditQuiet either, it
	// goes down to creditEnd, for results of 1,024 segments wait in 16 partitions, and at the end
	// of a run the last of them waited for latePart: a run of five seconds took fifteen. Both are debts:
	// what comes next waits until they are earned again. Moments in which only gets are under way
	// are no end; they would use the debt up before.
	creditIdle  = -1
	creditEnd   = -16
	creditQuiet = 50 * time.Millisecond
	// latePart of the visibility is how long a result waits at most. The message's lease
	// is renewed after a third, so most deliveries still cost no renewal.
	latePart = 6
	// commitMost is how many deliveries of one partition wait for no credit.
	commitMost = 2048
	// uncommittedMost bounds how many deliveries of all partitions may wait before nothing
	// more is got, and uncommittedPart of MaxBytes the texts they hold (P5.6). At a
	// kilobyte each it is 16 MiB.
	uncommittedMost = 16384
	uncommittedPart = 4
	// lostResults is how long results wait whose segment this process has lost while the
	// control plane does not tell whether they can still be recorded. Their messages stay
	// hidden for it, from a new owner too, if it is only this process that the control plane
	// does not answer.
	lostResults = 15 * time.Minute
	// creditLook is how often it is looked at whether requests have earned a commit.
	creditLook = 25 * time.Millisecond
)

// committer records the results of deliveries that wait for it, those of one
// partition of the ledger together, and hands each back to its settler. One goroutine
// decides; each commit has one of its own, one at a time for a partition.
type committer struct {
	c    *recorder
	wake chan struct{}
	// patience ends when commits that are not answered are given up.
	patience context.Context
	giveUp   context.CancelFunc

	queue struct {
		sync.Mutex              // guards what follows
		partitions []*partition // by number
		waiting    int          // deliveries, in partitions or being recorded
		bytes      int64        // of text that they hold
		credit     float64      // commits
		paid       int64        // requests that credit was given for
		at         time.Time    // when that was
		came       time.Time    // the last delivery
	}
}

// partition is what waits for a commit to one partition of the ledger.
type partition struct {
	number  int
	waiting []*delivery // in the order in which they came
	since   time.Time   // when the first of them came
	hurried bool        // no credit is waited for
	busy    bool        // a commit is under way
	fails   uint64      // commits without an outcome since the last that had one
	after   time.Time   // not before then
}

func newCommitter(c *recorder) *committer {
	m := &committer{c: c, wake: make(chan struct{}, 1)}
	m.patience, m.giveUp = context.WithCancel(c.r.wire)
	m.queue.at, m.queue.credit = time.Now(), creditMost
	return m
}

// add takes a delivery whose effects are done and whose copies are acknowledged.
// Its settler goes on with it once its entries are recorded, or are not to be.
func (m *committer) add(d *delivery) {
	r := m.c.r
	number := m.c.ledger.Partition(d.header.Segment)
	_, held := r.member.Load().Hold(d.header.Segment)
	d.settler.park(d)
	q := &m.queue
	q.Lock()
	defer q.Unlock()
	i, found := slices.BinarySearchFunc(q.partitions, number, func(p *partition, n int) int { return cmp.Compare(p.number, n) })
	if !found {
		q.partitions = slices.Insert(q.partitions, i, &partition{number: number})
	}
	p := q.partitions[i]
	if len(p.waiting) == 0 {
		p.since = time.Now()
	}
	p.waiting = append(p.waiting, d)
	p.hurried = p.hurried || !held || d.trial // it is being handed over, or is lost; or the next trial waits for it
	q.waiting++
	q.bytes += int64(d.held)
	q.came = time.Now()
	backoff.Signal(m.wake)
}

// hurry has the results of some segments recorded now.
func (m *committer) hurry(segments []uint32) {
	q := &m.queue
	q.Lock()
	defer q.Unlock()
	for _, p := range q.partitions {
		p.hurried = p.hurried || slices.ContainsFunc(p.waiting, func(d *delivery) bool { return slices.Contains(segments, d.header.Segment) })
	}
	backoff.Signal(m.wake)
}

// full reports whether so many results wait that nothing more should be got (P5.6).
func (m *committer) full() bool {
	m.queue.Lock()
	defer m.queue.Unlock()
	return m.fullLocked()
}

func (m *committer) fullLocked() bool {
	return m.queue.waiting >= uncommittedMost || m.queue.bytes >= m.c.r.o.MaxBytes/uncommittedPart
}

// uncommitted is how many deliveries wait.
func (m *committer) uncommitted() int {
	m.queue.Lock()
	defer m.queue.Unlock()
	return m.queue.waiting
}

// run commits until ctx ends.
func (m *committer) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		m.c.r.cfg.Private.Seeding.Turn.Wait("commit")
		timer.Reset(m.round())
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-m.wake:
		}
	}
}

// round starts the commits that are due and says how long nothing will be.
func (m *committer) round() (wait time.Duration) {
	now, alone := time.Now(), m.c.r.hand.count()
	q := &m.queue
	q.Lock()
	defer q.Unlock()
	m.earn(now)
	for p := m.due(now, alone); p != nil; p = m.due(now, alone) {
		batch := p.waiting
		p.waiting, p.busy, p.hurried = nil, true, false
		q.credit = max(q.credit-1, creditEnd)
		m.c.r.background.Go(func() { m.commit(p, batch) })
	}
	for _, p := range q.partitions {
		if len(p.waiting) > 0 && !p.busy {
			return creditLook
		}
	}
	return time.Hour
}

// earn adds what time and requests have earned. The lock is held.
func (m *committer) earn(now time.Time) {
	q := &m.queue
	made := m.c.r.fleet.Made()
	q.credit += now.Sub(q.at).Seconds()*creditPerSecond + float64(made-q.paid)*creditPerRequest
	q.credit = min(q.credit, creditMost)
	q.at, q.paid = now, made
}

// due gives the partition whose results are to be recorded next; nil for none yet.
// inHand is how many messages are in hand in all. The lock is held.
func (m *committer) due(now time.Time, inHand int) (next *partition) {
	r, q := m.c.r, &m.queue
	least := 1.0
	switch {
	case inHand > q.waiting:
	case now.Sub(q.came) < creditQuiet:
		least = creditIdle + 1
	default:
		least = creditEnd + 1
	}
	for _, p := range q.partitions {
		if p.busy || len(p.waiting) == 0 || now.Before(p.after) {
			continue
		}
		if p.hurried || r.stopping.Load() || len(p.waiting) >= commitMost || m.fullLocked() || now.Sub(p.since) >= r.terms.lease()/latePart {
			return p
		}
		if next == nil || p.since.Before(next.since) {
			next = p
		}
	}
	if q.credit < least {
		return nil
	}
	return next
}

// commit records a batch and hands its deliveries back.
func (m *committer) commit(p *partition, batch []*delivery) {
	m.c.r.cfg.Private.Seeding.Turn.Wait("record", fmt.Sprint(p.number))
	// Not in the order in which goroutines came, of which contributions or requests
	// would depend (P9).
	slices.SortFunc(batch, func(a, b *delivery) int { return strings.Compare(a.id, b.id) })
	var entries []*ledger.Entry
	for _, d := range batch {
		entries = append(entries, d.settlement.entries...)
	}
	ctx, cancel := context.WithTimeout(m.patience, lostResults)
	m.c.ledger.Commit(ctx, entries)
	m.c.r.counts.commits.Add(1)
	cancel()
	var again []*delivery
	batch = slices.DeleteFunc(batch, func(d *delivery) bool {
		if m.outcome(d) {
			return false
		}
		again = append(again, d)
		return true
	})
	m.leave(p, batch, again)
	for _, d := range batch {
		d.settler.unpark(d)
	}
}

// leave ends a commit: batch is on its way, again waits once more.
func (m *committer) leave(p *partition, batch, again []*delivery) {
	q := &m.queue
	q.Lock()
	wasFull := m.fullLocked()
	if len(again) > 0 {
		p.fails++
		p.waiting, p.since = append(again, p.waiting...), time.Now()
		p.after = p.since.Add(m.c.r.jitter.Around(backoff.Doubled(fenceBase, fenceMost, p.fails), "commit", fmt.Sprint(p.number), p.fails))
	} else {
		p.fails = 0
	}
	p.busy = false
	q.waiting -= len(batch)
	for _, d := range batch {
		q.bytes -= int64(d.held)
	}
	calm := wasFull && !m.fullLocked()
	q.Unlock()
	backoff.Signal(m.wake)
	if calm {
		backoff.Signal(m.c.r.poller.wake)
	}
}

// outcome makes of what became of a delivery's entries how it is settled. It is
// false if they are to be recorded once more: nobody knows yet, and nobody is there to stop them.
func (m *committer) outcome(d *delivery) (known bool) {
	c, s := m.c, d.settlement
	var worst error
	for _, e := range s.entries {
		switch {
		case e.Err == nil:
			c.r.counts.recorded.Add(int64(tasksOf(e)))
		case worst == nil || errors.Is(e.Err, ledger.ErrFenced):
			worst = e.Err
		}
	}
	switch {
	case worst == nil:
		s.entries, s.recorded = nil, true
		c.recordedState(d)
		return true
	case errors.Is(worst, ledger.ErrFenced):
		// Somebody else does these tasks, or has done them: the results are dropped (P3.5).
		backoff.Signal(c.fencer.wake) // or nobody does, for the rows are those of some time ago
		c.r.log.Info("results came after another owner of their segment; they are dropped", append(d.attrs(-1), "error", worst)...)
		s.putBack(d, 0)
	case isStateFull(worst):
		c.endEntries(d)
		s.putBack(d, c.refusedState(d, worst))
	case !mayPass(worst):
		c.r.alarmOnce("ledger", "results cannot be recorded; their messages go back for a while", append(d.attrs(-1), "error", worst)...)
		c.endEntries(d)
		s.putBack(d, c.r.jitter.Around(fullDelay, "full", d.id, s.tries))
	case m.patience.Err() == nil && c.r.member.Load().Keeps(d.header.Segment):
		return false
	default:
		c.r.log.Warn("results could not be recorded; their message is delivered again", append(d.attrs(-1), "error", worst)...)
		c.endEntries(d)
		s.putBack(d, 0)
	}
	return true
}

// mayPass reports whether what kept results from being recorded is with the control
// plane, and not with them or with what is stored: a full ledger, a damaged row, a state
// that cannot be encoded.
func mayPass(err error) bool {
	_, storage := queues.AsError(err)
	return storage || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// putBack makes the whole message visible again, whatever was to be done with it.
func (s *settlement) putBack(d *delivery, delay time.Duration) {
	s.entries, s.copies, s.text = nil, nil, s.unmarked
	s.final, s.delay = stepRelease, delay
	s.retried, s.released = 0, d.count
	if s.text != nil {
		s.final = stepReplace
	}
	d.untried = d.mark == markInRow
}

// endEntries takes the tasks of entries that are not recorded out of hand.
func (c *recorder) endEntries(d *delivery) {
	for _, e := range d.settlement.entries {
		switch {
		case e.Err == nil:
		case e.Foreign != "":
			c.ledger.EndForeign(e.Segment, e.Epoch, e.Foreign)
		default:
			c.end(d, e.Done)
			c.end(d, e.Quarantined)
		}
	}
}

func tasksOf(e *ledger.Entry) int {
	if e.Foreign != "" {
		return 1
	}
	return e.Done.Len() + e.Quarantined.Len()
}

// enter makes the entries of a delivery whose settling is planned, and takes what
// will not be recorded out of hand. poison are the tasks of which copies are to be put.
func (c *recorder) enter(d *delivery, s *settlement, poison []condemned) {
	switch w := d.whole; {
	case !c.once && w != nil: // there is nothing to contribute
	case w != nil && (w.record || w.reason != "") && d.begun.Len() > 0:
		e := &ledger.Entry{Segment: d.header.Segment, Epoch: d.epoch, Run: d.header.Run, Generation: d.header.Generation}
		if w.record {
			e.Done = d.begun
		} else {
			e.Quarantined = d.begun
		}
		s.entries = append(s.entries, e)
	case w != nil && w.record:
		for k := range d.starts() {
			s.entries = append(s.entries, c.foreignEntry(d, d.at(k)))
		}
	case w != nil || d.verdicts == nil:
		c.end(d, d.begun)
	case d.header.Run == (pump.RunID{}) || d.runless:
		c.enterForeign(d, s)
	default:
		c.enterTasks(d, s, poison)
	}
	d.begun = codec.NSet{}
}

func (c *recorder) enterTasks(d *delivery, s *settlement, poison []condemned) {
	var done, poisoned, rest []uint64
	for _, p := range poison {
		poisoned = append(poisoned, d.tasks[p.task].N)
	}
	slices.Sort(poisoned)
	for k := range d.starts() {
		i := d.at(k)
		n := d.tasks[i].N
		switch v := d.verdicts[i]; {
		case v == finished || v == skipped:
			done = append(done, n)
		default:
			if _, found := slices.BinarySearch(poisoned, n); !found {
				rest = append(rest, n)
			}
		}
	}
	c.end(d, codec.MakeNSet(rest...))
	if len(done)+len(poisoned) == 0 {
		return
	}
	e := &ledger.Entry{
		Segment: d.header.Segment, Epoch: d.epoch, Run: d.header.Run, Generation: d.header.Generation,
		Done: codec.MakeNSet(done...), Quarantined: codec.MakeNSet(poisoned...), Contributions: d.contributed(),
	}
	if c.once || len(e.Contributions) > 0 {
		s.entries = append(s.entries, e)
	}
}

// contributed lists what the finished tasks contribute to the reducer's state.
func (d *delivery) contributed() (list []ledger.Contribution) {
	for i := range d.contributions {
		if d.verdicts[i] == finished {
			list = append(list, ledger.Contribution{N: d.tasks[i].N, Value: d.contributions[i]})
		}
	}
	return list
}

// enterForeign does the same for tasks without a run. One in quarantine needs no
// record: whoever puts it back puts it under the same identity, and it is to be done then.
func (c *recorder) enterForeign(d *delivery, s *settlement) {
	var rest []int
	for k := range d.starts() {
		i := d.at(k)
		if v := d.verdicts[i]; v == finished || v == skipped {
			s.entries = append(s.entries, c.foreignEntry(d, i))
		} else {
			rest = append(rest, i)
		}
	}
	if c.once {
		c.endForeign(d, rest)
	}
}

// foreignEntry records one task without a run.
func (c *recorder) foreignEntry(d *delivery, i int) *ledger.Entry {
	e := &ledger.Entry{Segment: d.header.Segment, Epoch: d.epoch, Foreign: d.tasks[i].Foreign}
	if d.contributions != nil && d.verdicts[i] == finished {
		e.Contributions = []ledger.Contribution{{Value: d.contributions[i]}}
	}
	return e
}

// unquarantine gives up quarantining: those tasks come back with the message. What
// is done of it is recorded all the same.
func (c *recorder) unquarantine(d *delivery) {
	s := d.settlement
	s.entries = slices.DeleteFunc(s.entries, func(e *ledger.Entry) bool {
		c.end(d, e.Quarantined)
		e.Quarantined = codec.NSet{}
		return e.Foreign == "" && e.Done.Len() == 0
	})
}

// park takes a message that waits for a commit out of the count of those that wait
// for a request; unpark goes on with it.
func (s *settler) park(d *delivery) {
	d.recording.Store(true)
	s.account.messages.Add(-1)
	s.waiting.Add(-1)
}

func (s *settler) unpark(d *delivery) {
	d.recording.Store(false)
	s.account.messages.Add(1)
	s.waiting.Add(1)
	s.resume(d)
}
