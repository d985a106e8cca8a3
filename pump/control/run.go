package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// RunState is how far a run has come.
type RunState string

// The states of a run (P1.1, pump/DESIGN.md). A run begins open and ends closed or
// broken; a broken one can be mended, which seals it.
const (
	RunOpen   RunState = "open"   // tasks may still be added
	RunSealed RunState = "sealed" // all tasks were put; how many there are of each segment is known
	RunClosed RunState = "closed" // all tasks are done
	RunBroken RunState = "broken" // it could not be continued; Note says why and where
)

// Errors about runs, wrapped with detail.
var (
	// ErrNoRun: there is no run with that id.
	ErrNoRun = errors.New("there is no such run")
	// ErrRunState: the run's state, or what it was sealed with, does not allow this.
	ErrRunState = errors.New("the run does not allow this")
)

const (
	// maxText bounds the texts of a run row, in bytes.
	maxText = 8 << 10
	// maxSegments bounds the counters of a run: 4,096 of at most ten bytes are
	// 40 KiB, which a property of 64 KiB always holds.
	maxSegments = 4096
)

// Run is one distribution: a source read from start to end.
type Run struct {
	ID       codec.RunID
	Workload string
	// Mode names how the run came about, for whoever looks at it: "once", "every", "client".
	Mode string
	// Fingerprint says which source with which settings (P2.3), at most 8 KiB.
	Fingerprint string
	State       RunState
	// Sealed is the number of tasks of each segment, once sealed.
	Sealed []uint64
	// Tasks is the sum of Sealed.
	Tasks uint64
	// Started and Ended are by the clocks of the instances that wrote them, to
	// the millisecond. They are for people; nothing is decided by them.
	Started, Ended time.Time
	// Instance is who created the run; Note is why it broke, at most 8 KiB.
	Instance, Note string
}

// Runs is the run rows of one workload. Its methods may be called from many
// goroutines at once, and any of them again after a failure: each is ambiguous-safe and
// idempotent. They give up after a minute.
type Runs struct {
	table    storage.Table
	workload string
}

// NewRuns gives a handle; it makes no request.
func NewRuns(t storage.Table, workload string) *Runs { return &Runs{t, workload} }

// Create adds the row of an open run. It comes before the run's first Put.
// Started is now if it is zero. Creating a run that this call, or the same call
// before, has created is success; with other content it is ErrRunState.
func (r *Runs) Create(ctx context.Context, run Run) error {
	run, err := r.complete(run)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The row by time is first: without the run row it is skipped by List, while
	// a run row without it would never be listed.
	if err := r.note(ctx, run); err != nil {
		return fmt.Errorf("run %s: %w", run.ID, err)
	}
	row := r.row(run.ID)
	_, err = row.tryWrite(ctx, version[Run]{}, run)
	if errors.Is(err, errLost) {
		var v version[Run]
		v, err = row.mustRead(ctx)
		if err == nil && (v.absent() || !sameRun(v.value, run)) {
			err = fmt.Errorf("%w: it exists with other content", ErrRunState)
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
		return run, fmt.Errorf("run %s: %w: a new run is open, not %s", run.ID, ErrRunState, run.State)
	case len(run.Fingerprint) > maxText || !utf8.ValidString(run.Fingerprint):
		return run, fmt.Errorf("run %s: its fingerprint is longer than %d bytes or no text", run.ID, maxText)
	}
	if run.Started.IsZero() {
		run.Started = time.Now()
	}
	return Run{
		ID: run.ID, Workload: r.workload, Mode: printable(run.Mode), Fingerprint: run.Fingerprint, State: RunOpen,
		Started: milliseconds(run.Started), Instance: printable(run.Instance), Note: printable(run.Note),
	}, nil
}

// sameRun compares what Create wrote, and not the time: a call that leaves it
// out has another one when it is made again.
func sameRun(a, b Run) bool {
	return a.State == RunOpen && a.Mode == b.Mode && a.Fingerprint == b.Fingerprint && a.Instance == b.Instance
}

// Get reads a run. It is ErrNoRun if there is none.
func (r *Runs) Get(ctx context.Context, id codec.RunID) (Run, error) {
	v, err := r.row(id).mustRead(ctx)
	if err == nil && v.absent() {
		err = ErrNoRun
	}
	if err != nil {
		return Run{}, fmt.Errorf("run %s: %w", id, err)
	}
	return v.value, nil
}

// Seal records that the run is complete with counts[i] tasks of segment i, one
// count for each of the 1 to 4,096 segments. It comes after the last
// acknowledgement (P2.2). Sealing again with the same counts is success, with
// others, or sealing a broken run, is ErrRunState.
func (r *Runs) Seal(ctx context.Context, id codec.RunID, counts []uint64) error {
	return r.seal(ctx, id, counts, func(run *Run) error {
		if run.State == RunBroken {
			return fmt.Errorf("%w: it is broken: %s", ErrRunState, run.Note)
		}
		return nil
	})
}

// Mend is Seal for whoever has put all tasks of the run again, from its source and with
// their identities: also a broken run is sealed then, and keeps its note.
func (r *Runs) Mend(ctx context.Context, id codec.RunID, counts []uint64) error {
	return r.seal(ctx, id, counts, func(*Run) error { return nil })
}

func (r *Runs) seal(ctx context.Context, id codec.RunID, counts []uint64, allowed func(*Run) error) error {
	if len(counts) < 1 || len(counts) > maxSegments {
		return fmt.Errorf("sealing run %s: %d counts, want 1 to %d", id, len(counts), maxSegments)
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
		case run.State == RunOpen || run.State == RunBroken:
			run.State, run.Sealed, run.Tasks, run.Ended = RunSealed, counts, total, milliseconds(time.Now())
			return false, nil
		case !slices.Equal(run.Sealed, counts):
			return false, fmt.Errorf("%w: it was sealed with %d tasks in %d segments, and these are %d in %d or divided differently",
				ErrRunState, run.Tasks, len(run.Sealed), total, len(counts))
		}
		return true, nil
	})
}

