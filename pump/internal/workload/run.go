package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// RunState is how far a run has come.
type RunState string

// The states of a run (P1.1, and "The life of a run" in docs/protocols.md). A run begins open and
// ends closed or ended. Until it has ended, a repair seals a broken or abandoned run.
const (
	RunOpen   RunState = "open"   // tasks may still be added
	RunSealed RunState = "sealed" // all tasks were put; how many there are of each segment is known
	RunClosed RunState = "closed" // all tasks are done, or in quarantine (Run.Rest)
	RunBroken RunState = "broken" // it could not be continued; Note says why and where
	// RunAbandoned: its client no longer beats. Its tasks that were put are done as before; a client
	// that comes back goes on.
	RunAbandoned RunState = "abandoned"
	// RunEnded: its tasks are not started any more. A task that is met later goes to quarantine, or is
	// dropped (Run.Drop).
	RunEnded RunState = "ended"
)

// Live reports whether tasks of a run in this state are started.
func (s RunState) Live() bool { return s != RunClosed && s != RunEnded }

const (
	// maxText bounds the texts of a run row, in bytes.
	maxText = 8 << 10
	// sealedPart is what one property holds of the counters of a run, and sealedParts how many
	// properties there are: 16,384 counters of at most ten bytes are 160 KiB. All of 4,096
	// segments fit the first.
	sealedPart  = 60 << 10
	sealedParts = 3
)

// Run is one distribution: a source read from start to end.
type Run struct {
	ID       codec.RunID
	Workload string
	// Mode names how the run came about, for people: "once", "named", "every", "cron", "client",
	// "posts".
	Mode string
	// Name is the user's own; the ID follows from it. Empty: it has none.
	Name string
	// Fingerprint says which source with which settings (P2.3), at most 8 KiB.
	Fingerprint string
	State       RunState
	// Sealed is the number of tasks of each segment, once sealed.
	Sealed []uint64
	// Tasks is the sum of Sealed.
	Tasks uint64
	// Started and Ended are by the clocks of the instances that wrote them, to the millisecond. They
	// are for people; no decision depends on them.
	Started, Ended time.Time
	// Instance created the run; Note is why it broke or ended, at most 8 KiB.
	Instance, Note string
	// Epoch is the term of the leader that distributes it, 0 for a client's run. Seal and Break of
	// an earlier term are refused; see [Runs.By].
	Epoch uint64
	// Beat is how often its client or leader promises to call [Runs.Beat]; 0: it does not.
	Beat time.Duration
	// Rest is how many tasks were in quarantine when the run was closed.
	Rest uint64
	// Drop, of an ended run: its tasks are dropped when they are met, not quarantined.
	Drop bool
	// Over: no task of an ended run was met for a quiet time, or the ledger's rest of a closed run was
	// given up. The ledger's record of it goes. A task that was redriven is done under the identity of
	// a foreign message.
	Over bool
	// Accounts are those that its client had credentials for at its begin; empty if a member row says
	// it.
	Accounts []string
	// Changed is the server's time of the last change; only Get and List give it.
	Changed time.Time
}

// Runs is the run rows of one workload. Its methods may be called from many
// goroutines at once, and any of them again after a failure: each is ambiguous-safe and
// idempotent. They give up after a minute.
type Runs struct {
	table    storage.Table
	workload string
	epoch    uint64
	beats    *beats
	crowd    *atomic.Int64 // how many lived when they were listed last
}

// NewRuns gives a handle; it makes no request.
func NewRuns(t storage.Table, workload string) *Runs {
	return &Runs{table: t, workload: workload, beats: newBeats(), crowd: new(atomic.Int64)}
}

// By gives a handle for the leader of a term. A run that it creates or takes over belongs
// to that term, and Seal and Break by an earlier one, or by none, are refused with
// ErrRunState.
func (r *Runs) By(epoch uint64) *Runs {
	by := *r
	by.epoch = epoch
	return &by
}

// Create adds the row of an open run. It comes before the run's first Put.
// Started is now if it is zero. Creating a run that this call, or the same call
// before, has created is success; with other content it is ErrRunState.
func (r *Runs) Create(ctx context.Context, run Run) error {
	run, err := r.complete(run)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	// The row by time is first: without the run row it is skipped by List, while
	// a run row without it would never be listed.
	if err := r.note(ctx, run); err != nil {
		return fmt.Errorf("run %s: %w", run.ID, err)
	}
	stored := r.row(run.ID)
	stored.Beside = []storage.Write{r.live(run)}
	_, err = stored.TryWrite(ctx, row.Version[Run]{}, run)
	if errors.Is(err, row.ErrLost) {
		var v row.Version[Run]
		v, err = stored.MustRead(ctx)
		if err == nil && (v.Absent() || !sameRun(v.Value, run)) {
			err = fmt.Errorf("%w: it exists with other content", pump.ErrRunState)
		}
	}
	if err != nil {
		return fmt.Errorf("creating run %s: %w", run.ID, err)
	}
	return nil
}

