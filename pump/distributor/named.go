package distributor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// A named run may be given as often as you like. Its id follows from the workload and the name, and
// it has an election of its own: one process sends it at a time, and the next one goes on from the
// last checkpoint. The tasks have the same identities each time, so mode once does none twice.

// TakenError says that another process sends a named run.
type TakenError struct {
	Name string
	Run  pump.RunID
	// By is the instance that sends it.
	By string
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("run %s (%s) is being sent by %s; wait for it with: distributor runs wait %s",
		e.Name, e.Run, e.By, e.Run)
}

// namedRun is the id of the run of a name. Another workload of the same name has another run.
func namedRun(incarnation, name string) (id pump.RunID) {
	sum := sha256.Sum256([]byte("run\x00" + incarnation + "\x00" + name))
	copy(id[:], sum[:])
	return id
}

// maxName bounds a name, in bytes.
const maxName = 128

// checkName says what is wrong with a name.
func checkName(name string) error {
	if len(name) <= maxName && !slices.ContainsFunc([]rune(name), func(c rune) bool {
		return c <= ' ' || c == 0x7f || c == '\ufffd'
	}) {
		return nil
	}
	return pump.Invalid("name", fmt.Sprintf("%q is not possible", name),
		fmt.Sprintf("use up to %d bytes of letters, digits and signs, without spaces", maxName))
}

// named sends the run of Options.Name, or what is left of it.
func (d *Distributor) named(ctx context.Context) (Summary, error) {
	r := d.begin()
	err := d.fix(ctx, r)
	if err == nil && r.live {
		err = pump.Invalid("name", "the source of a named run must be one that can be read again",
			"name files, or leave the name out")
	}
	if err == nil {
		err = d.prepare(ctx)
	}
	if err == nil {
		r, err = d.sendNamed(ctx, r)
	}
	if err == nil && d.opts.Wait != nil && r.completion == nil {
		err = d.await(ctx, r)
	}
	return d.report(r, err)
}

// sendNamed sends a run until it is sealed. The run that it gives back tells what became of it.
func (d *Distributor) sendNamed(ctx context.Context, looked *run) (r *run, err error) {
	looked.id = namedRun(d.router.Current().Workload.Incarnation, d.opts.Name)
	looked.log = d.cfg.Log.With("name", d.opts.Name, "run", looked.id.String())
	e := election.New(d.fleet.Control, d.cfg.Workload, election.Options{
		Instance: d.cfg.Instance, Run: looked.id, Every: time.Millisecond, Beat: d.opts.Beat,
		Lease: d.opts.Lease, Log: d.cfg.Log, Rounds: &d.standing, Left: d.leftOf(looked.id),
	})
	for {
		sent, err := d.sentNamed(ctx, looked)
		if sent || err != nil {
			return looked, err
		}
		stood := d.standing.Begin()
		won, wait, err := e.Try(ctx)
		stood()
		switch {
		case won != nil:
			t := &term{d: d, won: won, last: &Summary{}}
			r, err := t.sendNamed(ctx, looked)
			if err == nil || !errors.Is(err, election.ErrDeposed) {
				return r, err
			}
			d.cfg.Log.Warn("another process goes on with the run", "error", err)
		case ctx.Err() != nil:
			return looked, context.Cause(ctx)
		case err != nil && final(err):
			return looked, err
		case err != nil:
			d.cfg.Log.Warn("it is not known who sends the run", "error", err)
		case d.opts.Wait == nil && e.Beats():
			return looked, &TakenError{d.opts.Name, looked.id, e.Leader()}
		}
		if err := d.standBy(ctx, wait); err != nil {
			return looked, err
		}
	}
}

// sentNamed reads the run's row. Sent says that every task of it was put.
func (d *Distributor) sentNamed(ctx context.Context, r *run) (sent bool, err error) {
	row, err := d.runs.Get(ctx, r.id)
	switch {
	case errors.Is(err, pump.ErrNoRun):
		return false, nil
	case err != nil:
		return false, err
	}
	if err := d.sameSource(&row, r); err != nil {
		return false, err
	}
	r.row = row
	switch row.State {
	case workload.RunOpen, workload.RunAbandoned:
		return false, nil
	case workload.RunSealed, workload.RunClosed:
		r.count.Tasks.Store(int64(row.Tasks))
		r.log.Info("the run was sent before; nothing is sent", "tasks", row.Tasks, "state", row.State)
		r.again, r.read = true, &pack.Segmenter{Counts: row.Sealed}
		return true, nil
	}
	return false, fmt.Errorf("%w: it is %s: %s; mend it with: distributor runs repair %s; "+
		"or use another name", pump.ErrRunState, row.State, row.Note, r.id)
}

