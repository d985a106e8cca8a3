package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// Each unfinished run has a second row beside its own, in the same partition, so that the closer
// lists live runs and not all that there ever were. The second row is written in one transaction
// with each change of the run's row, says the same except for the counters, and is removed when the
// ledger keeps nothing of the run any more. The run's client or leader beats in it.

const (
	livePrefix = "live."
	// afterLive is the first key past all that begin with livePrefix.
	afterLive = "live~"
)

// LiveRun is what the second row of an unfinished run says.
type LiveRun struct {
	ID             codec.RunID
	State          RunState
	Mode, Instance string
	Tasks, Rest    uint64 // as in Run
	Drop, Over     bool
	Beat           time.Duration
	Epoch          uint64
	// Accounts and Put are what the last beat said; see Pulse.
	Accounts []string
	Put      uint64
	// Version differs after each beat and each change of the run, and Changed is when that was, by the
	// server's clock.
	Version storage.ETag
	Changed time.Time
	// Err is why the row cannot be read; then only ID and Version are known.
	Err error
}

func liveKey(id codec.RunID) string { return livePrefix + id.String() }

// live is the write of a run's row among those that live.
func (r *Runs) live(run Run) storage.Write {
	return storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: r.partition(), Row: liveKey(run.ID), Properties: liveProperties(run),
	}}
}

func liveProperties(run Run) map[string]any {
	return map[string]any{
		row.FormatProperty: int64(row.Format), "State": string(run.State), "Mode": run.Mode,
		"Instance": run.Instance, "Tasks": int64(run.Tasks), "Rest": int64(run.Rest), "Drop": run.Drop,
		"Over": run.Over, "Beat": int64(run.Beat), "Epoch": int64(run.Epoch), "Beats": int64(0),
		"Accounts": strings.Join(run.Accounts, " "), "Put": int64(0),
	}
}

func readLive(f *row.Fields) LiveRun {
	return LiveRun{
		State: RunState(f.Text("State")), Mode: f.Text("Mode"), Instance: f.Text("Instance"),
		Tasks: f.Count("Tasks"), Rest: f.Count("Rest"),
		Drop: f.Flag("Drop"), Over: f.Flag("Over"), Beat: f.Duration("Beat"), Epoch: f.Count("Epoch"),
		Accounts: namesIn(f.Text("Accounts")), Put: f.Count("Put"),
	}
}

// namesIn are the names in a text, or nil.
func namesIn(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Fields(text)
}

// Live gives the unfinished runs by id: a request for each thousand, and at least sixteen if it
// last found hundreds. A run without its second row is not among them until [Runs.Adopt] has put it
// there. Live gives up after a minute without a further run.
func (r *Runs) Live(ctx context.Context) ([]LiveRun, error) {
	var found []LiveRun
	from, parts := livePrefix, r.liveParts()
	for i, to := range parts {
		before := len(found)
		var err error
		found, err = r.liveBetween(ctx, found, from, to)
		if row.NoTable(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing what lives of %s: %w", r.workload, err)
		}
		from = to
		if i+1 < len(parts) {
			waits.Sleep(ctx, min(time.Duration(len(found)-before)*liveEach, livePause), nil)
		}
	}
	r.crowd.Store(int64(len(found)))
	return found, nil
}

// Many live runs are listed in parts, with pauses: a partition gives 2,000 rows a second, and a
// long list at one stroke would starve the beats of these runs.
const (
	liveMany  = 200
	liveEach  = 2 * time.Millisecond
	livePause = 150 * time.Millisecond
)

// liveParts are the ends of the parts in which live runs are listed, by the first digit of the id.
func (r *Runs) liveParts() []string {
	if r.crowd.Load() < liveMany {
		return []string{afterLive}
	}
	var ends []string
	for _, digit := range "123456789abcdef" {
		ends = append(ends, livePrefix+string(digit))
	}
	return append(ends, afterLive)
}

// liveBetween adds the runs of a part. After a failure it goes on where it was: begun again, a list
// of more than a page would never end while the partition is busy. For the same reason it tries for
// another minute after a minute with progress.
func (r *Runs) liveBetween(
	ctx context.Context, found []LiveRun, from, to string,
) ([]LiveRun, error) {
	read := func(ctx context.Context) error {
		for e, err := range r.table.Query(ctx,
			storage.Query{Partition: r.partition(), From: from, To: to}) {
			if err != nil {
				return err
			}
			from = row.After(e.Row)
			id, err := codec.ParseRunID(e.Row[len(livePrefix):])
			if err != nil {
				continue // no row of ours
			}
			found = append(found, r.liveFrom(id, e))
		}
		return nil
	}
	for {
		began := from
		minute, cancel := context.WithTimeout(ctx, row.Patience)
		err := row.Insist(minute, r.table, r.partition(), read)
		passed := minute.Err() != nil
		cancel()
		if err == nil || !passed || ctx.Err() != nil || from == began {
			return found, err
		}
	}
}

func (r *Runs) liveFrom(id codec.RunID, e storage.Entity) LiveRun {
	f := &row.Fields{Props: e.Properties}
	l := row.ReadFormat(f, readLive)
	l.ID, l.Version, l.Changed = id, e.ETag, e.Modified
	if f.Err != nil {
		l.Err = row.Damaged(r.table, e.Partition, e.Row, f.Err)
	}
	return l
}

// LiveOf gives one run as Live would; false if it is not among those that live.
func (r *Runs) LiveOf(ctx context.Context, id codec.RunID) (l LiveRun, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	err = row.Insist(ctx, r.table, r.partition(), func(ctx context.Context) error {
		e, err := r.table.Read(ctx, r.partition(), liveKey(id))
		if storage.Is(err, storage.Gone) {
			return nil
		}
		if err == nil {
			l, ok = r.liveFrom(id, e), true
		}
		return err
	})
	return l, ok, err
}

