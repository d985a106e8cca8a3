package coordination

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// ErrClaimTaken: the work of a claim took longer than the interval, and another has claimed the
// key since. What the work did still stands.
var ErrClaimTaken = errors.New("the claim was older than its interval and was taken over")

// Claims let work on a key begin at most once an interval, over any number of processes (origins
// B2 to B4). A key's row says when work on it last started and stopped, and whether it runs:
//
//	             Claim (insert)             Done
//	(no row) ------------------> running ---------> stopped (done or failed)
//	                              ^   ^               |
//	  an interval after its start |   |               | an interval after the start,
//	  (abandoned)                 +---+---------------+ or at once: the same task, failed
//
// The process that writes the row by compare-and-swap has the claim. The interval runs from
// and to stamps of the service, of the row itself and of a clock row beside it. It uses no
// machine's clock, and in doubt a key counts as younger. If the service's clock goes back, keys may
// be granted too early until it is where it was, and for an interval after that.
//
// The interval must be longer than the longest work: a running claim that is
// older is taken for abandoned. Where processes have different intervals,
// a running claim is good for the longer of its own and the reader's.
//
// Each key has a row of about half a KiB. A workload's closer removes the row when the interval
// and then the retention have passed since its last write; without a closer it stays. Claims may be
// used from many goroutines at once; a process should have one for a workload.
type Claims struct {
	table    storage.Table
	workload string
	interval time.Duration
	err      error // of the arguments
	token    string
	clocks   [workload.ClaimParts]row.ServerClock
	hands    hands
}

// NewClaims gives a handle; it makes no request. Interval is the least time from start to start of
// a key's work; instance is this process's name. The methods report an interval or name that cannot
// be used.
func NewClaims(
	t storage.Table, workloadName string, interval time.Duration, instance string,
) *Claims {
	c := &Claims{
		table: t, workload: workloadName, interval: interval, err: workload.CheckName(workloadName),
		token: row.TokenOf(t, row.Clip(instance)),
	}
	if interval <= 0 {
		c.err = errors.Join(c.err, fmt.Errorf("claims: an interval of %v", interval))
	}
	for part := range c.clocks {
		c.clocks[part] = row.ServerClock{
			Table: t, Partition: workload.ClaimsPartition(workloadName, part), Timeout: row.RequestTimeout,
			Age: max(interval, time.Second),
		}
	}
	return c
}

// Verdict is what became of an attempt to claim a key.
type Verdict uint8

// The verdicts.
const (
	// Granted: begin, and call [Claim.Done] afterwards.
	Granted Verdict = iota + 1
	// Fresh: another task's work on the key, or this task's own that succeeded,
	// began less than the interval ago. Skip the task.
	Fresh
	// Busy: this very task's work began less than the interval ago and has not stopped: the work still
	// runs elsewhere, or its process died. Come back later; skipping would lose the task.
	Busy
)

// String is the verdict in a word.
func (v Verdict) String() string {
	switch v {
	case Granted:
		return "granted"
	case Fresh:
		return "fresh"
	case Busy:
		return "busy"
	}
	return fmt.Sprintf("verdict(%d)", v)
}

// Claim is a claim that was granted. Its methods are for one goroutine at a time.
type Claim struct {
	// Until is the local time until which no process takes the key over.
	Until time.Time

	row   row.Row[claimRow]
	won   row.Version[claimRow]
	doubt bool // a call of Done may have been done, or may be yet
	ended bool
	leave func()      // leaves claims.hands; only the first call does
	later *time.Timer // calls it, when no process can find the claim unworked any more
}

