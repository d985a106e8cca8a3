package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// Commit records entries, any number of any segments, and says in each entry's Err what became of
// the entry. Entries of one partition are recorded together, in as few transactions as they fit
// into; a call should be about one partition ([Ledger.Partition]), because those of several are
// recorded one partition after the other. It goes on until each entry's fate is known or ctx ends,
// and says how many entities it has asked to be written.
//
// Results may be committed after their hold has ended, and after this process has
// claimed and fenced the segment again: what counts is that the head was this process's
// all the time since their Begin.
func (l *Ledger) Commit(ctx context.Context, entries []*Entry) (entities int) {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b *Entry) int { return cmp.Compare(a.Segment, b.Segment) })
	for len(entries) > 0 {
		partition := l.Partition(entries[0].Segment)
		n := 0
		c := commit{l: l, partition: partition, most: transactionMost}
		for ; n < len(entries) && l.Partition(entries[n].Segment) == partition; n++ {
			c.add(entries[n])
		}
		entries = entries[n:]
		if len(c.jobs) > 0 {
			c.run(ctx)
		}
		entities += c.entities
	}
	return entities
}

// doneWith names runs that are done with.
type doneWith struct {
	closed, over []codec.RunID
	hour         uint64 // now
}

func (w *doneWith) touches(m *image) bool {
	for _, id := range w.closed {
		if b := m.runs[id]; b != nil && b.rest == 0 && (b.quarantined == 0 || m.rests < restsMost) {
			return true
		}
	}
	return slices.ContainsFunc(w.over, func(id codec.RunID) bool { return m.runs[id] != nil })
}

// Prune takes the records of finished runs out of the fenced segments. It comes after the run rows
// say that: from then on the rows identify their tasks (P1.3, P3.7). The tasks in quarantine of
// closed runs stay as a rest, which does not count as a live run; of runs that are over nothing
// stays. After an error some records are still there.
func (l *Ledger) Prune(ctx context.Context, closed []codec.RunID, over ...codec.RunID) error {
	with := &doneWith{closed: closed, over: over, hour: uint64(max(1, time.Now().Unix()/3600))}
	return l.commitWith(ctx, with, "pruning", func(s *ledgerSegment) bool {
		return with.touches(s.image)
	})
}

