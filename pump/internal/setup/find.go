package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// A workload lives where its rows are: in one account. A configuration that names another one, or
// that names none and lists the accounts in another order, finds no rows there. If it then made the
// workload, two clusters would work on the same queues, each without the runs of the other. So a
// process looks for a missing workload in every other configured account before it makes the
// workload, and before a command says that it does not exist. If processes make it at the same time
// in different accounts, one succeeds ([workload.Maker]).

// Elsewhere looks for the workload in the configured accounts other than the control account. It is
// nil if none of them has it. It is a [*pump.ConfigError] if one has it, or if an account refuses
// or is disabled and the configuration does not say which one is the control account ([Unsure]);
// and a storage error if an account does not answer, so that it may be there. An account with an
// unknown name counts as one that refuses, if the configuration names the control account.
func Elsewhere(ctx context.Context, c *Config, announcing *workload.Maker) error {
	var mu sync.Mutex
	var found, refused []string
	var unanswered, cause error
	var stranger *pump.ConfigError
	waits := NewWaits(c.Log, "waiting for accounts to answer, because the workload may be there",
		"accounts")
	ctx, gaveUp := waits.GiveUp(ctx, true)
	defer waits.Stop()
	_ = queues.Each(ctx, others(c), func(ctx context.Context, _ int, a pump.Account) error {
		table := &watchedTable{Table: a.Storage.Table(row.TableName), account: a.Name}
		waits.Begin(a.Name, table.trouble)
		var there bool
		var err error
		if announcing != nil {
			err = announce(ctx, c, announcing, table)
		}
		if err == nil {
			there, err = hasWorkload(ctx, table, c)
		}
		if err == nil && !there {
			err = table.disabled()
		}
		// The account does not exist, if its name is not just unknown here.
		named := c.ControlGiven && storage.Hopeless(table.trouble())
		waits.End(a.Name)
		mu.Lock()
		defer mu.Unlock()
		strange, ok := errors.AsType[*pump.ConfigError](err)
		switch {
		case ok:
			stranger = strange
		case there:
			found = append(found, a.Name)
		case err != nil && (named || !storage.Ambiguous(err) && !storage.Is(err, storage.Canceled)):
			refused = append(refused, a.Name)
			cause = err
		case err != nil:
			unanswered = fmt.Errorf("account %s does not answer, so it cannot be known "+
				"whether workload %q is there: %w",
				a.Name, c.Workload, err)
		}
		return nil
	})
	if err := gaveUp(); err != nil && unanswered != nil {
		unanswered = err
	}
	slices.Sort(found)
	slices.Sort(refused)
	switch {
	case len(found) > 0:
		return pump.Invalid("control",
			fmt.Sprintf("workload %q is in account %s, and not in %s, where this configuration expects it",
				c.Workload, strings.Join(found, " and "), c.Control),
			"set control: "+found[0]+
				" (without it the first account listed is meant, so their order counts)")
	case stranger != nil:
		return stranger
	case unanswered != nil:
		return unanswered
	case len(refused) > 0 && !c.ControlGiven:
		return &unsureError{pump.Invalid("control", fmt.Sprintf("workload %q is not in account %s, and "+
			"%s cannot be looked into with the credentials given: %v",
			c.Workload, c.Control, SomeOf(refused, 4), cause),
			"mend the credentials, or say which account has the workload, or shall have it: control: "+
				c.Control)}
	}
	return nil
}

// unsureError says that an account that may have the workload refuses.
type unsureError struct{ *pump.ConfigError }

func (e *unsureError) Unwrap() error { return e.ConfigError }

// Unsure reports whether the workload may be in an account that refuses. A service waits for that
// account.
func Unsure(err error) bool {
	_, is := errors.AsType[*unsureError](err)
	return is
}

// hasWorkload looks into one account. An unreadable row counts, too.
func hasWorkload(ctx context.Context, t storage.Table, c *Config) (there bool, err error) {
	_, err = lookInto(ctx, t, c)
	switch {
	case err == nil, errors.Is(err, row.ErrCorrupt), errors.Is(err, workload.ErrDeleting):
		return true, nil
	case errors.Is(err, pump.ErrNoWorkload):
		return false, nil
	}
	return false, err
}

