package worlds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
)

// Operators show the workload and try to delete it. While processes live, or runs are not finished,
// that must be refused. In the end of some worlds, when all have ended, it must remove everything of
// the workload, and nothing else.

// simDeletions are what operators do in worlds of their kind besides, at any time: the draws for it
// come last, so that the rest of a seed's world is as it was without.
func (g *simSeeded) deletions() {
	for range 1 + g.roll(3) {
		what := []string{"delete", "delete", "show"}[g.roll(3)]
		g.operate(g.seconds(0, 120), what)
	}
}

// simFresh is within how many beats of the last one a process is known to live.
const simFresh = 2

// simBeats are the beats of a process that the control table has: those of the last row in it.
type simBeats struct {
	first, last time.Time
	offset      time.Duration // of the service's clock since the first
}

// beatLocked notes that a member's row came to stand in the table. What is behind a jump of the
// service's clock, by which deletions tell who lives, or behind a gap begins anew.
func (w *simWorld) beatLocked(instance string) {
	now, b := time.Now(), w.beats[instance]
	if b == nil || b.offset != w.judge.offset || now.Sub(b.last) > simFresh*w.plan.beat {
		b = &simBeats{first: now, offset: w.judge.offset}
		w.beats[instance] = b
	}
	b.last = now
}

