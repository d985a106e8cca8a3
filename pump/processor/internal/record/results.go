package record

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

const (
	// gatherTasks, gatherBytes and gatherEvery say when results are put: the first that is reached.
	// So a thousand tasks take one put at most, or a second does.
	gatherTasks = 1000
	gatherBytes = results.Most
	gatherEvery = time.Second
	// headPatience bounds the reading of a head whose segment is not fenced any more.
	headPatience = 10 * time.Second
	// notedMost is how many runs a writer keeps in memory; then another one begins.
	notedMost = 1 << 16
)

// Keeper keeps the results of tasks in objects (package results). Where a ledger records the tasks,
// the committer has it put an object before the commit; else it puts objects by itself, and a row
// leads to them before the messages are settled. One object is put at a time.
type Keeper struct {
	r        *base.Env
	ledger   *ledger.Ledger // nil: none records what is done
	Wake     chan struct{}
	patience context.Context
	GiveUp   context.CancelFunc
	fails    uint64

	// Of the goroutine that puts.
	writer, number uint64
	noted          map[pump.RunID]results.Ref // last objects
	placer         queues.Placer

	queue struct {
		sync.Mutex // guards what follows
		waiting    []*message.Delivery
		lines      int
		bytes      int64
		next       time.Time // when they are put at the latest
	}
}

// NewKeeper makes a keeper. It makes no request.
func NewKeeper(r *base.Env) *Keeper {
	k := &Keeper{r: r, Wake: make(chan struct{}, 1)}
	k.placer = queues.Placer{
		Set: r.Queues, Container: results.Container(r.Cfg.Workload), Asked: k.asked,
	}
	k.patience, k.GiveUp = context.WithCancel(r.Wire)
	k.begin()
	return k
}

func (k *Keeper) asked(ctx context.Context, name string, err error) {
	if err != nil {
		k.r.Counts.ObjectsRefused.Add(1)
	}
	k.r.Lines.Of("results "+name).Tell(ctx, k.r.Log, err,
		"an account does not take results; another one is asked", "an account takes results again",
		"account", name)
}

// begin makes another writer, with noted chains of its own.
func (k *Keeper) begin() {
	k.writer = row.DrawOf(k.r.Queues.Control)("results", k.r.Cfg.Instance)
	k.noted = map[pump.RunID]results.Ref{}
}

// Enter takes the results of the tasks that are done into the plan of their message.
func (k *Keeper) Enter(d *message.Delivery, s *message.Plan) {
	lines := d.Results
	d.Results = nil
	verdicts, _ := d.Outcomes.All()
	if d.Whole != nil || verdicts == nil {
		return
	}
	for i, line := range lines {
		if line != nil && verdicts[i] == message.Finished {
			s.Lines = append(s.Lines, line)
		}
	}
	h := &d.Header
	if h.Run.IsZero() && len(s.Lines) > 0 {
		k.r.Lines.Of("runless").Add(len(s.Lines), func(tasks, _ int) {
			k.r.Log.Warn("results of tasks without a run are not kept: no run leads to them",
				append(d.Attrs(), "tasks", tasks)...)
		})
		s.Lines = nil
	}
	// A redriven task may be done after the index of its run was written (P3.9).
	s.Noted = k.ledger == nil || h.Generation > 0 || d.Runless
}

// chain is what lines are added to: those of a segment of a run, or the noted ones of a run.
type chain struct {
	run  pump.RunID
	link string
}

func chainOf(d *message.Delivery) chain {
	if d.Plan.Noted {
		return chain{d.Header.Run, results.Noted}
	}
	return chain{d.Header.Run, results.Link(d.Header.Segment)}
}

