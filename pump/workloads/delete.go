package workloads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// A workload is deleted in an order in which a later deletion finds all that a crash leaves:
//
//	mark its row -> wait until processes have noticed -> queues -> rows -> anchors -> its row
//
// Each step made again is success, so the same command continues a deletion that was interrupted.

// Error says why a deletion of a workload was refused or has stopped.
type Error struct {
	Workload string
	Problem  string
	Fix      string
	// Begun: the workload is marked, and a part of it may be gone; it can only be continued.
	Begun bool
	Err   error // the cause, if storage failed
}

func (e *Error) Error() string {
	text := fmt.Sprintf("workload %q: %s; %s", e.Workload, e.Problem, e.Fix)
	if e.Begun {
		return "stopped half-way: " + text
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Queue is a queue that goes with a workload.
type Queue struct {
	Account string `json:"account"`
	accounts.QueueLeft
}

// Deletion is what goes with a workload, or what has gone.
type Deletion struct {
	Workload    string `json:"workload"`
	Incarnation string `json:"incarnation"`
	Control     string `json:"control"`
	// Begun: the workload was marked before.
	Begun bool `json:"begun"`
	// Deleted: nothing of the workload is left. False for a dry run and for a deletion that has
	// stopped.
	Deleted bool `json:"deleted"`
	// Queues are the existing queues; their counts may be too high, never too low. Never null.
	Queues []Queue `json:"queues"`
	// Foreign are other programs' queues that the workload reads, as account/queue. They stay, and
	// so do the messages in them. Never null.
	Foreign []string `json:"foreign"`
	// Rows counts the rows by kind.
	Rows map[string]int `json:"rows"`
	// Lost are accounts that are gone for good, where nothing is deleted; never null.
	Lost []string `json:"lost"`
	// Kept are accounts whose queues stay, because another workload of this name uses them; never
	// null.
	Kept []string `json:"kept"`
	// Members are the processes that live, and Unfinished the first runs that are not finished;
	// never null.
	Members    []string `json:"members"`
	Unfinished []string `json:"unfinished"`
	// Leftovers are the accounts of anchors that are left where no workload is; never null.
	Leftovers []string `json:"leftovers"`
}

// Messages counts those in the queues, and how many of them are in quarantine.
func (d *Deletion) Messages() (all, quarantined int64) {
	for _, q := range d.Queues {
		all += q.Messages
		if q.Poison {
			quarantined += q.Messages
		}
	}
	return all, quarantined
}

// AllRows is the sum of Rows.
func (d *Deletion) AllRows() (n int) {
	for _, r := range d.Rows {
		n += r
	}
	return n
}

// Progress is how far a deletion is.
type Progress struct {
	// Step is "noticing", "queues" or "rows".
	Step string
	// Left is how long processes may still take to notice, of noticing only.
	Left time.Duration
	// Done of Total are queues or rows.
	Done, Total int
}

// Options are the options of [Delete].
type Options struct {
	// DryRun: only learn what would go.
	DryRun bool
	// Force: delete also if processes live or runs are not finished. The processes end when they
	// notice, and what the runs have in queues goes.
	Force bool
	// Lost are accounts that are gone for good. Their queues and anchors stay, if they are there after
	// all. It is an [*Error] while a queue of such an account can be counted with the credentials of
	// the configuration, and for [accounts.LostAfter] after its drain.
	Lost []string
	// Progress, if set, is called now and then.
	Progress func(Progress)
}

// Delete deletes a workload: its queues, what is in quarantine, and its rows. It is a [*Error] if
// processes live, or runs are not finished, or if it has stopped half-way; then the same call
// continues it. It takes at least 40 seconds, in which processes notice. Without a workload the
// error is [pump.ErrNoWorkload], unless there are anchors.
func Delete(ctx context.Context, cfg pump.Config, opts Options) (*Deletion, error) {
	o, err := setup.Reach(cfg)
	if err != nil {
		return nil, err
	}
	d := &workloadDeletion{Session: o, opts: opts}
	switch err = d.Load(ctx); {
	case errors.Is(err, pump.ErrNoWorkload):
		return d.leftovers(ctx, err)
	case errors.Is(err, workload.ErrDeleting):
		d.found.Begun = true
	case err != nil:
		return nil, d.Advise(ctx, err)
	}
	if err = d.plan(ctx); err == nil && !opts.DryRun {
		err = d.run(ctx)
	}
	return &d.found, err
}

// workloadDeletion is the deletion of a workload.
type workloadDeletion struct {
	*setup.Session
	opts  Options
	found Deletion
}

func (d *workloadDeletion) say(p Progress) {
	if d.opts.Progress != nil {
		d.opts.Progress(p)
	}
}

func (d *workloadDeletion) refuse(problem, fix string) error {
	return &Error{Workload: d.Cfg.Workload, Problem: problem, Fix: fix, Begun: d.found.Begun}
}

// plan learns what goes, and refuses what must not.
func (d *workloadDeletion) plan(ctx context.Context) error {
	w := d.Workload
	d.found = Deletion{
		Workload: w.Name, Incarnation: w.Incarnation, Control: d.Cfg.Control, Begun: d.found.Begun,
		Rows: map[string]int{}, Queues: []Queue{}, Foreign: []string{}, Kept: []string{},
		Members: []string{}, Unfinished: []string{}, Leftovers: []string{},
		Lost: append([]string{}, d.opts.Lost...),
	}
	for _, learn := range []func(context.Context) error{
		d.checkLost, d.learnRivals, d.learnMembers, d.countQueues,
	} {
		if err := learn(ctx); err != nil {
			return err
		}
	}
	for _, g := range rowGroups(w) {
		n, err := countRows(ctx, w, g)
		if err != nil {
			return err
		}
		if n > 0 {
			d.found.Rows[g.What] += n
		}
	}
	d.found.Rows["workload"] = 1
	runs := workload.NewRuns(d.Queues.Control, w.Name)
	all, quarantined := d.found.Messages()
	// Without a record of what is done no run closes; then a run is finished when the queues are
	// empty.
	ids, err := runs.Unfinished(ctx, w.Delivery == string(pump.Once) || all > quarantined,
		setup.RunsNamed+1)
	for _, id := range ids {
		d.found.Unfinished = append(d.found.Unfinished, id.String())
	}
	if err != nil || d.found.Begun || d.opts.DryRun || d.opts.Force {
		return err
	}
	return d.inUse()
}

// inUse refuses a workload that is still in use.
func (d *workloadDeletion) inUse() error {
	switch f := &d.found; {
	case len(f.Members) > 0:
		return d.refuse(fmt.Sprintf("%d processes of it live: %s", len(f.Members),
			setup.SomeOf(f.Members, 10)),
			"stop them, or give --force: then they end by themselves")
	case len(f.Unfinished) > 0:
		return d.refuse("runs of it are not finished: "+setup.SomeOf(f.Unfinished, setup.RunsNamed),
			"let processors finish them, or end them (distributor runs end RUN), "+
				"or give --force: then what is left of them goes")
	}
	return nil
}

// learnRivals finds the accounts whose queues must stay.
func (d *workloadDeletion) learnRivals(ctx context.Context) error {
	rivals, unseen := setup.Rivals(ctx, &d.Cfg, d.Workload)
	for _, r := range rivals {
		if r.Problem != "" {
			return d.refuse(fmt.Sprintf("another workload of this name is in account %s, "+
				"and its row cannot be read, so whose the queues are cannot be told: %s", r.Account, r.Problem),
				"mend or remove that row, or use a newer program")
		}
		d.found.Kept = append(d.found.Kept, r.SameQueues...)
	}
	slices.Sort(d.found.Kept)
	d.found.Kept = slices.Compact(d.found.Kept)
	unseen = slices.DeleteFunc(unseen, d.lost)
	if len(unseen) > 0 && !d.opts.Force && !d.opts.DryRun {
		return d.refuse("these accounts could not be looked into for another workload "+
			"over the same queues: "+setup.SomeOf(unseen, 10),
			"try again, or mend their credentials, or give --force, or --lost with the name of one "+
				"that is gone for good")
	}
	return nil
}

// learnMembers finds the processes that live. The row of a killed process stays if no other process
// is there to remove it.
func (d *workloadDeletion) learnMembers(ctx context.Context) error {
	d.found.Members = []string{}
	server, _, err := workload.ServerTime(ctx, d.Queues.Control, d.Cfg.Workload)
	if err != nil {
		return err
	}
	v, err := cluster.LoadView(ctx, d.Queues.Control, d.Cfg.Workload)
	if err != nil {
		return err
	}
	for i := range v.Members {
		if m := &v.Members[i]; server.Sub(m.Beat) <= cmp.Or(m.Dead, silentForSure) {
			d.found.Members = append(d.found.Members, m.Instance)
		}
	}
	return nil
}

// silentForSure is the time without a beat after which a member is dead if its row does not tell
// its lease.
const silentForSure = 5 * time.Minute

// countQueues counts what is in the queues that go. A queue that is not there is left out.
func (d *workloadDeletion) countQueues(ctx context.Context) error {
	d.found.Queues, d.found.Foreign = []Queue{}, []string{}
	poison := workload.PoisonQueue(d.Cfg.Workload)
	qs := map[string][]string{}
	for _, s := range d.Workload.Map.Shards {
		if d.lost(s.Account) {
			continue
		}
		if _, err := d.Queues.Queue(s.Account, s.Queue); err != nil {
			return err
		}
		if s.State == shardmap.Foreign {
			// The queue was there before, and stays.
			d.found.Foreign = append(d.found.Foreign, s.Account+"/"+s.Queue)
			continue
		}
		qs[s.Account] = append(qs[s.Account], s.Queue)
	}
	slices.Sort(d.found.Foreign)
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(queues.AtOnce)
	for _, name := range slices.Sorted(maps.Keys(qs)) { // in one order (P9)
		if slices.Contains(d.found.Kept, name) {
			continue
		}
		for _, q := range append(qs[name], poison) {
			g.Go(func() error {
				n, there, err := d.countOne(ctx, d.Queues.Account(name).Store.Queue(q))
				mu.Lock()
				defer mu.Unlock()
				if there {
					left := accounts.QueueLeft{Queue: q, Messages: n, Poison: q == poison}
					d.found.Queues = append(d.found.Queues, Queue{name, left})
				}
				if err != nil {
					return fmt.Errorf("what is in queue %s/%s could not be learned: %w", name, q, err)
				}
				return nil
			})
		}
	}
	err := g.Wait()
	slices.SortFunc(d.found.Queues, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Queue, b.Queue))
	})
	return err
}

