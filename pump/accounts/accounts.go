package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// The accounts of a workload that exists change by four operations, on its stored map alone (P6.6):
// a configuration only makes the first map. An account goes through these states; each operation
// made again is success and changes nothing:
//
//	            Add                    Drain                     Remove
//	(unused) ----------> active ---------------------> draining ---------> (unused)
//	                       ^                              |
//	                       +------------------------------+
//	                                     Add
//
// Add needs all members to know the account (P6.5): a member that gets segments that live there
// must be able to read them. Drain moves its segments to other homes; what is in its queues is read
// until it is gone. Remove needs proof that nothing is or will be in them, or that the account is
// gone for good.

// Error is a change of accounts that the state of the workload does not
// allow, now or ever.
type Error struct {
	Account string
	Problem string
	Fix     string
	// Left are the queues that keep the account from being removed, by name.
	Left []QueueLeft
}

func (e *Error) Error() string {
	return fmt.Sprintf("account %q: %s; %s", e.Account, e.Problem, e.Fix)
}

// QueueLeft is a queue that is not known to be empty.
type QueueLeft struct {
	Queue string `json:"queue"`
	// Messages is the service's count, which is never too low: that it is zero
	// would be proof that the queue is empty.
	Messages int64 `json:"messages"`
	// Poison: it is the queue of quarantined messages.
	Poison bool `json:"poison"`
}

// Change is what a change of accounts came to.
type Change struct {
	Account string `json:"account"`
	// State is the account's state now: Active, Draining or Unused.
	State string `json:"state"`
	// Changed is false if it had that state before.
	Changed    bool   `json:"changed"`
	MapVersion uint64 `json:"mapVersion"`
	// Moved is how many segments have another home than before.
	Moved int `json:"moved"`
	// Members is how many live processes were to be told, Nudged how many took
	// the hint. The others see the new map at their next beat.
	Members int `json:"members"`
	Nudged  int `json:"nudged"`
	// Lost is what may be lost with an account that was removed as gone for good.
	Lost *Losses `json:"lost,omitempty"`
	// Copies are the messages that were in the queues of an account when it was added; see [Add].
	Copies *Copies `json:"copies,omitempty"`
}

// Add lets a workload that exists use one more of the configured accounts, or one that drains
// again: its queues are made, and then the map gives them their share of segments. If the workload
// uses the account already, its configured foreign queues are read from now on. If live
// members lack the account in their configuration, the error is an [*Error] that names them: add
// the account there, and reload or restart them first.
//
// An account that was removed as gone for good may come back with messages, which Change.Copies
// counts. They are late copies. In delivery mode once, tasks that are done are recognised, open
// ones are done, and those of a run that is over go to quarantine. In delivery mode at-least-once
// all are handled.
func Add(ctx context.Context, cfg pump.Config, name string) (Change, error) {
	o, err := openAccounts(ctx, cfg)
	if err != nil {
		return Change{}, err
	}
	i := slices.IndexFunc(o.Cfg.Accounts, func(a pump.Account) bool { return a.Name == name })
	if i < 0 {
		return Change{}, notConfigured(name)
	}
	if err := o.knownToAll(ctx, name); err != nil {
		return Change{}, err
	}
	var queues []shardmap.Shard
	for _, s := range setup.Shards(o.Cfg.Config) {
		if s.Account == name {
			queues = append(queues, s)
		}
	}
	comes := !slices.ContainsFunc(o.Workload.Map.Shards, func(s shardmap.Shard) bool {
		return s.Account == name
	})
	if comes {
		if err := hasRoom(o.Workload.Map, name,
			append(slices.Clone(o.Workload.Map.Shards), queues...)); err != nil {
			return Change{}, err // and no queue was made
		}
	}
	if err := o.createQueues(ctx, name, queues); err != nil {
		return Change{}, err
	}
	var copies *Copies
	if comes {
		copies = o.copies(ctx, name, queues)
	}
	c, err := o.change(ctx, name, Active, func(m *shardmap.Map) ([]shardmap.Shard, error) {
		shards, found := withState(m, name, shardmap.Active)
		if !found {
			shards = append(slices.Clone(m.Shards), queues...)
		} else if foreign := unread(m, queues); len(foreign) > 0 {
			if shards == nil {
				shards = slices.Clone(m.Shards)
			}
			shards = append(shards, foreign...)
		}
		return shards, hasRoom(m, name, shards)
	})
	if err != nil {
		return c, err
	}
	o.placeAnchor(ctx, name)
	if !c.Changed {
		return c, nil
	}
	c.Copies = copies
	return c, o.stillKnownToAll(ctx, name)
}