// Silent reports whether at a time of the server's clock the client or leader of the run has missed
// so many beats. A run that promised no beats is always silent.
func (l *LiveRun) Silent(now time.Time, beats int) bool {
	return l.Beat <= 0 || now.Sub(l.Changed) > time.Duration(beats)*l.Beat
}

// Adopt puts a run among the live ones again: its second row is gone, or the ledger still knows the
// run after its end. It is ErrNoRun without such a run.
func (r *Runs) Adopt(ctx context.Context, id codec.RunID) (Run, error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	run, err := r.Get(ctx, id)
	if err != nil {
		return run, err
	}
	w := r.live(run)
	w.Mode = storage.Insert
	err = row.InsistOn(ctx, r.table, w)
	if err != nil && !storage.Is(err, storage.Exists) {
		return run, fmt.Errorf("run %s: %w", id, err)
	}
	return run, nil
}

// Correct makes a run's second row, as it was listed, say what the run's own row says, which may
// have come back older. Without the own row it removes the second row.
func (r *Runs) Correct(ctx context.Context, l LiveRun) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	run, err := r.Get(ctx, l.ID)
	switch {
	case errors.Is(err, pump.ErrNoRun):
		return r.Forget(ctx, []LiveRun{l})
	case err != nil || l.Err != nil:
		return cmp.Or(err, l.Err) // the run cannot be closed, which must be said
	case run.State == l.State && run.Over == l.Over:
		return nil
	}
	w := storage.Write{Mode: storage.Merge, Entity: storage.Entity{
		Partition: r.partition(), Row: liveKey(l.ID), ETag: l.Version, Properties: liveProperties(run),
	}}
	err = row.InsistOn(ctx, r.table, w)
	if storage.Is(err, storage.Gone) || storage.Is(err, storage.Precondition) {
		return nil // it has changed meanwhile
	}
	return err
}

// Forget takes runs, as they were listed, from the live ones: the ledger keeps nothing of them. A
// run that has changed since stays.
func (r *Runs) Forget(ctx context.Context, runs []LiveRun) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	rows := make([]storage.Entity, len(runs))
	for i, l := range runs {
		rows[i] = storage.Entity{Partition: r.partition(), Row: liveKey(l.ID), ETag: l.Version}
	}
	return row.RemoveFound(ctx, r.table, rows)
}

// beats are the rows that a handle beats in, as they were written last.
type beats struct {
	mu   sync.Mutex
	rows map[codec.RunID]row.Version[liveBeat]
}

func newBeats() *beats { return &beats{rows: map[codec.RunID]row.Version[liveBeat]{}} }

// liveBeat is what a beat changes of a row.
type liveBeat struct {
	beats uint64
	Pulse
}

// Pulse is what the client or leader of a run says in each beat.
type Pulse struct {
	// Every is after how long it will say so again.
	Every time.Duration
	// Accounts are those that it has credentials for, if no member row says so.
	Accounts []string
	// Put is how many tasks it has put.
	Put uint64
}

func (r *Runs) beatRow(id codec.RunID) row.Row[liveBeat] {
	return row.Row[liveBeat]{
		Table: r.table, Partition: r.partition(), Key: liveKey(id), Timeout: row.RequestTimeout,
		Encode: func(b liveBeat) map[string]any {
			return map[string]any{
				"Beats": int64(b.beats), "Beat": int64(b.Every), "Accounts": strings.Join(b.Accounts, " "),
				"Put": int64(b.Put),
			}
		},
		Decode: func(f *row.Fields) liveBeat {
			return liveBeat{beats: f.Count("Beats")}
		},
	}
}

// Beat says that the client or leader of an open run is there: one small write. An abandoned run is
// open again. ErrRunState says that the run is no longer open: it was ended, broken, or belongs to
// a later term, and no more of it should be put. ErrNoRun says that its row is gone. On any other
// error the caller goes on.
func (r *Runs) Beat(ctx context.Context, id codec.RunID, said Pulse) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	mine := r.beatRow(id)
	r.beats.mu.Lock()
	v := r.beats.rows[id]
	r.beats.mu.Unlock()
	for {
		next := v.Value
		next.beats, next.Pulse = next.beats+1, said
		err := row.ErrLost
		if !v.Absent() {
			v, err = mine.TryWrite(ctx, v, next)
		}
		if errors.Is(err, row.ErrLost) {
			v, err = r.beatAgain(ctx, id)
			if err == nil {
				continue
			}
		}
		r.beats.mu.Lock()
		defer r.beats.mu.Unlock()
		if err != nil {
			delete(r.beats.rows, id)
			return fmt.Errorf("beat of run %s: %w", id, err)
		}
		if len(r.beats.rows) >= 4096 { // of runs that have ended: the next beat of a run reads its own
			clear(r.beats.rows)
		}
		r.beats.rows[id] = v
		return nil
	}
}

// beatAgain finds out, from the run's row, whether there is still something to beat for.
func (r *Runs) beatAgain(ctx context.Context, id codec.RunID) (row.Version[liveBeat], error) {
	run, err := r.Take(ctx, id)
	switch {
	case err != nil:
		return row.Version[liveBeat]{}, err
	case run.State != RunOpen:
		return row.Version[liveBeat]{}, fmt.Errorf("%w: it is %s: %s", pump.ErrRunState, run.State,
			run.Note)
	}
	v, err := r.beatRow(id).MustRead(ctx)
	if err == nil && v.Absent() { // its row is gone
		if _, err = r.Adopt(ctx, id); err == nil {
			v, err = r.beatRow(id).MustRead(ctx)
		}
	}
	return v, err
}