// put puts the results of deliveries, in as few objects as they fit into, and says in each plan
// whether they are kept, and in each entry where. None of the chains may have an object that is put
// and not recorded.
func (k *Keeper) put(ctx context.Context, batch []*message.Delivery) {
	var with []*message.Delivery
	first := map[chain]results.Ref{}
	for _, d := range batch {
		if d.Plan.Unkept = nil; len(d.Plan.Lines) == 0 {
			continue
		}
		c := chainOf(d)
		if _, known := first[c]; !known {
			if first[c], d.Plan.Unkept = k.before(ctx, d); d.Plan.Unkept != nil {
				delete(first, c)
				continue
			}
		}
		with = append(with, d)
	}
	slices.SortFunc(with, func(a, b *message.Delivery) int {
		return cmp.Or(cmp.Compare(a.Header.Segment, b.Header.Segment), strings.Compare(a.ID, b.ID))
	})
	last, err := k.putLines(ctx, with, maps.Clone(first))
	if err == nil {
		err = k.note(ctx, last)
	}
	for _, d := range with {
		d.Plan.Unkept = err
		for _, e := range d.Plan.Entries {
			if err == nil && !d.Plan.Noted && e.Foreign == "" {
				e.Before, e.Results = first[chainOf(d)].Pack(), last[chainOf(d)].Pack()
			}
		}
	}
}

// before is the last object of the chain that a delivery's results follow.
func (k *Keeper) before(ctx context.Context, d *message.Delivery) (results.Ref, error) {
	if d.Plan.Noted {
		return k.noted[d.Header.Run], nil
	}
	ctx, cancel := context.WithTimeout(ctx, headPatience)
	defer cancel()
	packed, err := k.ledger.Results(ctx, d.Header.Segment, d.Header.Run)
	if err != nil {
		return results.Ref{}, err
	}
	return results.Unpack(packed)
}

// putLines puts objects, and gives the last one of each chain.
func (k *Keeper) putLines(
	ctx context.Context, with []*message.Delivery, last map[chain]results.Ref,
) (map[chain]results.Ref, error) {
	o := &results.Object{}
	var in []chain
	flush := func() error {
		err := k.putObject(ctx, o)
		for _, c := range in {
			last[c] = o.Ref
		}
		o, in = &results.Object{}, nil
		return err
	}
	for _, d := range with {
		c := chainOf(d)
		for _, line := range d.Plan.Lines {
			if o.Full(c.run) {
				if err := flush(); err != nil {
					return nil, err
				}
			}
			o.Add(c.run, c.link, last[c], line)
			if len(in) == 0 || in[len(in)-1] != c {
				in = append(in, c)
			}
		}
	}
	if len(in) == 0 {
		return last, nil
	}
	return last, flush()
}

// putObject puts an object into the first account that takes it. A put in doubt may leave a copy in
// an account that is gone round; nothing leads there, and the sweep removes it with its run.
func (k *Keeper) putObject(ctx context.Context, o *results.Object) error {
	for _, links := range o.Chains {
		for _, before := range links {
			k.number = max(k.number, before.Number)
		}
	}
	k.number++
	var err error
	o.Ref = results.Ref{Writer: k.writer, Number: k.number}
	active := queues.ActiveAccounts(k.r.Assignment.Load().View.Workload.Map)
	o.Ref.Account, err = k.placer.Put(ctx, k.writer, active, o.Ref.Blob(), o.Body(time.Now()),
		o.Metadata())
	if err == nil {
		k.r.Counts.Objects.Add(1)
	}
	return err
}

// note has rows lead to the last objects of the noted chains.
func (k *Keeper) note(ctx context.Context, last map[chain]results.Ref) error {
	noted := map[pump.RunID]results.Ref{}
	for c, ref := range last {
		if c.link == results.Noted {
			noted[c.run] = ref
		}
	}
	if len(noted) == 0 {
		return nil
	}
	err := results.Note(ctx, k.r.Queues.Control, k.r.Cfg.Workload, k.writer, noted)
	if err == nil {
		maps.Copy(k.noted, noted)
	}
	if err != nil || len(k.noted) > notedMost {
		k.begin() // what a row says may be either; another writer has no such row
	}
	return err
}