// unread gives the queues among some that are other programs' and not in the map.
func unread(m *shardmap.Map, queues []shardmap.Shard) (foreign []shardmap.Shard) {
	for _, q := range queues {
		if q.State == shardmap.Foreign && !slices.ContainsFunc(m.Shards, func(s shardmap.Shard) bool {
			return s.Account == q.Account && s.Queue == q.Queue
		}) {
			foreign = append(foreign, q)
		}
	}
	return foreign
}

// hasRoom refuses more queues than the workload has segments, or than a map holds.
func hasRoom(m *shardmap.Map, name string, shards []shardmap.Shard) error {
	active := 0
	for _, s := range shards {
		if s.State == shardmap.Active {
			active++
		}
	}
	const beside = "or make a new workload with more segments beside this one, under another name"
	switch {
	case len(shards) > shardmap.MaxShards && len(shards) > len(m.Shards):
		return &Error{
			Account: name,
			Problem: fmt.Sprintf("with it the workload would have %d queues, and it can have at most %d",
				len(shards), shardmap.MaxShards),
			Fix: "drain and remove another account first",
		}
	case active > m.Segments && active > m.Active():
		return &Error{
			Account: name,
			Problem: fmt.Sprintf("with it the workload would have %d queues, but it has %d segments, "+
				"so some would be the home of none", active, m.Segments),
			Fix: fmt.Sprintf("use at most %d queues of it (queues:), drain another account first, %s",
				max(m.Segments-m.Active(), 0), beside),
		}
	}
	return nil
}

// stillKnownToAll looks again after the change: a member that joined in between has seen the old
// map. One that joins from now on sees the new map and refuses to work. If a member does not know
// the account, the account drains again, and loses its segments as soon as all have noticed.
func (o *accountsOf) stillKnownToAll(ctx context.Context, name string) error {
	refusal, ok := errors.AsType[*Error](o.knownToAll(ctx, name))
	if !ok {
		return nil
	}
	_, err := o.change(ctx, name, Draining, func(m *shardmap.Map) ([]shardmap.Shard, error) {
		shards, _ := withState(m, name, shardmap.Draining)
		return shards, nil
	})
	if err != nil {
		return errors.Join(refusal,
			fmt.Errorf("it was added nevertheless; drain it: distributor accounts drain %s: %w", name, err))
	}
	refusal.Problem = "it drains again, because processes joined meanwhile: " + refusal.Problem
	return refusal
}

// Drain gives the segments of an account other homes. Once all have noticed, at most
// workload.MapMaxAge later, nothing new goes into its queues, and processors read what is in them.
// The error is an [*Error] if no other account is active. Drain makes missing queues of other
// accounts first.
func Drain(ctx context.Context, cfg pump.Config, name string) (Change, error) {
	o, err := openAccounts(ctx, cfg)
	if err != nil {
		return Change{}, err
	}
	o.createHomes(ctx, name)
	return o.change(ctx, name, Draining, func(m *shardmap.Map) ([]shardmap.Shard, error) {
		shards, found := withState(m, name, shardmap.Draining)
		if !found {
			return nil, o.notUsed(m, name)
		}
		another := func(s shardmap.Shard) bool { return s.Account != name && s.State == shardmap.Active }
		if !slices.ContainsFunc(m.Shards, another) {
			return nil, &Error{
				Account: name,
				Problem: "it is the only active account, so nothing could be sent any more",
				Fix:     "add another one first",
			}
		}
		return shards, nil
	})
}