func (d *workloadDeletion) countOne(
	ctx context.Context, q storage.Queue,
) (n int64, there bool, err error) {
	err = d.insist(ctx, q.Name(), func(ctx context.Context) (err error) {
		n, err = q.Count(ctx)
		return err
	})
	if queues.NotThere(err) {
		return 0, false, nil
	}
	return n, err == nil, err
}

// deleteTries is how often a request of a deletion is made.
const deleteTries = 8

// insist makes a request, which may be made twice, until it is answered.
func (d *workloadDeletion) insist(
	ctx context.Context, about string, request func(context.Context) error,
) error {
	for try := uint64(0); ; try++ {
		err := waits.Within(ctx, request)
		wait := waits.Jitter(d.Cfg.Instance).Around(waits.Doubled(250*time.Millisecond,
			5*time.Second, try),
			"delete", about, try)
		if err == nil || !storage.Ambiguous(err) || try == deleteTries || !waits.Wait(ctx, wait) {
			return err
		}
	}
}

// run deletes. After the mark each error says that the deletion stopped half-way.
func (d *workloadDeletion) run(ctx context.Context) error {
	var w *workload.Workload
	err := d.Logged(ctx, setup.Operator(), "workload delete", func() (err error) {
		w, err = d.Workload.MarkDeleting(ctx)
		return err
	})
	if err != nil {
		if storage.Ambiguous(err) {
			return &Error{
				Workload: d.Cfg.Workload, Problem: err.Error(), Begun: true, Err: err,
				Fix: "it may be marked for deletion; run the command again",
			}
		}
		return err
	}
	d.Workload, d.found.Begun = w, true
	err = d.noticed(ctx)
	for _, step := range []func(context.Context) error{
		d.gone, d.dropQueues, d.removeResults, d.removeRows, d.removeAnchors, w.Remove,
	} {
		if err == nil {
			err = step(ctx)
		}
	}
	if _, told := errors.AsType[*Error](err); err != nil && !told {
		err = &Error{
			Workload: w.Name, Problem: err.Error(), Begun: true, Err: err,
			Fix: "run the command again, which continues",
		}
	}
	d.found.Deleted = err == nil
	return err
}