// complete checks a run to be created and fills in what is left out.
func (r *Runs) complete(run Run) (Run, error) {
	switch {
	case run.ID.IsZero():
		return run, errors.New("a run needs an id")
	case run.Workload != "" && run.Workload != r.workload:
		return run, fmt.Errorf("run %s is of workload %q, not of %q", run.ID, run.Workload, r.workload)
	case run.State != "" && run.State != RunOpen:
		return run, fmt.Errorf("run %s: %w: a new run is open, not %s", run.ID, pump.ErrRunState,
			run.State)
	case len(run.Fingerprint) > maxText || !utf8.ValidString(run.Fingerprint):
		return run, fmt.Errorf("run %s: its fingerprint is longer than %d bytes or no text",
			run.ID, maxText)
	}
	if run.Started.IsZero() {
		run.Started = time.Now()
	}
	return Run{
		ID: run.ID, Workload: r.workload, Mode: printable(run.Mode), Name: printable(run.Name),
		Fingerprint: run.Fingerprint, State: RunOpen, Started: milliseconds(run.Started),
		Instance: printable(run.Instance),
		Note:     printable(run.Note), Epoch: r.epoch, Beat: max(run.Beat, 0), Accounts: run.Accounts,
	}, nil
}

// sameRun compares what Create wrote, and not the time: a call that leaves it out has another time
// when it is made again.
func sameRun(a, b Run) bool {
	return a.State == RunOpen && a.Epoch == b.Epoch && a.Mode == b.Mode &&
		a.Fingerprint == b.Fingerprint && a.Instance == b.Instance
}

// Get reads a run. It fails with ErrNoRun without such a run.
func (r *Runs) Get(ctx context.Context, id codec.RunID) (Run, error) {
	v, err := r.row(id).MustRead(ctx)
	if err == nil && v.Absent() {
		err = pump.ErrNoRun
	}
	if err != nil {
		return Run{}, fmt.Errorf("run %s: %w", id, err)
	}
	v.Value.Changed = v.Modified
	return v.Value, nil
}

// Take makes an open run that of this handle's term, so that an earlier leader can neither seal nor
// break it any more. It gives the run as it is then, in any state. A run of a later term is
// ErrRunState.
func (r *Runs) Take(ctx context.Context, id codec.RunID) (Run, error) {
	var taken Run
	err := r.change(ctx, "taking over", id, func(run *Run) (done bool, err error) {
		if err := r.mine(run); err != nil {
			return false, err
		}
		done = run.State != RunOpen && run.State != RunAbandoned ||
			run.Epoch == r.epoch && run.State == RunOpen
		if !done {
			run.State, run.Epoch = RunOpen, r.epoch
		}
		taken = *run
		return done, nil
	})
	return taken, err
}

// mine refuses what a deposed leader does.
func (r *Runs) mine(run *Run) error {
	if run.Epoch > r.epoch {
		return fmt.Errorf("%w: the leader of term %d continues it, and this is term %d", pump.ErrRunState,
			run.Epoch, r.epoch)
	}
	return nil
}

// Seal records that the run is complete with counts[i] tasks of segment i, one
// count for each of the 1 to 16,384 segments. It comes after the last
// acknowledgement (P2.2). Sealing again with the same counts is success, with
// others, or sealing a broken or ended run or that of a later term, is ErrRunState.
func (r *Runs) Seal(ctx context.Context, id codec.RunID, counts []uint64) error {
	return r.seal(ctx, id, counts, func(run *Run) error {
		if run.State == RunBroken {
			return fmt.Errorf("%w: it is broken: %s", pump.ErrRunState, run.Note)
		}
		return r.mine(run)
	})
}

// Mend is Seal for a process that has put all tasks of the run again, from its source and with
// their identities: also a broken run, or that of any term, is sealed then, and keeps its note. An
// ended run is not.
func (r *Runs) Mend(ctx context.Context, id codec.RunID, counts []uint64) error {
	return r.seal(ctx, id, counts, func(*Run) error { return nil })
}

