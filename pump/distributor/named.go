package distributor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
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

// maxName bounds a name, in bytes.
const maxName = 128

// checkName says what is wrong with a name.
func checkName(name string) error {
	if len(name) <= maxName && !slices.ContainsFunc([]rune(name), func(c rune) bool {
		return c == ' ' || c == '\ufffd' || !unicode.IsPrint(c)
	}) {
		if _, err := codec.ParseRunID(name); err != nil {
			return nil
		}
	}
	return pump.Invalid("name", fmt.Sprintf("%q is not possible", name),
		fmt.Sprintf("use up to %d bytes of letters, digits and signs, without spaces, that are not the "+
			"id of a run", maxName))
}

// named sends the run of Options.Name, or what is left of it.
func (d *Distributor) named(ctx context.Context) (Summary, error) {
	r := d.begin()
	defer r.close()
	err := d.fix(ctx, r)
	if err == nil && r.live {
		// What can be read only once is given from its start again, and compared as far as it was sent.
		r.source, r.live = &stream{from: r.source}, false
		if r.print, err = r.source.Fingerprint(ctx); err != nil {
			err = &pack.SourceError{Err: err}
		}
	}
	if err == nil {
		err = d.prepare(ctx)
	}
	if err == nil {
		r.id = workload.NamedRun(d.router.Current().Workload.Incarnation, d.opts.Name)
		r.log = d.cfg.Log.With("name", d.opts.Name, "run", r.id.String())
		// The time for waiting goes by while another process sends, too.
		waiting, cancel := cmp.Or(d.opts.Wait, &pump.WaitOptions{}).Within(ctx)
		defer cancel()
		if r, err = d.sendNamed(ctx, waiting, r); r.again == "" {
			waiting = ctx
		}
		if err == nil && d.opts.Wait != nil {
			err = d.await(waiting, r)
		}
	}
	return d.report(r, err)
}

// refusal is that a name cannot be used, and why.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// errSent is that there is nothing to be sent of a named run.
var errSent = errors.New("the run was sent before")

// sendNamed sends a run until it is sealed. The run that it gives back tells what became of it.
// Waiting ends when another process has been waited for long enough.
func (d *Distributor) sendNamed(ctx, waiting context.Context, looked *run) (r *run, err error) {
	var e *election.Election
	first := true
	e = election.New(d.fleet.Control, d.cfg.Workload, election.Options{
		Instance: d.cfg.Instance, Run: looked.id, Times: d.terms,
		Log: d.cfg.Log, Rounds: &d.standing,
		Left: func(ctx context.Context, _ uint64) (election.Left, error) {
			if first && e.Looked().Absent { // then openNamed finds what there is
				first = false
				return election.Left{}, nil
			}
			return d.leftOf(ctx, looked, e.Looked().Finished)
		},
	})
	var refused *refusal
	var unknown logs.Limited
	last := looked // of this process's terms
	for said := ""; ; {
		stood := d.standing.Begin()
		won, wait, err := e.Try(ctx)
		stood()
		if won == nil && err == nil { // another sends it, or has sent it and not said so yet
			_, err = d.leftOf(ctx, looked, false)
		}
		if err == nil {
			unknown.IsOver(d.cfg.Log.Info, "it is known again who sends the run")
		}
		switch {
		case won != nil:
			t := &term{d: d, won: won, last: &Summary{}}
			r, err := t.sendNamed(ctx, looked)
			if errors.As(err, &refused) {
				return r, refused.error
			}
			if err == nil || !errors.Is(err, election.ErrDeposed) && !errors.Is(err, errSent) {
				return r, err
			}
			last = r
			d.cfg.Log.Warn("this process does not go on with the run", "error", err)
		case errors.Is(err, errSent):
			last.count.Tasks.Store(looked.count.Tasks.Load())
			last.row, last.again, last.read = looked.row, looked.again, looked.read
			return last, d.sameLength(ctx, looked)
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case errors.As(err, &refused):
			return last, refused.error
		case err != nil && final(err):
			return last, err
		case err != nil:
			unknown.GoesOn(d.cfg.Log.Warn, "it is not known who sends the run", "error", err)
		case d.opts.Wait == nil && e.Looked().Beats:
			return last, &TakenError{d.opts.Name, looked.id, e.Looked().Leader}
		}
		if by := e.Looked().Leader; won == nil && by != said {
			said = by
			looked.log.Info("another process sends the run, or has died: waiting for it", "by", by,
				"goes_on_after", d.opts.Lease*23/20)
		}
		if err := d.standBy(waiting, wait); err != nil {
			return last, err
		}
		if waiting.Err() != nil && ctx.Err() == nil {
			last.completion = &pump.Completion{
				Run: looked.id, State: pump.RunWaiting, Lacking: []pump.SegmentLack{},
			}
			return last, context.Cause(waiting)
		}
	}
}