// accountsOf is a workload whose accounts are looked at or changed.
type accountsOf struct{ *setup.Session }

// readAccounts gives the workload that a configuration means, also if the configuration disagrees
// with what is pinned.
func readAccounts(ctx context.Context, cfg pump.Config) (*accountsOf, error) {
	o, err := setup.Find(ctx, cfg)
	return &accountsOf{o}, err
}

// openAccounts is readAccounts for a change: a configuration that means other queues must not
// decide what is empty.
func openAccounts(ctx context.Context, cfg pump.Config) (*accountsOf, error) {
	o, err := readAccounts(ctx, cfg)
	if err == nil {
		err = o.Check()
	}
	return o, err
}

func notConfigured(name string) error {
	return pump.Invalid("accounts", fmt.Sprintf("no account is called %q", name),
		"add it with its connection string, or check the spelling")
}

// notUsed judges a name that is not in the map. A configured account has been removed already or
// was not added yet; any other name is a mistake.
func (o *accountsOf) notUsed(m *shardmap.Map, name string) error {
	if !slices.ContainsFunc(o.Cfg.Accounts, func(a pump.Account) bool { return a.Name == name }) {
		return notConfigured(name)
	}
	return &Error{
		Account: name,
		Problem: fmt.Sprintf("the workload does not use it (map version %d)", m.Version),
		Fix:     "add it first",
	}
}

// withState gives the map's shards with an account's in a state, nil if they all are;
// found is false if it has none. Other programs' queues in it are read in either state.
func withState(
	m *shardmap.Map, name string, state shardmap.State,
) (shards []shardmap.Shard, found bool) {
	changed := false
	shards = slices.Clone(m.Shards)
	for i := range shards {
		if s := &shards[i]; s.Account == name && s.State != shardmap.Foreign {
			found = true
			changed = changed || s.State != state
			s.State = state
		}
	}
	if !changed {
		return nil, found
	}
	return shards, found
}

// knownToAll refuses an account that a live member could not read or write.
func (o *accountsOf) knownToAll(ctx context.Context, name string) error {
	v, err := cluster.LoadView(ctx, o.Queues.Control, o.Cfg.Workload)
	if err != nil {
		return err
	}
	var without []string
	live := map[string][]string{}
	senders, err := o.senders(ctx)
	if err != nil {
		return err
	}
	for _, l := range senders {
		live[l.Instance] = l.Accounts
	}
	for _, m := range v.Members { // which say it themselves
		live[m.Instance] = m.Accounts
	}
	for _, instance := range slices.Sorted(maps.Keys(live)) {
		if !slices.Contains(live[instance], name) {
			without = append(without, instance)
		}
	}
	if len(without) == 0 {
		return nil
	}
	return &Error{
		Account: name,
		Problem: fmt.Sprintf("%d of %d live processes do not have it in their configuration: %s",
			len(without), len(live), setup.SomeOf(without, 10)),
		Fix: "add it to their configuration and have them read it again " +
			"(systemctl reload, or SIGHUP; else a restart, one after another), " +
			"then try again (one that is dead leaves the list a lease after its last beat)",
	}
}