// Claim asks to begin work on a key, any bytes, for a task. Unless it is Granted the duration says
// how long until the key may be claimed, at most the interval. A task that comes again after its
// own Done(failed) is granted at once: a retry does not count as a new task.
//
// After an error it is not known whether the key was claimed. The same task may ask again: in this
// process at once, while in others it is Busy for the interval. It gives up after a minute. A
// damaged row is an error that names it.
func (c *Claims) Claim(
	ctx context.Context, key []byte, task TaskRef,
) (*Claim, Verdict, time.Duration, error) {
	if c.err != nil {
		return nil, 0, 0, c.err
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	r, part := claimRowOf(c.table, c.workload, key)
	mine := newClaimRow(key, task)
	mine.owner, mine.interval = c.token, c.interval
	// Before the write, so that no other goroutine of this process finds a row of
	// ours and no task at work on it.
	c.hands.take(r.Key)
	claim, verdict, wait, err := c.claim(ctx, r, part, mine)
	if claim == nil {
		c.hands.leave(r.Key)
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("claiming a key: %w", err)
	}
	return claim, verdict, wait, nil
}

func (c *Claims) claim(
	ctx context.Context, r row.Row[claimRow], part int, mine claimRow,
) (*Claim, Verdict, time.Duration, error) {
	for {
		v, err := r.MustReadOrCreate(ctx)
		if err != nil {
			return nil, 0, 0, err
		}
		verdict, wait, err := c.judge(ctx, r, part, v, mine)
		if err != nil || verdict != Granted {
			return nil, verdict, wait, err
		}
		won, err := r.TryWrite(ctx, v, mine)
		if err == nil {
			claim := &Claim{
				Until: won.Sent.Add(row.Slowest(c.interval)), row: r, won: won,
				leave: sync.OnceFunc(func() { c.hands.leave(r.Key) }),
			}
			if time.Now().Before(claim.Until) {
				return claim, Granted, 0, nil
			}
			// Others may have taken it over before the answer was here: look again.
		} else if !errors.Is(err, row.ErrLost) || ctx.Err() != nil {
			return nil, 0, 0, err
		}
	}
}

// judge says what a task may do with a key whose row is v.
func (c *Claims) judge(
	ctx context.Context, r row.Row[claimRow], part int, v row.Version[claimRow], mine claimRow,
) (Verdict, time.Duration, error) {
	old, interval := v.Value, c.interval
	same := old.task == mine.task
	switch {
	case v.Absent():
		return Granted, 0, nil
	case !old.running && old.failed && same:
		return Granted, 0, nil
	case old.running && same && old.owner == c.token && !c.hands.others(r.Key):
		// This process claimed the key in a call whose outcome it did not learn, or stopped in a call
		// that did not get through: no task is at work on it.
		return Granted, 0, nil
	case old.running:
		interval = max(interval, old.interval)
	}
	now, err := c.clocks[part].AtLeast(ctx)
	if err != nil {
		return 0, 0, err
	}
	if now.IsZero() || v.Modified.IsZero() {
		return 0, 0, fmt.Errorf("row %s: the service says no time of it", r.Object())
	}
	left := old.started(v.Modified).Add(interval).Sub(now)
	if left <= 0 {
		return Granted, 0, nil
	}
	// A server that set its clock back must not make a task wait for years.
	left = min(left, interval)
	if old.running && same {
		return Busy, left, nil
	}
	return Fresh, left, nil
}

// Done records that the work has stopped; failed says that it will be tried again by
// the same task. It comes after the work's effect and before the task is settled.
// Call Done again after an error; after a success that does no harm. Done gives up after a minute.
// [ErrClaimTaken] says that another task has the key now.
func (cl *Claim) Done(ctx context.Context, failed bool) error {
	if cl.ended {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	next := cl.won.Value
	next.running, next.failed = false, failed
	// From the claim's answer to the sending of this: the true time between the
	// two stamps is longer, so the start is not said to be earlier than it was.
	next.took = row.Slowest(time.Since(cl.won.Received))
	_, err := cl.row.TryWrite(ctx, cl.won, next)
	if errors.Is(err, row.ErrLost) {
		err = cl.own(ctx, next, err)
	}
	taken := errors.Is(err, row.ErrLost)
	cl.ended, cl.doubt = err == nil || taken, storage.Ambiguous(err)
	switch {
	case cl.ended || failed:
		if cl.later != nil {
			cl.later.Stop()
		}
		cl.leave()
	case cl.later == nil:
		// A success that cannot be recorded stays in hand for as long as the claim is fresh, by any
		// clock: otherwise a copy of this task would find a claim without work on it and do the work
		// again.
		cl.later = time.AfterFunc(time.Until(cl.won.Received.Add(2*cl.won.Value.interval)), cl.leave)
	}
	switch {
	case taken:
		return fmt.Errorf("row %s: %w", cl.row.Object(), ErrClaimTaken)
	case err != nil:
		return fmt.Errorf("ending a claim: %w", err)
	}
	return nil
}

// own is nil if no other has the key: the write lost to an earlier call of Done whose outcome was
// in doubt, or the row was gone and is written again.
func (cl *Claim) own(ctx context.Context, next claimRow, lost error) error {
	v, err := cl.row.MustRead(ctx)
	if err != nil {
		return err
	}
	if v.Absent() {
		_, err := cl.row.TryWrite(ctx, v, next)
		return err
	}
	if now := v.Value; now.owner == next.owner && now.task == next.task &&
		now.running == next.running && now.failed == next.failed {
		return nil
	}
	return lost
}

// hands counts, by row, the goroutines of this process that have a claim or are about to have one.
// Its zero value is ready.
type hands struct {
	mu   sync.Mutex
	rows map[string]int
}

func (h *hands) take(row string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rows == nil {
		h.rows = map[string]int{}
	}
	h.rows[row]++
}

func (h *hands) leave(row string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rows[row]--; h.rows[row] == 0 {
		delete(h.rows, row)
	}
}

// others reports whether there is another hand on the row than the caller's.
func (h *hands) others(row string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rows[row] > 1
}