// leftOf says what the run's row says of former terms: the election row may be gone, or older. It
// is errSent if every task of the run was put. Finished says that the election row says so.
func (d *Distributor) leftOf(
	ctx context.Context, r *run, finished bool,
) (l election.Left, err error) {
	row, err := d.runs.Get(ctx, r.id)
	switch {
	case errors.Is(err, pump.ErrNoRun) && finished:
		return l, &refusal{fmt.Errorf("%w: run %s of the name %q was sent, and its row is gone; if that "+
			"was a retention ago, the name is free in an hour or little more, else use another one",
			pump.ErrRunState, r.id, d.opts.Name)}
	case errors.Is(err, pump.ErrNoRun):
		return l, nil
	case err != nil:
		return l, err
	}
	if err := d.sameSource(&row, r); err != nil {
		return l, err
	}
	switch row.State {
	case workload.RunOpen, workload.RunAbandoned:
		if finished {
			return l, &refusal{fmt.Errorf("%w: run %s of the name %q was sent, and its row came back as it "+
				"was before that: its account failed over, or the table was restored; end it with: "+
				"distributor runs end %s; and use another name for what is sent next",
				pump.ErrRunState, r.id, d.opts.Name, r.id)}
		}
	case workload.RunSealed, workload.RunClosed:
		r.log.Info("the run was sent before; nothing is sent", "tasks", row.Tasks, "state", row.State)
		r.count.Tasks.Store(int64(row.Tasks))
		r.row, r.again, r.read = row, string(row.State), &pack.Segmenter{Counts: row.Sealed}
		return l, errSent
	default:
		return l, &refusal{fmt.Errorf("%w: run %s of the name %q is %s: %s; see whether this mends it: "+
			"distributor runs repair %s --input FILE; or use another name",
			pump.ErrRunState, r.id, d.opts.Name, row.State, row.Note, r.id)}
	}
	l = election.Left{Epoch: row.Epoch, Run: r.id, RunEpoch: row.Epoch}
	if held := &d.held; held.run == r.id {
		l.Held, l.Checkpoint = l.RunEpoch == held.epoch, held.checkpoint
	}
	return l, nil
}

// sameSource is an error if a run was begun with another source. A row that was made again after it
// was gone does not tell, and the run is broken (bringBack).
func (d *Distributor) sameSource(row *workload.Run, r *run) error {
	if is := d.fingerprint(r.print); row.Fingerprint != "" && row.Fingerprint != is {
		n, was := 0, row.Fingerprint
		for n < min(len(is), len(was)) && is[n] == was[n] {
			n++
		}
		n = strings.LastIndexByte(is[:n], ' ') + 1
		return d.otherSource(fmt.Sprintf("it was begun with %q, and this has %q", was[n:], is[n:]))
	}
	return nil
}

// sameLength is an error if a stream that was sent to its end has another number of tasks now.
func (d *Distributor) sameLength(ctx context.Context, r *run) error {
	s, again := r.source.(*stream)
	if !again || s.opened {
		return nil
	}
	from, err := s.Open(ctx, nil)
	n, rec := uint64(0), source.Record{}
	for n <= r.row.Tasks && err == nil {
		rec, err = from.Next(ctx)
		rec.Key = shardmap.StoredKey(rec.Key, rec.Body, len(r.row.Sealed)) // as it was sent
		if err == nil && pack.TooLarge(d.cfg.Workload, &rec, d.opts.BlobAbove) == nil {
			n++
		} else if _, bad := errors.AsType[*source.BadInput](err); bad {
			err = nil
		}
	}
	from.Close()
	switch {
	case err != nil && err != io.EOF:
		return err
	case n == r.row.Tasks:
		return nil
	}
	return errors.Unwrap(d.otherSource(fmt.Sprintf("%d tasks were sent, and this has another number",
		r.row.Tasks)))
}