// noticed waits until no process puts by a map that is older than the mark (P6.5).
func (d *workloadDeletion) noticed(ctx context.Context) error {
	w, err := workload.Load(ctx, d.Queues.Control, d.Cfg.Workload) // for the time of the mark
	if !errors.Is(err, workload.ErrDeleting) {
		return err
	}
	d.Workload = w
	if len(d.found.Members) > 0 {
		_, _ = d.Tell(ctx)
	}
	for {
		server, _, err := workload.ServerTime(ctx, d.Queues.Control, w.Name)
		left := queues.RemoveAfter - server.Sub(w.Changed)
		if err != nil || left <= 0 {
			return err
		}
		d.say(Progress{Step: "noticing", Left: left})
		if !waits.Wait(ctx, min(left, setup.CountEvery)) {
			return context.Cause(ctx)
		}
	}
}

// gone stops if processes live that should have ended: their version does not know the mark.
func (d *workloadDeletion) gone(ctx context.Context) error {
	if err := d.learnMembers(ctx); err != nil {
		return err
	}
	if m := d.found.Members; len(m) > 0 {
		return d.refuse(fmt.Sprintf("%d processes of it still live: %s", len(m), setup.SomeOf(m, 10)),
			"stop them, and run the command again")
	}
	return nil
}

// dropQueues deletes the queues that are there now: some may be newer than the plan.
func (d *workloadDeletion) dropQueues(ctx context.Context) error {
	if err := d.countQueues(ctx); err != nil {
		return err
	}
	var mu sync.Mutex
	done := 0
	return queues.Each(ctx, d.found.Queues, func(ctx context.Context, _ int, q Queue) error {
		err := d.insist(ctx, q.Account+"/"+q.Queue, d.Queues.Account(q.Account).Store.Queue(q.Queue).Drop)
		if err != nil && !storage.Is(err, storage.Missing) {
			return fmt.Errorf("queue %s/%s could not be deleted: %w", q.Account, q.Queue, err)
		}
		mu.Lock()
		defer mu.Unlock()
		done++
		d.say(Progress{Step: "queues", Done: done, Total: len(d.found.Queues)})
		return nil
	})
}

func (d *workloadDeletion) removeRows(ctx context.Context) error {
	done, total := 0, d.found.AllRows()
	for _, g := range rowGroups(d.Workload) {
		err := removeRows(ctx, d.Workload, g, func(n int) {
			done += n
			d.say(Progress{Step: "rows", Done: min(done, total), Total: total})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