// Break records that an open run cannot be continued, and why. Breaking a broken
// run is success and keeps the first note; a sealed or closed one is ErrRunState.
func (r *Runs) Break(ctx context.Context, id codec.RunID, note string) error {
	return r.change(ctx, "breaking", id, func(run *Run) (done bool, err error) {
		switch run.State {
		case RunOpen:
			run.State, run.Note, run.Ended = RunBroken, printable(note), milliseconds(time.Now())
			return false, nil
		case RunBroken:
			return true, nil
		}
		return false, fmt.Errorf("%w: it is %s", ErrRunState, run.State)
	})
}

// Close records that all tasks of a sealed run are done (P3.7); what is recorded of them can
// be pruned then, because a copy of one is recognised by the run's state. Closing a closed run
// is success, an open or broken one is ErrRunState.
func (r *Runs) Close(ctx context.Context, id codec.RunID) error {
	return r.change(ctx, "closing", id, func(run *Run) (done bool, err error) {
		switch run.State {
		case RunSealed:
			run.State = RunClosed
			return false, nil
		case RunClosed:
			return true, nil
		}
		return false, fmt.Errorf("%w: it is %s", ErrRunState, run.State)
	})
}

// change applies a change to the newest version until it is written, not needed,
// or refused. Every time round that the write is lost somebody else's was not.
func (r *Runs) change(ctx context.Context, doing string, id codec.RunID, apply func(*Run) (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	row := r.row(id)
	for {
		v, err := row.mustRead(ctx)
		if err == nil && v.absent() {
			err = ErrNoRun
		}
		next, done := v.value, false
		if err == nil {
			done, err = apply(&next)
		}
		if err == nil && !done {
			_, err = row.tryWrite(ctx, v, next)
		}
		if errors.Is(err, errLost) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s run %s: %w", doing, id, err)
		}
		return nil
	}
}

func (r *Runs) row(id codec.RunID) row[Run] {
	return row[Run]{
		table: r.table, partition: r.partition(), key: id.String(), timeout: requestTimeout,
		encode: func(run Run) map[string]any {
			props := map[string]any{
				"Mode": run.Mode, "Fingerprint": run.Fingerprint, "State": string(run.State), "Started": run.Started,
				"Instance": run.Instance, "Note": run.Note, "Tasks": int64(run.Tasks),
			}
			if !run.Ended.IsZero() {
				props["Ended"] = run.Ended
			}
			if run.Sealed != nil {
				props["Sealed"] = appendCounts(nil, run.Sealed)
			}
			return props
		},
		decode: func(f *fields) Run {
			run := Run{
				ID: id, Workload: r.workload, Mode: f.text("Mode"), Fingerprint: f.text("Fingerprint"),
				State: RunState(f.text("State")), Started: f.moment("Started").UTC(), Ended: f.moment("Ended").UTC(),
				Instance: f.text("Instance"), Note: f.text("Note"), Tasks: f.count("Tasks"),
			}
			if stored := f.binary("Sealed"); stored != nil {
				var err error
				if run.Sealed, err = readCounts(stored); err != nil {
					f.fail("Sealed", err.Error())
				}
			}
			total, ok := sum(run.Sealed)
			switch sealed := run.State == RunSealed || run.State == RunClosed; {
			case !sealed && run.State != RunOpen && run.State != RunBroken:
				f.fail("State", fmt.Sprintf("is %q", run.State))
			case sealed != (run.Sealed != nil) || !ok || total != run.Tasks:
				f.fail("Sealed", "does not agree with State and Tasks")
			}
			return run
		},
	}
}

func (r *Runs) partition() string { return r.workload + ".runs" }

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