// lookInto reads the row that the workload would have in an account.
func lookInto(
	ctx context.Context, t storage.Table, c *Config,
) (w *workload.Workload, err error) {
	return waits.Get(ctx, func(ctx context.Context) (*workload.Workload, error) {
		return workload.Load(ctx, drawing(c, t), c.Workload)
	})
}

// TableIn gives the table in which an account would have the workload's rows.
func TableIn(c *Config, a pump.Account) storage.Table {
	return drawing(c, a.Storage.Table(row.TableName))
}

func drawing(c *Config, table storage.Table) storage.Table {
	if draw := c.Sim.Seeding.Draw; draw != nil {
		table = row.Seeded(table, draw)
	}
	return table
}

// announce changes the anchor in another account; a maker does so before it looks there.
func announce(ctx context.Context, c *Config, m *workload.Maker, t storage.Table) error {
	return waits.Within(ctx, func(ctx context.Context) error {
		return m.Announce(ctx, drawing(c, t), c.Workload)
	})
}

// Maker gives the maker of the workload in the account that the configuration expects, and in no
// other. asking is called each time before other accounts are asked, and gives what is called
// afterwards.
func Maker(c *Config, asking func() (asked func())) *workload.Maker {
	m := &workload.Maker{Account: c.Control, Known: func(account string) error {
		return isKnown(c, account)
	}}
	m.Absent = func(ctx context.Context, announce bool) error {
		defer asking()()
		if announce {
			return beforeMaking(ctx, c, m)
		}
		return beforeMaking(ctx, c, nil)
	}
	return m
}

// isKnown is nil for a configured account. An anchor names another account if a process makes, or
// has made, the workload with partly other accounts in its configuration.
func isKnown(c *Config, account string) error {
	if slices.ContainsFunc(c.Accounts, func(a pump.Account) bool { return a.Name == account }) {
		return nil
	}
	return pump.Invalid("accounts", fmt.Sprintf("one of them takes part in workload %q of "+
		"account %s, and that account is not listed, so that workload cannot be looked for",
		c.Workload, account),
		fmt.Sprintf("add account %s, and set control: %s if that workload is meant; or use another "+
			"workload name; or if that account is gone for good, remove what is left: "+
			"distributor workload delete", account, account))
}

// beforeMaking prevents making a workload that is, or may be, in another account. It waits for an
// account that does not answer until ctx ends: a minute for the row of a workload.
func beforeMaking(ctx context.Context, c *Config, m *workload.Maker) error {
	j := waits.Jitter(c.Instance)
	for n := uint64(0); ; n++ {
		err := Elsewhere(ctx, c, m)
		if err == nil {
			return nil
		}
		wait := j.Around(waits.Doubled(250*time.Millisecond, 5*time.Second, n), "elsewhere",
			c.Workload, n)
		if _, found := errors.AsType[*pump.ConfigError](err); found || storage.Hopeless(err) ||
			!storage.Ambiguous(err) || !waits.Wait(ctx, wait) {
			return fmt.Errorf("the workload was not made: %w", err)
		}
		if n == 0 {
			c.Log.Warn("waiting for an account before the workload is made", "error", err,
				"fix", storage.Fix(err))
		}
	}
}

// RivalPatience is how long a start waits for accounts that may have another workload of the same
// name.
const RivalPatience = 2 * time.Second

// Unrivalled refuses to start where another account has a workload of the same name: two over the
// same queues take each other's messages for their own. An account that does not answer does not
// keep a process from starting.
func Unrivalled(ctx context.Context, c *Config, w *workload.Workload) error {
	ctx, cancel := context.WithTimeout(ctx, RivalPatience)
	defer cancel()
	found, _ := Rivals(ctx, c, w)
	if len(found) == 0 {
		return nil
	}
	other := found[0].Account
	return pump.Invalid("control",
		fmt.Sprintf("workload %q is in account %s, and another one of that name is in account %s",
			c.Workload, c.Control, other),
		fmt.Sprintf("see which one is meant (distributor workload show, with control: %s and with "+
			"control: %s), stop all processes of the other one, and delete it with its account as "+
			"control: distributor workload delete (queues that both use stay)", c.Control, other))
}

