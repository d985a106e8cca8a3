package accounts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// LostAfter is how long an account must have been draining before it is taken for gone for good:
// ten minutes. An account that was dark for a while answers by then.
const LostAfter = 10 * time.Minute

// Losses are what may be lost with an account that is gone for good. Numbers are upper bounds: no
// row says which of the tasks were in that account.
type Losses struct {
	Account string `json:"account"`
	// Delivery is the workload's. Only [pump.Once] records what is done: else Runs is empty, and
	// nothing can be put again.
	Delivery pump.Delivery `json:"delivery"`
	// Runs are the runs that are not over and have tasks that are not known to be done; never null.
	Runs []LostRun `json:"runs"`
	// Last is the last count of the account's messages within six hours; null if there is none, for
	// example because no process samples the queues.
	Last *LastCount `json:"lastCount"`
	// Foreign are the queues of other programs in it that the workload reads, whose messages no
	// command puts again; never null.
	Foreign []string `json:"foreignQueues"`
}

// LostRun is a run that may have lost tasks.
type LostRun struct {
	Run   pump.RunID `json:"run"`
	State string     `json:"state"`
	Mode  string     `json:"mode"`
	// Unsettled is how many of its tasks are neither done nor in quarantine, null while it is not
	// sealed.
	Unsettled *uint64 `json:"unsettled"`
	// Quarantined is how many are in quarantine, in any account.
	Quarantined uint64 `json:"quarantined"`
	// Kept is why `distributor runs repair` cannot put its tasks again; empty if it can.
	Kept string `json:"notRepaired"`
}

// LastCount is what an account had by the last row of the history that has a count of it, which may
// be some minutes older than its row.
type LastCount struct {
	At          time.Time `json:"at"` // to the minute
	Messages    uint64    `json:"messages"`
	Quarantined uint64    `json:"quarantined"`
}

// Lost says what may be lost with an account when it is removed as gone for good, and changes
// nothing. It asks the control account alone. It is nil if the workload does not use the account.
func Lost(ctx context.Context, cfg pump.Config, name string) (*Losses, error) {
	o, err := openAccounts(ctx, cfg)
	switch {
	case err != nil:
		return nil, err
	case o.Workload.Map.Accounts()[name]:
		return o.losses(ctx, name)
	case !slices.Contains(o.Queues.Names(), name):
		return nil, notConfigured(name)
	}
	return nil, nil
}

// fresh is for how long a process may go on to tell the count of an account that is dark.
const fresh = 5 * time.Minute

// Text says it all for people, in lines; nil for nil.
func (l *Losses) Text(now time.Time) (lines []string) {
	if l == nil {
		return nil
	}
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	say("with account %s this may be lost for good:", l.Account)
	if last := l.Last; last != nil {
		say("  its messages: %d and %d in quarantine, counted last at %s",
			last.Messages, last.Quarantined, last.At.UTC().Format("2006-01-02 15:04 UTC"))
		if now.Sub(last.At) < fresh {
			say("  a process counted them just now: perhaps only this machine cannot reach it")
		}
	} else {
		say("  its messages: nobody has counted them in the last six hours")
	}
	if len(l.Foreign) > 0 {
		say("  what other programs put into %s; no command puts that again",
			strings.Join(l.Foreign, ", "))
	}
	if l.Delivery != pump.Once {
		say("  with delivery: %s nothing says which tasks those are, and none is put again", l.Delivery)
		return lines
	}
	for _, r := range l.Runs {
		say("  run %s (%s): %s", r.Run, r.State, r.text())
	}
	if len(l.Runs) == 0 {
		say("  no task of a run: all that is recorded is done")
	}
	return lines
}

func (r *LostRun) text() string {
	tasks, how := "what it has sent and is not done", "; distributor runs repair puts them again"
	if r.Unsettled != nil {
		tasks = fmt.Sprintf("at most %d tasks", *r.Unsettled)
	}
	if r.Kept != "" {
		how = "; not put again: " + r.Kept
	}
	if r.Quarantined > 0 {
		tasks += fmt.Sprintf(", and of %d in quarantine those in it, which nothing puts again",
			r.Quarantined)
	}
	return tasks + how
}