// commitWith commits what goes, and no entries, in the fenced segments that it concerns.
func (l *Ledger) commitWith(
	ctx context.Context, with *doneWith, what string, concerns func(s *ledgerSegment) bool,
) error {
	commits := make([]commit, len(l.partitions))
	l.eachImage(func(s *ledgerSegment) {
		if concerns(s) {
			c := &commits[l.Partition(s.number)]
			c.jobs = append(c.jobs, &job{s: s, with: with})
		}
	})
	// Side by side: a partition that does not answer does not hold up the others.
	errs := make([]error, len(commits))
	var g errgroup.Group
	g.SetLimit(readTogether)
	for partition, c := range commits {
		if len(c.jobs) == 0 {
			continue
		}
		c.l, c.partition, c.most = l, partition, transactionMost
		g.Go(func() error {
			jobs := slices.Clone(c.jobs)
			c.run(ctx)
			for _, j := range jobs {
				if j.err != nil {
					errs[partition] = errors.Join(errs[partition],
						fmt.Errorf("%s of segment %d: %w", what, j.s.number, j.err))
				}
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}

// commit is the recording of entries of one partition.
type commit struct {
	l         *Ledger
	partition int
	most      int // bytes of a transaction
	lost      int // transactions in a row that had no effect
	entities  int // asked to be written
	jobs      []*job

	old    []uint32 // segments whose rows came back older
	others []uint32 // segments whose heads turned out to be another's
	owner  string   // of the last of them
}

// job is what is to be recorded in one segment.
type job struct {
	s       *ledgerSegment
	entries []*Entry
	with    *doneWith // nil: it is about the entries
	image   *image
	draft   *draft   // of the first so many of the entries
	deleted []string // names of foreign messages that go with it
	err     error    // of a job without entries
}

func (c *commit) add(e *Entry) {
	s, err := c.l.segment(e.Segment)
	if err == nil && e.Foreign == "" && e.Run.IsZero() {
		err = errors.New("an entry of no run")
	}
	if err != nil {
		e.Err = err
		return
	}
	if len(c.jobs) == 0 || c.jobs[len(c.jobs)-1].s != s {
		c.jobs = append(c.jobs, &job{s: s})
	}
	j := c.jobs[len(c.jobs)-1]
	j.entries = append(j.entries, e)
}

// ends tells the fate of all that is left of a job.
func (j *job) ends(err error) {
	for _, e := range j.entries {
		e.Err = err
	}
	j.entries, j.with, j.draft, j.err = nil, nil, nil, err
}

func (j *job) over() bool { return len(j.entries) == 0 && j.with == nil }

func (c *commit) run(ctx context.Context) {
	err := c.l.lock(ctx, c.partition)
	if err == nil {
		defer c.l.unlock(c.partition)
		defer c.tellOthers()
		defer func() { c.l.tellOld(c.old) }()
	}
	for err == nil {
		for _, j := range c.jobs {
			c.prepare(ctx, j)
		}
		c.jobs = slices.DeleteFunc(c.jobs, (*job).over)
		if len(c.jobs) == 0 {
			return
		}
		err = c.transact(ctx)
	}
	for _, j := range c.jobs {
		j.ends(err)
	}
}

// tellOthers says in one line what a takeover of many segments took.
func (c *commit) tellOthers() {
	if len(c.others) > 0 {
		c.l.options.Log.Warn("segments' ledgers belong to another owner; what was not "+
			"recorded yet is left to it",
			"segments", len(c.others), "first", slices.Min(c.others), "owner", c.owner)
	}
}

// prepare makes a draft of as much of a job as is possible at once. If nothing is to be written,
// the fate of the entries is known.
func (c *commit) prepare(ctx context.Context, j *job) {
	if j.draft != nil || j.over() {
		return
	}
	if j.image == nil && !c.find(ctx, j) {
		return
	}
	c.stale(j)
	j.s.mu.Lock()
	j.deleted = slices.Sorted(maps.Keys(j.s.deleted)) // in an order that no map's decides (P9)
	j.s.mu.Unlock()
	for n := len(j.entries); !j.over(); {
		d, err := c.l.draft(j.s.number, j.image, j.entries[:n], j.with, j.deleted...)
		switch {
		case err == nil && d.rows == 0:
			c.recorded(j, d, "")
			n = len(j.entries)
		case err == nil:
			j.draft = d
			return
		case n > 1:
			n = (n + 1) / 2 // one of them does not fit, or all of them do not fit together
		case n == 1:
			j.entries[0].Err = err
			j.entries = j.entries[1:]
			n = len(j.entries)
		default:
			j.ends(err)
		}
	}
}

// find gets the image of the segment: the known image while the segment is fenced, or what its rows
// say.
func (c *commit) find(ctx context.Context, j *job) bool {
	j.s.mu.Lock()
	known := j.s.since != 0
	j.image = j.s.image
	j.s.mu.Unlock()
	switch {
	case j.image != nil:
		return true
	case !known:
		j.ends(fencedOff(j.s.number, "it was never fenced, or another owner was there since"))
		return false
	}
	read, err := c.l.readHeads(ctx, c.partition, []uint32{j.s.number})
	if err != nil {
		j.ends(err)
		return false
	}
	return c.adopt(ctx, j, read[j.s.number])
}

// adopt takes over what a head says now, if it is still this process's (P3.5).
func (c *commit) adopt(ctx context.Context, j *job, r headRead) bool {
	if r.err != nil {
		j.ends(r.err)
		return false
	}
	h := r.head
	if c.l.sees(j.s, h) {
		c.old = append(c.old, j.s.number)
	}
	if h.etag == "" || h.owner != c.l.token {
		j.s.lost()
		c.others, c.owner = append(c.others, j.s.number), h.owner
		j.ends(fencedOff(j.s.number, fmt.Sprintf("its head is at epoch %d of %q", h.epoch, h.owner)))
		return false
	}
	m, err := c.l.load(ctx, j.s.number, h)
	if err != nil {
		j.ends(err)
		return false
	}
	j.s.mu.Lock()
	// The fence of a later hold may have landed after it was given up.
	j.s.epoch = max(j.s.epoch, h.epoch)
	m.head.epoch = j.s.epoch // if rows came back older it may be less
	if j.s.written {
		j.s.head, j.s.image = nil, m // which also ends the waiting for its pages
	}
	j.s.mu.Unlock()
	j.image, j.draft = m, nil
	return true
}

// stale drops the entries of epochs before another owner was there.
func (c *commit) stale(j *job) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.entries = slices.DeleteFunc(slices.Clone(j.entries), func(e *Entry) bool {
		if j.s.mine(e.Epoch) {
			return false
		}
		e.Err = fencedOff(e.Segment, fmt.Sprintf("another owner was there since epoch %d", e.Epoch))
		return true
	})
}

// transact sends as many drafts as fit into one transaction.
func (c *commit) transact(ctx context.Context) error {
	partition := Partition(c.l.workload, c.partition)
	t := c.l.begin(c.partition, row.NonceProperty)
	t.suspicious = c.lost > 0
	t.writes = make([]storage.Write, 0, len(c.jobs))
	var sent []*job
	size := 0
	for _, j := range c.jobs {
		if len(sent) > 0 && (len(t.writes)+j.draft.rows > storage.MaxBatch ||
			size+j.draft.size > c.most) {
			break
		}
		j.draft.write(t, partition, j.s.number)
		sent = append(sent, j)
		size += j.draft.size
	}
	c.entities += len(t.writes)
	o, err := c.l.send(ctx, t)
	switch {
	case err != nil:
		return err
	case o.tooLarge && len(sent) == 1:
		sent[0].ends(fmt.Errorf("segment %d: %w: the service refuses a transaction of it as too large",
			sent[0].s.number, ErrLedgerFull))
		return nil
	case o.tooLarge:
		c.most = size / 2
		return nil
	}
	if c.lost++; o.landed {
		c.lost = 0
	}
	for _, j := range sent {
		c.conclude(ctx, j, t, &o)
	}
	if c.lost > 1 { // another writer can only be this process itself, some time ago
		c.l.draw.Pause(ctx, partition, c.lost, row.RequestTimeout/5, nil)
	}
	return nil
}

// conclude draws the conclusions of a transaction for one of its segments.
func (c *commit) conclude(ctx context.Context, j *job, t *transaction, o *outcome) {
	r, read := o.read[j.s.number]
	if !o.landed {
		if read {
			c.adopt(ctx, j, r)
		}
		return
	}
	d := j.draft
	j.draft = nil
	etag := o.etag(t, j.s.number)
	c.recorded(j, d, etag)
	if etag == "" {
		// Recorded, and then written by another owner: the head tells whose it is now.
		c.adopt(ctx, j, r)
	}
}

// recorded tells that the entries of a draft are recorded.
func (c *commit) recorded(j *job, d *draft, etag storage.ETag) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if d.rows > 0 {
		d.landed(etag)
		j.s.top, j.s.commits = max(j.s.top, d.head.epoch), d.head.commits
		for _, name := range j.deleted {
			delete(j.s.deleted, name)
		}
	}
	for _, e := range d.entries {
		e.Err = nil
		if e.Foreign != "" {
			j.s.endForeign(e.Epoch, foreignName(e.Foreign))
			continue
		}
		j.s.end(e.Epoch, e.Run, e.Done)
		j.s.end(e.Epoch, e.Run, e.Quarantined)
	}
	j.entries = j.entries[len(d.entries):]
	j.with = nil
}
