package base

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// talliesAtOnce is how many requests are made in one beat, each of up to storage.MaxBatch runs;
	// the other runs follow with the next. With a beat of 5 s that is 320 runs a second. With 32 runs
	// a beat the unwritten tallies grew while 10 runs a second were made.
	talliesAtOnce = 16
	// TalliesKept bounds the memory: beyond it the runs that have not changed for the longest time are
	// forgotten, written ones first.
	TalliesKept = 4096
	// lastTallies is how long a processor that stops takes to write its last ones.
	lastTallies = 2 * time.Second
)

// tallies is what this process has done of each run, written to rows of its own (origins B1).
// People read them, and so does the closer, which does not end a run that was met lately. A tally
// that could not be written is written with the next beat, or never.
type tallies struct {
	write func(ctx context.Context, tallies []workload.RunTally) error

	mu   sync.Mutex // guards what follows
	Runs map[pump.RunID]*runTally
}

// runTally is what was done of one run.
type runTally struct {
	run     pump.RunID
	Now     workload.Tally
	Written workload.Tally
	changed time.Time
	hidden  time.Time // until when something of it may be hidden
	// spent are thousandths of requests. A row is not written for them alone.
	spent uint64
}

// NewTallies makes tallies that write does away with.
func NewTallies(write func(context.Context, []workload.RunTally) error) *tallies {
	return &tallies{write: write, Runs: map[pump.RunID]*runTally{}}
}

// Add counts what was done of a run. What no distributor made belongs to none.
func (t *tallies) Add(run pump.RunID, done workload.Tally) {
	if run == (pump.RunID{}) || done == (workload.Tally{}) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.of(run)
	r.changed = time.Now()
	if until := r.changed.Add(done.Hides); until.After(r.hidden) {
		r.hidden = until
	}
	done.Hides = 0
	r.Now = r.Now.Add(done)
}

// of gives what is known of a run. t.mu is held.
func (t *tallies) of(run pump.RunID) *runTally {
	r := t.Runs[run]
	if r == nil {
		if len(t.Runs) >= TalliesKept {
			t.forget()
		}
		r = &runTally{run: run, changed: time.Now()}
		t.Runs[run] = r
	}
	return r
}

// Spend counts what a message of a run has cost, in thousandths of a request to a queue.
func (t *tallies) Spend(run pump.RunID, thousandths uint64) {
	if run == (pump.RunID{}) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(run).spent += thousandths
}

// AddMet counts that a message of a run was delivered, is held on, or was put back, and for how
// long it is hidden. The closer takes a run for over when no message of it is met for long enough.
func (t *tallies) AddMet(run pump.RunID, hidden time.Duration) {
	t.Add(run, workload.Tally{Met: 1, Hides: hidden.Round(time.Second)})
}

// forget makes room for half as many as are kept, so that it is not called for each run. Runs whose
// tallies could not be written go too if they are so many. Few of such short-lived runs are missed,
// and while the control plane is dark they would fill the memory.
func (t *tallies) forget() {
	written := t.sorted(func(r *runTally) bool { return r.Now == r.Written })
	unwritten := t.sorted(func(r *runTally) bool { return r.Now != r.Written })
	for _, r := range append(written, unwritten...)[:TalliesKept/2] {
		delete(t.Runs, r.run)
	}
}

// sorted gives the wanted tallies, longest unchanged first, always in the same order (P9). t.mu is
// held.
func (t *tallies) sorted(want func(*runTally) bool) (all []*runTally) {
	for _, r := range t.Runs {
		if want(r) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *runTally) int {
		return cmp.Or(a.changed.Compare(b.changed), bytes.Compare(a.run[:], b.run[:]))
	})
	return all
}

// Flush writes what has changed, until a request fails or the requests of one beat are used up.
func (t *tallies) Flush(ctx context.Context) {
	t.mu.Lock()
	changed := t.sorted(func(r *runTally) bool { return r.Now != r.Written })
	t.mu.Unlock()
	changed = changed[:min(len(changed), talliesAtOnce*storage.MaxBatch)]
	for some := range slices.Chunk(changed, storage.MaxBatch) {
		if t.flushSome(ctx, some) != nil {
			return
		}
	}
}

// flushSome writes what is known of some runs, with one request.
func (t *tallies) flushSome(ctx context.Context, runs []*runTally) error {
	values := make([]workload.RunTally, len(runs))
	t.mu.Lock()
	for i, r := range runs {
		values[i] = workload.RunTally{Run: r.run, Tally: r.Now}
		values[i].Hides, values[i].Spent = max(0, time.Until(r.hidden)), r.spent
	}
	t.mu.Unlock()
	if err := t.write(ctx, values); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, r := range runs {
		r.Written = values[i].Tally
		r.Written.Hides, r.Written.Spent = 0, 0
	}
	return nil
}

// Keep flushes with every beat until ctx ends.
func (t *tallies) Keep(ctx context.Context, beat func() time.Duration, j waits.Jitter) {
	for n := uint64(0); waits.Wait(ctx, j.Around(beat(), "tally", "", n)); n++ {
		t.Flush(ctx)
	}
}

// Last writes once more what has changed since the last beat.
func (t *tallies) Last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastTallies)
	defer cancel()
	t.Flush(ctx)
}

// tallyRow is the name of a process's rows: its instance, and when it began. Otherwise a processor
// that is started again under a given name would write zeros over what it had done before.
func (r *Env) tallyRow() string {
	return r.Cfg.Instance + "." + r.Began.UTC().Format("20060102T150405")
}

// newTallies makes the tallies of this process, which are rows of the workload.
func (r *Env) newTallies() *tallies {
	row := r.tallyRow()
	return NewTallies(func(ctx context.Context, tallies []workload.RunTally) error {
		return workload.NoteTallies(ctx, r.Queues.Control, r.Cfg.Workload, row, tallies...)
	})
}