// WithAdvice tells what to do about a workload that is not there.
func WithAdvice(ctx context.Context, cfg *Config, err error) error {
	switch {
	case errors.Is(err, pump.ErrNoWorkload):
		if there, ok := errors.AsType[*pump.ConfigError](Elsewhere(ctx, cfg, nil)); ok &&
			strings.Contains(there.Problem, "is in account") {
			return there
		}
		return fmt.Errorf("%w in account %s; the first `distributor run` makes it, of all the "+
			"accounts in its configuration",
			err, cfg.Control)
	case err != nil:
		return fmt.Errorf("control account %s: %w", cfg.Control, err)
	}
	return nil
}

// SomeOf names the first of many.
func SomeOf(names []string, most int) string {
	list := strings.Join(names[:min(len(names), most)], ", ")
	if n := len(names) - most; n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	return list
}

// WorkloadRival is what workloads.Rival has.
type WorkloadRival struct {
	Account     string
	Incarnation string
	SameQueues  []string
	Problem     string
}

// Rivals looks for workloads of the same name in the configured accounts other than the control
// account. Unseen are those that did not answer or may not be looked into.
func Rivals(
	ctx context.Context, c *Config, w *workload.Workload,
) (found []WorkloadRival, unseen []string) {
	unseen = []string{}
	var mu sync.Mutex
	_ = queues.Each(ctx, others(c), func(ctx context.Context, _ int, a pump.Account) error {
		other, err := lookInto(ctx, a.Storage.Table(row.TableName), c)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil, errors.Is(err, workload.ErrDeleting):
			found = append(found, WorkloadRival{
				Account: a.Name, Incarnation: other.Incarnation, SameQueues: sameQueues(w, other),
			})
		case errors.Is(err, pump.ErrNoWorkload):
		case errors.Is(err, row.ErrCorrupt):
			found = append(found, WorkloadRival{
				Account: a.Name, SameQueues: []string{}, Problem: err.Error(),
			})
		default:
			unseen = append(unseen, a.Name)
		}
		return nil
	})
	slices.SortFunc(found, func(x, y WorkloadRival) int {
		return strings.Compare(x.Account, y.Account)
	})
	slices.Sort(unseen)
	return found, unseen
}

// others are the configured accounts but the control account.
func others(c *Config) []pump.Account {
	return slices.DeleteFunc(slices.Clone(c.Accounts), func(a pump.Account) bool {
		return a.Name == c.Control
	})
}

// SpecOf gives the workload that a configuration describes. If it gives an account no number of
// queues, the workload's maker chooses it. For an existing workload a number would be a claim that
// the operator did not make, and it depends on how many accounts are listed.
func SpecOf(c *Config) workload.Spec {
	s := workload.Spec{
		Name: c.Workload, Segments: max(c.Segments, 0), Shared: c.Segments == pump.Shared,
		Shards: Shards(c.Config), Delivery: string(c.Delivery),
		ForeignKey: c.ForeignKey, Guessed: map[string]bool{},
	}
	for _, a := range c.Accounts {
		s.Guessed[a.Name] = c.AnyQueues[a.Name]
	}
	return s
}

// WarnUnread names other programs' queues of a configuration that the workload does not read.
func WarnUnread(log *slog.Logger, unread []string) {
	if len(unread) > 0 {
		log.Warn("foreign queues of the configuration are not read; "+
			"add them to the workload with: distributor accounts add ACCOUNT",
			"queues", SomeOf(unread, 10))
	}
}

// WarnExtra names accounts of a configuration that the workload does not use.
func WarnExtra(log *slog.Logger, extra []string) {
	if len(extra) > 0 {
		log.Warn("accounts of the configuration are not in use; add them to the workload "+
			"with: distributor accounts add",
			"accounts", strings.Join(extra, " "))
	}
}

// sameQueues gives the accounts with a queue that both workloads use.
func sameQueues(w, other *workload.Workload) []string {
	ours := map[string]bool{}
	for _, s := range w.Map.Shards {
		ours[s.Account+"/"+s.Queue] = true
	}
	same := []string{}
	for _, s := range other.Map.Shards {
		if ours[s.Account+"/"+s.Queue] && !slices.Contains(same, s.Account) {
			same = append(same, s.Account)
		}
	}
	slices.Sort(same)
	return same
}