func (r *Runs) seal(
	ctx context.Context, id codec.RunID, counts []uint64, allowed func(*Run) error,
) error {
	if len(counts) < 1 || len(counts) > shardmap.MaxSegments {
		return fmt.Errorf("sealing run %s: %d counts, want 1 to %d", id, len(counts),
			shardmap.MaxSegments)
	}
	total, ok := sum(counts)
	if !ok {
		return fmt.Errorf("sealing run %s: more than 2^63 tasks", id)
	}
	counts = slices.Clone(counts)
	return r.change(ctx, "sealing", id, func(run *Run) (done bool, err error) {
		if err := allowed(run); err != nil {
			return false, err
		}
		switch {
		case run.State == RunEnded:
			return false, fmt.Errorf("%w: it has ended: %s", pump.ErrRunState, run.Note)
		case run.State == RunOpen || run.State == RunBroken || run.State == RunAbandoned:
			run.State, run.Sealed, run.Tasks, run.Ended = RunSealed, counts, total, milliseconds(time.Now())
			return false, nil
		case !slices.Equal(run.Sealed, counts):
			return false, fmt.Errorf("%w: it was sealed with %d tasks in %d segments, "+
				"and these are %d in %d or divided differently",
				pump.ErrRunState, run.Tasks, len(run.Sealed), total, len(counts))
		}
		return true, nil
	})
}

// Break records that an open run cannot be continued, and why. Breaking a broken
// run is success and keeps the first note; a sealed, closed or ended one, or that of a later
// term, is ErrRunState.
func (r *Runs) Break(ctx context.Context, id codec.RunID, note string) error {
	return r.change(ctx, "breaking", id, func(run *Run) (done bool, err error) {
		if err := r.mine(run); err != nil {
			return false, err
		}
		switch run.State {
		case RunOpen, RunAbandoned:
			run.State, run.Note, run.Ended = RunBroken, printable(note), milliseconds(time.Now())
			return false, nil
		case RunBroken:
			return true, nil
		}
		return false, fmt.Errorf("%w: it is %s", pump.ErrRunState, run.State)
	})
}

// Close records that all tasks of a sealed run are done (P3.7); their records can be pruned then,
// because the run's state identifies copies. Closing a closed run is success, closing a run in
// another state is ErrRunState.
func (r *Runs) Close(ctx context.Context, id codec.RunID) error {
	return r.closeWith(ctx, id, 0, func(*Run) error { return nil })
}

// ErrOverfull is a ledger that knows tasks that the run does not have.
var ErrOverfull = errors.New("more tasks are recorded than the run has")

// CloseSummed is Close for a run that may have tasks in quarantine; the ledger keeps their numbers.
// It is ErrOverfull unless the ledger has all of the run in every segment.
func (r *Runs) CloseSummed(ctx context.Context, id codec.RunID, sum RunSum) error {
	return r.closeWith(ctx, id, sum.Quarantined, func(run *Run) error {
		if run.Tasks != sum.Done+sum.Quarantined || PrintOf(run.Sealed) != sum.Print {
			return fmt.Errorf("%w: %d are recorded and it was sealed with %d, "+
				"or they are divided differently among the segments",
				ErrOverfull, sum.Done+sum.Quarantined, run.Tasks)
		}
		return nil
	})
}

func (r *Runs) closeWith(
	ctx context.Context, id codec.RunID, rest uint64, check func(*Run) error,
) error {
	return r.change(ctx, "closing", id, func(run *Run) (done bool, err error) {
		switch {
		case run.State == RunSealed && rest <= run.Tasks:
			if err := check(run); err != nil {
				return false, err
			}
			run.State, run.Rest = RunClosed, rest
			return false, nil
		case run.State == RunClosed:
			return true, nil
		}
		return false, fmt.Errorf("%w: it is %s", pump.ErrRunState, run.State)
	})
}

// Abandon records that the client or leader of an open run no longer beats. In any other state
// nothing happens. A beat that comes later opens it again.
func (r *Runs) Abandon(ctx context.Context, id codec.RunID, note string) error {
	return r.change(ctx, "abandoning", id, func(run *Run) (done bool, err error) {
		if run.State != RunOpen {
			return true, nil
		}
		run.State, run.Note, run.Ended = RunAbandoned, printable(note), milliseconds(time.Now())
		return false, nil
	})
}

// End ends a run that is not closed: its tasks are not started any more, and tasks met later go to
// quarantine, or with drop are dropped. Ending an ended run keeps its note; drop can be added. A
// closed run is ErrRunState: it has no task left.
func (r *Runs) End(ctx context.Context, id codec.RunID, drop bool, note string) error {
	return r.change(ctx, "ending", id, func(run *Run) (done bool, err error) {
		switch {
		case run.State == RunClosed:
			return false, fmt.Errorf("%w: it is closed, so nothing of it is left to be done",
				pump.ErrRunState)
		case run.State == RunEnded && (run.Drop || !drop):
			return true, nil
		case run.State == RunEnded:
			run.Drop = true
			return false, nil
		}
		if run.Ended.IsZero() {
			run.Ended = milliseconds(time.Now())
		}
		if run.Note != "" {
			note += ": " + run.Note
		}
		run.State, run.Note, run.Drop = RunEnded, printable(note), drop
		return false, nil
	})
}