// sameSource is an error if a run was begun with another source.
func (d *Distributor) sameSource(row *workload.Run, r *run) error {
	if is := d.fingerprint(r.print); row.Fingerprint != is {
		return pump.Invalid("name", fmt.Sprintf("%q is a run with another source or other settings: it "+
			"was %q and is %q", d.opts.Name, row.Fingerprint, is),
			"give the source of then, or use another name")
	}
	return nil
}

// leftOf tells the election what the run's row says of former terms: its own row may be gone.
func (d *Distributor) leftOf(id pump.RunID) func(context.Context, uint64) (election.Left, error) {
	return func(ctx context.Context, _ uint64) (l election.Left, err error) {
		row, err := d.runs.Get(ctx, id)
		switch {
		case errors.Is(err, pump.ErrNoRun):
			return l, nil
		case err != nil:
			return l, err
		}
		l.Epoch = row.Epoch
		if row.State == workload.RunOpen || row.State == workload.RunAbandoned {
			l.Run, l.RunEpoch = id, row.Epoch
		}
		if held := &d.held; l.Run == held.run {
			l.Held, l.Checkpoint = l.RunEpoch == held.epoch, held.checkpoint
		}
		return l, nil
	}
}

// sendNamed sends what is left of the run as its leader. Where leadership is lost, the error is
// [election.ErrDeposed].
func (t *term) sendNamed(ctx context.Context, looked *run) (*run, error) {
	r, err := t.openNamed(ctx, looked)
	if err == nil {
		var from []byte
		if t.won.Resume != nil {
			from = t.won.Resume.Checkpoint
		}
		t.holds(r, from)
		err = t.d.distribute(ctx, r)
	}
	if lost := context.Cause(t.won.Context()); lost != nil {
		return r, lost
	}
	if err == nil || r.broken {
		_, ended := t.finish(ctx)
		return r, errors.Join(err, ended)
	}
	t.abandon(ctx)
	return r, err
}

// openNamed makes the run's row, or takes it over with its checkpoint.
func (t *term) openNamed(ctx context.Context, looked *run) (*run, error) {
	d := t.d
	r := t.begin()
	r.id, r.log, r.source, r.print = looked.id, looked.log, looked.source, looked.print
	row, err := r.runs.Take(ctx, r.id)
	switch {
	case errors.Is(err, pump.ErrNoRun) && t.won.Resume != nil:
		if err = t.bringBack(ctx, r.id); err == nil {
			err = fmt.Errorf("run %s: %w: %s", r.id, pump.ErrNoRun, rowLost)
		}
		return r, err
	case errors.Is(err, pump.ErrNoRun):
		if err = d.create(ctx, r, closing.ModeNamed); err == nil {
			err = t.won.Begin(ctx, r.id)
		}
		return r, err
	case err != nil:
		return r, err
	case row.State != workload.RunOpen: // it came to its end just now
		return r, fmt.Errorf("%w: it is %s", pump.ErrRunState, row.State)
	}
	if err := d.sameSource(&row, r); err != nil {
		return r, err
	}
	r.row = row
	segments := d.router.Current().Workload.Map.Segments
	r.from = &workload.Checkpoint{Counts: make([]uint64, segments)}
	if resume := t.won.Resume; resume != nil && resume.Run == r.id && resume.Checkpoint != nil {
		if r.from, err = workload.DecodeCheckpoint(resume.Checkpoint, segments); err != nil {
			return r, err
		}
		r.count.Tasks.Store(r.from.Tasks())
		r.count.Acked.Store(r.from.Tasks())
	}
	if t.won.Resume == nil {
		err = t.won.Begin(ctx, r.id)
	}
	return r, err
}