// livingLocked are the processes that are known to have lived since a time, and to live.
func (w *simWorld) livingLocked(since time.Time) (names []string) {
	for name, b := range w.beats {
		fresh := b.offset == w.judge.offset && time.Since(b.last) <= simFresh*w.plan.beat
		if p := w.latest[name]; fresh && b.first.Before(since) && p != nil && !p.over() && !p.stopping {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// simDeleting is a command that deletes the workload while the world goes on.
type simDeleting struct {
	began time.Time
	runs  map[codec.RunID]bool // that were not finished then
}

// unfinishedRuns are the runs for which a workload must stay: those that are open, and if what is
// sealed may not be done, those that are sealed.
func (w *simWorld) unfinishedRuns(ctx context.Context, sealed bool) map[codec.RunID]bool {
	all, err := workload.NewRuns(w.sure(w.sim.Accounts()[0]).Table(row.TableName), "work").List(ctx, 1000)
	if err != nil && !errors.Is(err, pump.ErrNoWorkload) && !storage.Is(err, storage.Missing) {
		w.wrongf("the world's mistake: the runs cannot be read: %v", err)
	}
	open := map[codec.RunID]bool{}
	for _, r := range all {
		if r.State == workload.RunOpen || r.State == workload.RunSealed && sealed {
			open[r.ID] = true
		}
	}
	return open
}

// triesToDelete is the command in the midst of a world. One that is not refused comes to the mark,
// where it ends (marks).
func (p *simProcess) triesToDelete(ctx context.Context, cfg pump.Config) error {
	w := p.world
	p.deleting = &simDeleting{began: time.Now(), runs: w.unfinishedRuns(ctx, w.plan.delivery == pump.Once)}
	d, err := workloads.Delete(ctx, cfg, workloads.Options{})
	refused, is := errors.AsType[*workloads.Error](err)
	switch {
	case p.over():
	case is && !refused.Begun:
		w.count("deletions that were refused")
	case is || err == nil && len(d.Leftovers) == 0:
		w.wrongf("%s deleted a workload without the world's seeing it: %+v, %v", p, d, err)
	}
	return err
}

// marks judges a deletion that is about to mark the workload, and ends its operator: it was not
// refused, though processes have lived all the time, or a run was not finished.
func (p *simProcess) marks(ctx context.Context) {
	w := p.world
	if p.deleting == nil || p.over() {
		return
	}
	for run := range w.unfinishedRuns(ctx, w.plan.delivery == pump.Once) {
		if p.deleting.runs[run] {
			w.wrongf("%s is let delete a workload whose run %v is not finished", p, run)
		}
	}
	w.mu.Lock()
	living := w.livingLocked(p.deleting.began)
	w.counts["deletions that were let begin"]++
	w.mu.Unlock()
	if len(living) > 0 {
		w.wrongf("%s is let delete a workload of which %v live", p, living)
	}
	p.kill("before the mark of a deletion")
}

// shows judges what an operator is shown.
func (p *simProcess) shows(ctx context.Context, cfg pump.Config) error {
	w := p.world
	i, err := workloads.Show(ctx, cfg)
	if err != nil || p.over() {
		return err
	}
	known := 0
	for _, n := range i.Runs {
		known += n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	roles := map[byte]int{}
	for _, p := range w.all {
		roles[p.name[0]]++
	}
	// One that was killed is a member until it is removed, so lives count. An operator who repairs a
	// run is a distributor.
	if i.Segments != w.plan.segments || i.Delivery != string(w.plan.delivery) || i.Deleting != nil || len(i.Rivals) > 0 ||
		i.Processors > roles['p'] || i.Distributors > len(w.all)-roles['p'] ||
		i.AllRuns && known > len(w.all)+int(time.Since(w.began)/simSoon) {
		w.wrong = append(w.wrong, fmt.Sprintf("%s is shown a workload that is none: %+v", p, i))
	}
	if w.shown == "" {
		w.shown = i.Incarnation
	}
	if w.shown != i.Incarnation {
		w.wrong = append(w.wrong, fmt.Sprintf("%s is shown the workload's incarnation %s, which was %s", p, i.Incarnation, w.shown))
	}
	return nil
}

// simDeletes is the command of the end of a world; simNeighbours are workloads, of which deletions
// know nothing, with names that begin as ours does.
const simDeletes = "delete-all"

var simNeighbours = []string{"work-b", "worker"}

// simSilent is when a member is dead whatever its row says.
const simSilent = 6 * time.Minute

// deletesAll plays the end of a world: the processes have ended, and the workload is deleted, by an
// operator who dies of it in half of the worlds, and by the next.
func (w *simWorld) deletesAll(ctx context.Context) {
	w.sweeps(ctx)
	if len(w.wrong) > 0 || w.plan.kind != "operators" || w.roll(2, "deletes", 0) > 0 {
		return
	}
	waits.Wait(ctx, simSilent)
	used, err := w.usedAccounts(ctx)
	if err != nil {
		w.wrongf("the workload cannot be read: %v", err)
		return
	}
	if err := w.settles(ctx); err != nil {
		w.wrongf("the world's mistake: %v", err)
		return
	}
	before := w.everything(ctx)
	unfinished := len(w.unfinishedRuns(ctx, w.plan.delivery == pump.Once || anyWaits(before)))
	first := w.deletes(ctx, "x91", nil)
	if refused, is := errors.AsType[*workloads.Error](first); is && !refused.Begun && unfinished > 0 {
		w.count("deletions that were refused for a run")
		if now := w.everything(ctx); !maps.Equal(before, now) {
			w.wrongf("a deletion was refused and changed something: %v became %v", before, now)
		}
	} else if first != nil {
		w.wrongf("the workload was not deleted, with %d runs that are not finished: %v", unfinished, first)
		return
	}
	if w.roll(2, "deletes and dies", 0) == 0 {
		point := []string{"mark", "write", "transact", "drop", "query"}[w.roll(5, "deletes and dies at", 0)]
		_ = w.deletes(ctx, "x92", &simPoint{w.roll(2, "deletes and dies after", 0) == 0, point, 1 + int(w.roll(5, "deletes and dies, nth", 0)), 0})
	}
	if err := w.deletes(ctx, "x93", nil); err != nil && !errors.Is(err, pump.ErrNoWorkload) {
		w.wrongf("the workload was not deleted: %v", err)
		return
	}
	w.count("workloads that were deleted in the end")
	w.checkDeleted(ctx, before, used)
}

// deletes has an operator delete the workload, whatever its runs; but x91 asks first.
func (w *simWorld) deletes(ctx context.Context, name string, dies *simPoint) error {
	w.start(name, simDeletes)
	w.mu.Lock()
	p := w.latest[name]
	if dies != nil {
		p.points = append(p.points, dies)
	}
	w.mu.Unlock()
	soon, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	select {
	case <-p.ended:
	case <-soon.Done():
		w.wrongf("stuck: %s does not end", p)
	}
	if p.dead {
		waits.Wait(ctx, 2*simSent) // what it has sent comes or is lost
	}
	return p.err
}

// deletesAllBy is that operator's command.
func (p *simProcess) deletesAllBy(ctx context.Context, cfg pump.Config) error {
	d, err := workloads.Delete(ctx, cfg, workloads.Options{Force: p.name != "x91"})
	if err == nil && !d.Deleted && !p.over() {
		p.world.wrongf("%s has deleted the workload, and says that it has not: %+v", p, d)
	}
	if _, shown := workloads.Show(ctx, cfg); err == nil && !p.over() && !errors.Is(shown, pump.ErrNoWorkload) {
		p.world.wrongf("a workload that was deleted is shown: %v", shown)
	}
	return err
}

// settles makes the neighbours: rows in the control account, and in each account queues with a message.
func (w *simWorld) settles(ctx context.Context) error {
	table := w.sure(w.sim.Accounts()[0]).Table(row.TableName)
	for _, n := range simNeighbours {
		for _, partition := range []string{n, n + ".runs", n + ".ledger.00"} {
			e := storage.Entity{Partition: partition, Row: "row", Properties: map[string]any{"Of": n}}
			if _, err := table.Write(ctx, storage.Write{Mode: storage.Upsert, Entity: e}); err != nil {
				return err
			}
		}
		for _, name := range w.sim.Accounts() {
			q := w.sure(name).Queue(n + "-00")
			err := q.Create(ctx)
			if err == nil {
				_, err = q.Put(ctx, []byte("of "+n), 0)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// everything is what the accounts hold: rows with their tags, and queues with how many messages they have.
func (w *simWorld) everything(ctx context.Context) map[string]string {
	all := map[string]string{}
	for _, name := range w.sim.Accounts() {
		account := w.sure(name)
		for e, err := range account.Table(row.TableName).Query(ctx, storage.Query{}) {
			if storage.Is(err, storage.Missing) {
				break
			}
			if err != nil {
				w.wrongf("the world's mistake: the rows of %s cannot be read: %v", name, err)
				break
			}
			if e.Row != row.ClockKey { // who asks for the time writes it
				all[name+" row "+e.Partition+"/"+e.Row] = string(e.ETag)
			}
		}
		queues, err := account.Queues(ctx, "")
		for _, q := range queues {
			var n int64
			if err == nil {
				n, err = account.Queue(q).Count(ctx)
			}
			all[name+" queue "+q] = fmt.Sprint(n)
		}
		if err != nil {
			w.wrongf("the world's mistake: the queues of %s cannot be read: %v", name, err)
		}
	}
	return all
}

// anyWaits reports whether a message is in a work queue, as one of a run that no process has begun is:
// where nothing records what is done, a sealed run is not finished then.
func anyWaits(everything map[string]string) bool {
	for what, is := range everything {
		_, queue, _ := strings.Cut(what, " queue ")
		if n := strings.TrimPrefix(queue, "work-"); n != queue && n != "poison" && !strings.HasPrefix(n, "b-") && is != "0" {
			return true
		}
	}
	return false
}

// checkDeleted compares what is there with what was before. Of an account that was removed from the
// workload its queues may be there: what came late into one (P6.5).
func (w *simWorld) checkDeleted(ctx context.Context, before map[string]string, used map[string]bool) {
	now := w.everything(ctx)
	for what, is := range before {
		account, thing, _ := strings.Cut(what, " ")
		kind, name, _ := strings.Cut(thing, " ")
		neighbours := slices.ContainsFunc(simNeighbours, func(n string) bool {
			return strings.HasPrefix(name, n+"-") || strings.HasPrefix(name, n+".") || strings.HasPrefix(name, n+"/")
		})
		value, there := now[what]
		switch {
		case neighbours && (!there || value != is):
			w.wrongf("lost: %s of another workload was %s before ours was deleted, and is %q", what, is, value)
		case !neighbours && there && (kind != "queue" || used[account]):
			w.wrongf("%s is left of a workload that was deleted", what)
		}
	}
	for what := range now {
		if _, was := before[what]; !was {
			w.wrongf("%s is there, and was not before the workload was deleted", what)
		}
	}
}