func (o *accountsOf) losses(ctx context.Context, name string) (*Losses, error) {
	l := &Losses{
		Account: name, Delivery: pump.Delivery(o.Workload.Delivery), Runs: []LostRun{},
		Foreign: []string{},
	}
	for _, s := range o.Workload.Map.Shards {
		if s.Account == name && s.State == shardmap.Foreign {
			l.Foreign = append(l.Foreign, s.Queue)
		}
	}
	points, err := sampling.ReadHistory(ctx, o.Queues.Control, o.Cfg.Workload, time.Time{})
	if points == nil && err != nil {
		o.Cfg.Log.Warn("what was last counted in the account could not be learned", "error", err)
	}
	for _, p := range slices.Backward(points) {
		i := slices.IndexFunc(p.Accounts, func(a sampling.HistoryAccount) bool {
			return a.Name == name && a.Sampled
		})
		if i >= 0 {
			l.Last = &LastCount{p.Time, p.Accounts[i].Messages, p.Accounts[i].Quarantined}
			break
		}
	}
	if o.Workload.Delivery == string(pump.Once) {
		l.Runs, err = o.lostRuns(ctx)
		return l, err
	}
	return l, nil
}

// lostRuns are the runs that may have tasks in any queue.
func (o *accountsOf) lostRuns(ctx context.Context) ([]LostRun, error) {
	// Read before the runs: what is done of a run is forgotten after its row says that it is over.
	sums, err := ledger.ReadSums(ctx, o.Queues.Control, o.Cfg.Workload, o.Workload.Map.Segments)
	if sums == nil {
		return nil, err
	}
	if err != nil { // tasks that are done count as lost
		o.Cfg.Log.Warn("what is done could not be learned of some segments", "error", err)
	}
	live, err := o.Runs().Live(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	lost := []LostRun{}
	for id, n := range sums.Rests {
		lost = append(lost, LostRun{
			Run: id, State: string(workload.RunClosed), Unsettled: new(uint64(0)), Quarantined: n,
			Kept: "it is closed",
		})
	}
	err = queues.Each(ctx, live, func(ctx context.Context, _ int, r workload.LiveRun) error {
		sum := sums.Runs[r.ID]
		l := LostRun{
			Run: r.ID, State: string(r.State), Mode: r.Mode, Quarantined: sum.Quarantined,
		}
		switch {
		case r.Err != nil:
			return fmt.Errorf("run %s: %w", r.ID, r.Err)
		case r.Over || r.State == workload.RunClosed:
			return nil // all is done, or all that is met of it goes to quarantine or is dropped
		case r.State == workload.RunSealed:
			l.Unsettled = new(r.Tasks - min(r.Tasks, sum.Done+sum.Quarantined))
		}
		if l.Unsettled != nil && *l.Unsettled+l.Quarantined == 0 {
			return nil
		}
		var err error
		if l.Kept, err = o.notRepaired(ctx, r); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		lost = append(lost, l)
		return nil
	})
	slices.SortFunc(lost, func(a, b LostRun) int { return workload.CompareRuns(a.Run, b.Run) })
	return lost, err
}

// notRepaired is why a repair of a run is refused; empty if it is not.
func (o *accountsOf) notRepaired(ctx context.Context, r workload.LiveRun) (string, error) {
	switch {
	case r.State == workload.RunEnded:
		return "it has ended", nil
	case closing.OfClient(r.Mode):
		return "a Sender's tasks are in no source", nil
	}
	run, err := o.Runs().Get(ctx, r.ID)
	if err == nil && run.Fingerprint == "" {
		return "its source, standard input or a command, cannot be read again", nil
	}
	return "", err
}

// Copies are messages that lie in an account from before it was removed from the workload.
type Copies struct {
	Messages    int64         `json:"messages"`
	Quarantined int64         `json:"quarantined"`
	Delivery    pump.Delivery `json:"delivery"`
}

// Text says for people what becomes of them.
func (c *Copies) Text() string {
	text := fmt.Sprintf("%d messages of before lie in it, and %d in quarantine; ",
		c.Messages, c.Quarantined)
	if c.Delivery == pump.Once {
		return text + "what is done is recognised, what is open is done, and what is of a run that is " +
			"over goes to quarantine: distributor quarantine list"
	}
	return text + "all of it is handled, again if it was put again meanwhile"
}

// copies counts what is in an account that comes into the workload; nil: nothing, or it is not
// known.
func (o *accountsOf) copies(ctx context.Context, name string, qs []shardmap.Shard) *Copies {
	var work []string
	for _, q := range qs {
		if q.State != shardmap.Foreign {
			work = append(work, q.Queue)
		}
	}
	left, err := o.left(ctx, name, work)
	if err != nil {
		o.Cfg.Log.Warn("whether messages from before lie in the account could not be learned",
			"account", name, "error", err)
	}
	c := &Copies{Delivery: pump.Delivery(o.Workload.Delivery)}
	for _, q := range left {
		if q.Poison {
			c.Quarantined += q.Messages
		} else {
			c.Messages += q.Messages
		}
	}
	if c.Messages+c.Quarantined == 0 {
		return nil
	}
	return c
}