// gather puts the results of partitions together, and then has each commit. It says when it would
// do so if it does not now. The queue is locked.
func (m *Committer) gather(due []*partition, now time.Time) (wait time.Duration) {
	q := &m.queue
	lines, size, at := 0, int64(0), q.gathered.Add(gatherEvery)
	for _, p := range due {
		lines += p.lines
		size += p.size
		if p.hurried {
			at = now
		}
	}
	hurry := m.c.r.Stopping.Load() || m.fullLocked() || lines >= gatherTasks || size >= gatherBytes ||
		m.c.r.ResultBytes.Load() >= base.ResultsSoft
	switch {
	case q.putting:
		return time.Hour // its end wakes the committer
	case !hurry && at.After(now):
		return at.Sub(now)
	}
	q.putting, q.gathered = true, now
	batches := make([][]*message.Delivery, len(due))
	for i, p := range due {
		batches[i] = p.take()
	}
	m.c.r.Background.Go(func() {
		m.c.r.Cfg.Sim.Seeding.Turn.Wait("results")
		ctx, cancel := context.WithTimeout(m.patience, lostResults)
		m.keeper.put(ctx, slices.Concat(batches...))
		cancel()
		q.Lock()
		q.putting = false
		q.Unlock()
		waits.Signal(m.Wake)
		for i, p := range due {
			m.c.r.Background.Go(func() { m.commit(p, batches[i]) })
		}
	})
	return time.Hour
}

// Add takes a delivery whose effects are done and whose copies are acknowledged, and that no ledger
// records. Its settler goes on with the delivery once its results are kept.
func (k *Keeper) Add(d *message.Delivery) {
	d.Settler.Park(d)
	q := &k.queue
	q.Lock()
	defer q.Unlock()
	q.waiting = append(q.waiting, d)
	q.lines += len(d.Plan.Lines)
	q.bytes += d.Kept.Load()
	waits.Signal(k.Wake)
}

// tellKept counts a delivery's results, which are kept and recorded.
func tellKept(r *base.Env, d *message.Delivery) {
	t := workload.Tally{Results: uint64(len(d.Plan.Lines))}
	for _, line := range d.Plan.Lines {
		t.ResultBytes += uint64(len(line))
	}
	r.Counts.Results.Add(int64(t.Results))
	r.Counts.ResultBytes.Add(int64(t.ResultBytes))
	r.Tallies.Add(d.Header.Run, t)
	d.Plan.Lines = nil
}

// Run keeps the results of deliveries that no ledger records, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	waits.Loop(ctx, k.Wake, func() time.Duration {
		k.r.Cfg.Sim.Seeding.Turn.Wait("results")
		return k.round()
	})
}

func (k *Keeper) round() (wait time.Duration) {
	q, now := &k.queue, time.Now()
	q.Lock()
	hurry := k.r.Stopping.Load() || q.lines >= gatherTasks || q.bytes >= gatherBytes ||
		len(q.waiting) >= uncommittedMost || k.r.ResultBytes.Load() >= base.ResultsSoft
	switch {
	case len(q.waiting) == 0:
		q.Unlock()
		return time.Hour
	case q.next.After(now) && (!hurry || k.fails > 0) && k.patience.Err() == nil:
		q.Unlock()
		return q.next.Sub(now)
	}
	batch := q.waiting
	q.waiting, q.lines, q.bytes = nil, 0, 0
	q.Unlock()
	ctx, cancel := context.WithTimeout(k.patience, lostResults)
	k.put(ctx, batch)
	cancel()
	var again []*message.Delivery
	for _, d := range batch {
		switch err := d.Plan.Unkept; {
		case err == nil:
			tellKept(k.r, d)
		case k.patience.Err() == nil:
			again = append(again, d)
			continue
		default:
			k.r.Log.Warn("results could not be kept; their message is delivered again",
				append(d.Attrs(), "error", err)...)
			d.Plan.PutBack(d, 0)
		}
		d.Settler.Unpark(d)
	}
	q.Lock()
	defer q.Unlock()
	q.next = now.Add(gatherEvery)
	if k.fails++; len(again) == 0 {
		k.fails = 0
	} else {
		q.next = time.Now().Add(k.r.Jitter.Around(waits.Doubled(fenceBase, fenceMost, k.fails),
			"results", k.r.Cfg.Instance, k.fails))
	}
	q.waiting = append(again, q.waiting...)
	for _, d := range again {
		q.lines += len(d.Plan.Lines)
		q.bytes += d.Kept.Load()
	}
	return max(time.Until(q.next), 0)
}