func (d *Distributor) otherSource(how string) error {
	return &refusal{pump.Invalid("name", fmt.Sprintf("%q is a run of another source or with other "+
		"settings: %s", d.opts.Name, how), "give what it was begun with, or use another name")}
}

// sendNamed sends what is left of the run as its leader. The error is [election.ErrDeposed] where
// leadership is lost, and errSent where the run came to an end just now.
func (t *term) sendNamed(ctx context.Context, looked *run) (*run, error) {
	r, err := t.openNamed(ctx, looked)
	defer r.close()
	opened := err == nil
	if opened {
		t.holds(r, t.won.Resume.Checkpoint)
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
	if opened && !errors.Is(err, pump.ErrRunState) { // else an operator ended it
		r.log.Warn("the run is not sent to its end; the same command goes on with it")
	}
	return r, err
}

// openNamed makes the run's row, or takes it over with its checkpoint.
func (t *term) openNamed(ctx context.Context, looked *run) (*run, error) {
	d, from := t.d, t.won.Resume.Checkpoint
	r := t.begin()
	r.id, r.log, r.source, r.print = looked.id, looked.log, looked.source, looked.print
	r.begun, r.before, r.beforeThrottled = looked.begun, looked.before, looked.beforeThrottled
	if t.won.Epoch == 1 { // there is nothing to take over, unless the election row was lost
		err := d.createNamed(ctx, r)
		if errors.Is(err, pump.ErrRunState) { // the next term's epoch is above those of the run
			err = fmt.Errorf("%w: the run was begun before", election.ErrDeposed)
		}
		return r, err
	}
	row, err := r.runs.Take(ctx, r.id)
	switch {
	case errors.Is(err, pump.ErrRunState): // of a later term: the election row was lost
		return r, errSent
	case errors.Is(err, pump.ErrNoRun) && from != nil:
		if err = t.bringBack(ctx, r.id, closing.ModeNamed); err == nil {
			err = fmt.Errorf("run %s: %w: %s", r.id, pump.ErrNoRun, rowLost+nameSends)
		}
		return r, err
	case errors.Is(err, pump.ErrNoRun):
		return r, d.createNamed(ctx, r)
	case err != nil:
		return r, err
	case row.State != workload.RunOpen:
		return r, errSent
	}
	if err := d.sameSource(&row, r); err != nil {
		return r, err
	}
	r.row = row
	if err := r.goOn(from); err != nil {
		return r, err
	}
	if _, again := r.source.(*stream); !again {
		return r, nil
	}
	r.reader, err = r.source.Open(ctx, r.from.Cursor)
	if errors.Is(err, source.ErrSourceChanged) {
		err = d.otherSource(err.Error())
	} else if errors.Is(err, source.ErrNotReplayable) { // by this process, which lost the leadership
		err = fmt.Errorf("%w by this process: give the command again, and it goes on with the run", err)
	}
	return r, err
}

// createNamed makes the run's row. Not if the source cannot be read, or its first record ends the
// run: with a key that is misspelt the name stays free for the command that is mended.
func (d *Distributor) createNamed(ctx context.Context, r *run) (err error) {
	switch s := r.source.(type) {
	case *intake: // tells its program that the run has begun when it is opened
	case *stream:
		if bad, is := errors.AsType[*source.BadInput](s.reader.err); is &&
			d.opts.OnBadLine == BadLineFail {
			return bad
		}
	default:
		if err = r.peek(ctx); err == nil {
			err = r.firstGood(d.opts.OnBadLine)
		}
		if err != nil {
			return err
		}
	}
	return d.create(ctx, r, closing.ModeNamed)
}