// senders are the runs of live processes that need not be members.
func (o *accountsOf) senders(ctx context.Context) ([]workload.LiveRun, error) {
	// The time is taken before the list: reading that may take minutes, in which each of them beats
	// again.
	server, _, err := workload.ServerTime(ctx, o.Queues.Control, o.Cfg.Workload)
	if err != nil {
		return nil, err
	}
	live, err := workload.NewRuns(o.Queues.Control, o.Cfg.Workload).Live(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(live, func(l workload.LiveRun) bool {
		return l.State != workload.RunOpen || len(l.Accounts) == 0 ||
			l.Silent(server, closing.SilentBeats)
	}), nil
}

// createQueues makes the account's queues before the map names them: a processor
// that finds a queue missing stops reading it (window 33).
func (o *accountsOf) createQueues(ctx context.Context, name string, qs []shardmap.Shard) error {
	all := []*queues.Queue{o.Queues.Account(name).Poison}
	for _, s := range qs {
		if s.State == shardmap.Foreign {
			continue // its writer makes it
		}
		sh, err := o.Queues.Queue(s.Account, s.Queue)
		if err != nil {
			return err
		}
		all = append(all, sh)
	}
	return queues.Each(ctx, all, func(ctx context.Context, _ int, q *queues.Queue) error {
		return queues.Create(ctx, q, waits.Jitter(o.Cfg.Instance), o.Cfg.Log)
	})
}

// homesPatience is how long a drain waits for accounts that do not answer.
const homesPatience = 10 * time.Second

// createHomes makes the queues that get segments of an account, where they are missing: no
// distributor may have reached them yet, and a processor cannot bring a message to a queue that is
// not there and makes none itself (window 33). The log tells of queues that cannot be made, and
// they hold up no drain: the account that drains may be the one in trouble.
func (o *accountsOf) createHomes(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, homesPatience)
	defer cancel()
	others := map[string][]shardmap.Shard{}
	for _, s := range o.Workload.Map.Shards {
		if s.Account != name && s.State == shardmap.Active {
			others[s.Account] = append(others[s.Account], s)
		}
	}
	var all sync.WaitGroup
	for account, qs := range others {
		all.Go(func() {
			if o.Queues.Account(account) == nil {
				return // this configuration does not have it
			}
			if err := o.createQueues(ctx, account, qs); err != nil {
				o.Cfg.Log.Warn("it is not known whether every queue of an account is there; "+
					"if one is missing, messages of the drained account wait until a distributor makes it",
					"account", account, "error", err)
			}
		})
	}
	all.Wait()
}

// change changes the map and tells the members.
func (o *accountsOf) change(
	ctx context.Context, name, state string, change func(*shardmap.Map) ([]shardmap.Shard, error),
) (Change, error) {
	var before *shardmap.Map // that the change was made from
	var refused error
	var w *workload.Workload
	verb := map[string]string{Active: "add ", Draining: "drain "}[state]
	err := o.Logged(ctx, setup.Operator(), "accounts "+cmp.Or(verb, "remove ")+name,
		func() (err error) {
			w, err = workload.ChangeMap(ctx, o.Queues.Control, o.Cfg.Workload,
				func(m *shardmap.Map) ([]shardmap.Shard, error) {
					before = m
					var shards []shardmap.Shard
					shards, refused = change(m)
					return shards, refused
				})
			return err
		})
	if refused != nil {
		return Change{}, refused // no storage failed, and nothing is in doubt
	}
	if storage.Ambiguous(err) && before != nil {
		err = fmt.Errorf("whether the map was changed could not be learned; "+
			"run the command again, which does nothing twice: %w", err)
	}
	if err != nil {
		return Change{}, o.Advise(ctx, err)
	}
	o.Workload = w
	c := Change{
		Account: name, State: state, MapVersion: w.Map.Version,
		Changed: w.Map != before, Moved: moved(before, w.Map),
	}
	if c.Changed {
		c.Members, c.Nudged = o.Tell(ctx)
	}
	return c, nil
}

// moved counts the segments with another home.
func moved(from, to *shardmap.Map) (n int) {
	for s := range uint32(to.Segments) {
		a, b := from.Shards[from.Home(s)], to.Shards[to.Home(s)]
		if a.Account != b.Account || a.Queue != b.Queue {
			n++
		}
	}
	return n
}