// change applies a change to the newest version until it is written, not needed, or refused. Each
// time that its write is lost, another process's write has landed.
func (r *Runs) change(
	ctx context.Context, doing string, id codec.RunID, apply func(*Run) (done bool, err error),
) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	stored := r.row(id)
	for {
		v, err := stored.MustRead(ctx)
		if err == nil && v.Absent() {
			err = pump.ErrNoRun
		}
		next, done := v.Value, false
		if err == nil {
			done, err = apply(&next)
		}
		if err == nil && !done {
			// One transaction: a list of live runs sees each change.
			stored.Beside = []storage.Write{r.live(next)}
			_, err = stored.TryWrite(ctx, v, next)
		}
		if errors.Is(err, row.ErrLost) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s run %s: %w", doing, id, err)
		}
		return nil
	}
}

func (r *Runs) row(id codec.RunID) row.Row[Run] {
	return row.Row[Run]{
		Table: r.table, Partition: r.partition(), Key: id.String(), Timeout: row.RequestTimeout,
		Encode: func(run Run) map[string]any {
			props := map[string]any{
				"Mode": run.Mode, "Fingerprint": run.Fingerprint, "State": string(run.State),
				"Started": run.Started, "Instance": run.Instance, "Note": run.Note, "Tasks": int64(run.Tasks),
				"Accounts": strings.Join(run.Accounts, " "), "Name": run.Name,
			}
			if !run.Ended.IsZero() {
				props["Ended"] = run.Ended
			}
			if run.Epoch > 0 {
				props["Epoch"] = int64(run.Epoch)
			}
			if run.Beat > 0 {
				props["Beat"] = int64(run.Beat) // ns
			}
			// A closed run with tasks in quarantine is stored as sealed with a rest.
			if run.Rest > 0 {
				props["Rest"] = int64(run.Rest)
				if run.State == RunClosed {
					props["State"] = string(RunSealed)
				}
			}
			if run.Drop {
				props["Drop"] = true
			}
			if run.Over {
				props["Over"] = true
			}
			if run.Sealed != nil {
				row.PutParts(props, "Sealed", sealedPart, appendCounts(nil, run.Sealed))
			}
			return props
		},
		Decode: func(f *row.Fields) Run {
			run := Run{
				ID: id, Workload: r.workload, Mode: f.Text("Mode"), Name: f.Text("Name"),
				Fingerprint: f.Text("Fingerprint"), State: RunState(f.Text("State")),
				Started: f.Moment("Started").UTC(),
				Ended:   f.Moment("Ended").UTC(), Instance: f.Text("Instance"), Note: f.Text("Note"),
				Tasks: f.Count("Tasks"), Epoch: f.UpTo("Epoch", row.MaxEpoch), Beat: f.Duration("Beat"),
				Rest: f.Count("Rest"), Drop: f.Flag("Drop"), Over: f.Flag("Over"),
				Accounts: namesIn(f.Text("Accounts")),
			}
			if run.State == RunSealed && run.Rest > 0 {
				run.State = RunClosed
			}
			if stored := f.Parts("Sealed", sealedParts); stored != nil {
				var err error
				if run.Sealed, err = readCounts(stored); err != nil {
					f.Fail("Sealed", err.Error())
				}
			}
			total, ok := sum(run.Sealed)
			sealed := run.State == RunSealed || run.State == RunClosed
			switch {
			case !sealed && run.State != RunOpen && run.State != RunBroken && run.State != RunAbandoned &&
				run.State != RunEnded:
				f.Fail("State", fmt.Sprintf("is %q", run.State))
			case sealed != (run.Sealed != nil) && run.State != RunEnded || !ok || total != run.Tasks ||
				run.Rest > run.Tasks:
				f.Fail("Sealed", "does not agree with State and Tasks")
			}
			return run
		},
	}
}

func (r *Runs) partition() string { return RunsPartition(r.workload) }

// RunsPartition is the partition with the rows of runs of a workload.
func RunsPartition(workload string) string { return workload + ".runs" }

// sum adds counts up; it is false if the sum does not fit a stored integer.
func sum(counts []uint64) (total uint64, ok bool) {
	for _, n := range counts {
		if n > math.MaxInt64-total {
			return 0, false
		}
		total += n
	}
	return total, true
}

// milliseconds is what is kept of a time, so that it is the same when read.
func milliseconds(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// printable makes any text storable: valid, and not longer than maxText.
func printable(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}
