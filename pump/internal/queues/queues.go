package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/internal/through"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/storage"
)

// Set is the storage of a workload as one process sees it: every request of
// the data path goes through it, is paid for from a budget, has a deadline and
// is counted.
type Set struct {
	Cfg     pump.Config
	Control storage.Table
	Targets atomic.Pointer[Targets] // nil: this process has the limits for itself
	Tasks   atomic.Pointer[Budget]  // of the tasks that are started; nil: no limit
	Heeds   Heeds
	values  atomic.Pointer[Values]
	// Allowance is what this process may spend; nil without a cap.
	Allowance *Allowance
	// Opened is since when requests are counted, by the machine's clock.
	Opened time.Time

	turn      sim.Step // of simulations
	directory atomic.Pointer[directory]
	limits    atomic.Pointer[Limits] // of all processes together
	change    sync.Mutex             // of both, held to change them
}

// directory are the accounts of a set. The set that it points to never changes.
type directory struct {
	accounts map[string]*Account
	names    []string // in the order of the configuration, and then as they were added
}

// Account is one storage account with what this process may spend on it.
type Account struct {
	Name   string
	Store  storage.Account
	Budget *Budget
	counts requestCounts
	Poison *Queue
	known  *known // nil: nothing samples the queues

	mu       sync.Mutex        // guards what follows
	shards   map[string]*Queue // all handles, by queue
	busy     *Queue            // the last of its queues that was throttled
	busyFrom time.Time         // when
}

// Queue is one queue of one account.
type Queue struct {
	Account *Account
	Name    string
	Queue   storage.Queue
	Budget  *Budget
	Hooks   *pump.Hooks
	log     *slog.Logger
	Turn    sim.Step
	perMsg  bool // a get costs what it returns (Budget.GetCostsMessages)

	silent  atomic.Int32 // requests since the last answer that ended without one
	brought atomic.Int32 // messages, by the last get that was answered

	Puts, Gets, Settles latencyEstimate
}

// Open makes the handles; it makes no request. The configuration must have its defaults.
func Open(cfg *pump.Config) *Set {
	seeding := sim.Of(cfg).Seeding
	f := &Set{Cfg: *cfg, turn: seeding.Turn, Allowance: NewAllowance(cfg), Opened: time.Now()}
	f.values.Store(&Values{
		Retention: cfg.Retention, CostPerDay: cfg.Budget.CostPerDay, Prices: cfg.Prices,
	})
	f.directory.Store(&directory{accounts: map[string]*Account{}})
	f.limits.Store(&Limits{Account: cfg.Budget.Account, Queue: cfg.Budget.Queue})
	for _, a := range cfg.Accounts {
		f.Add(a)
	}
	f.Control = f.countedTable(f.Account(cfg.Control))
	if draw := seeding.Draw; draw != nil {
		f.Control = row.Seeded(f.Control, draw)
	}
	if ahead := seeding.Ahead; ahead != nil {
		f.Control = row.Suspended(f.Control, ahead)
	}
	return f
}

// open gives the one handle there is of a queue: its spending and its throttles stay known when a
// new map names it again.
func (f *Set) open(a *Account, queue string) *Queue {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shards[queue]
	if s == nil {
		s = &Queue{
			Account: a, Name: queue, Queue: a.Store.Queue(queue), Budget: NewBudget(f.Limits().Queue),
			Hooks: &f.Cfg.Hooks, log: f.Cfg.Log, Turn: f.turn,
			perMsg: *f.Cfg.Budget.GetCostsMessages,
		}
		a.shards[queue] = s
		if t := f.Targets.Load(); t != nil {
			s.Budget.SetTarget(t.Queue(s.String()))
		}
	}
	return s
}

// Queue gives the handle of a queue of the shard map, the same one each time.
func (f *Set) Queue(accountName, queue string) (*Queue, error) {
	a := f.Account(accountName)
	if a == nil {
		return nil, pump.Invalid("accounts", fmt.Sprintf("the workload uses account %q, for which "+
			"there are no credentials here", accountName), "add it to the accounts")
	}
	return f.open(a, queue), nil
}

// opened gives all handles of an account's queues, by name.
func (a *Account) opened() []*Queue {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := slices.Collect(maps.Values(a.shards))
	slices.SortFunc(list, func(x, y *Queue) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// Requests counts what this process has asked of each account so far.
func (f *Set) Requests() (r pump.Requests, throttled int64) {
	r = pump.Requests{}
	for _, name := range f.Names() {
		a := f.Account(name)
		r[name] = a.counts.snapshot()
		throttled += a.counts.throttled.Load()
	}
	return r, throttled
}

// Asked counts what this process has asked of each account so far, by kind, as its beats say it.
// Accounts without requests are left out.
func (f *Set) Asked() (of map[string]cluster.Asked, packed []byte) {
	counts := map[string]cluster.OpCounts{}
	for _, name := range f.Names() {
		if n := f.Account(name).counts.counts(); n != (cluster.OpCounts{}) {
			counts[name] = n
		}
	}
	return cluster.AskedOf(counts)
}

// Throttles counts the refused requests by account, those without any left out.
func (f *Set) Throttles() map[string]uint64 {
	of := map[string]uint64{}
	for _, name := range f.Names() {
		if n := f.Account(name).counts.throttled.Load(); n > 0 {
			of[name] = uint64(n)
		}
	}
	return of
}

// Do pays for one request from the queue's and the account's budget, makes it under a deadline,
// counts it, and lets a throttle reach the budgets. About tells the request from others of its kind
// (turn).
func (s *Queue) Do(
	ctx context.Context, c Class, cost int, op operation, about string,
	call func(context.Context) error,
) error {
	if err := s.Pay(ctx, c, cost, op, about); err != nil {
		return err
	}
	return s.Send(ctx, op, about, call)
}

// Pay waits until both budgets can pay in one instant. If requests paid one budget and waited for
// the other, they would be sent together once that can pay, and exceed what the service forgives
// for the first: when others used a part of an account's limit, its queues were throttled without
// end. So a request that has to wait for one budget takes back what it paid the other. An error
// means that nothing was sent.
func (s *Queue) Pay(ctx context.Context, c Class, cost int, op operation, about string) error {
	myTurn := func() bool {
		s.Turn.Wait("pay", op.String(), s.Account.Name, s.Name, about)
		return ctx.Err() == nil
	}
	for one, other := s.Budget, s.Account.Budget; ; one, other = other, one {
		if !myTurn() || one.Spend(ctx, c, cost) != nil {
			return storage.NotSent(ctx, op.String(), s.Account.Name, s.Name)
		}
		if myTurn() && other.TrySpend(c, cost) {
			return nil
		}
		one.Charge(-cost)
	}
}

// Send makes a paid request. A request that is given up ends exactly one deadline after its turn to
// pay, to the nanosecond, which is amid others' turns.
func (s *Queue) Send(
	ctx context.Context, op operation, about string, call func(context.Context) error,
) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	err := call(ctx)
	took := time.Since(start)
	if ctx.Err() != nil {
		s.Turn.Wait("give up", op.String(), s.Account.Name, s.Name, about)
	}
	s.heard(op, took, err)
	s.Account.counts.add(op, err)
	HookRequest(s.Hooks, s.Account.Name, s.Name, op.String(), took, err)
	if err != nil && storage.Is(err, storage.Throttled) {
		s.throttled(err)
	}
	return err
}

// busyTogether is how close in time the throttles of two queues must be to concern their account.
const busyTogether = time.Second

// throttled lowers the budget that a throttle is about. At the account's limit the service says so
// ("... is over the account limit."), but not always: then more than one queue is throttled at
// once. A lone busy queue, because its partition moves or another process uses it, costs only
// itself; if each such throttle lowered the account's budget too, the queue would slow down all
// others to a hundredth.
func (s *Queue) throttled(err error) {
	if strings.Contains(err.Error(), "over the account limit") {
		s.Account.Budget.Throttled()
		return
	}
	s.Budget.Throttled()
	a, now := s.Account, time.Now()
	a.mu.Lock()
	both := a.busy != nil && a.busy != s && now.Sub(a.busyFrom) <= busyTogether
	a.busy, a.busyFrom = s, now
	a.mu.Unlock()
	if both {
		a.Budget.Throttled()
	}
}

// Put adds a message. A poison queue that is missing is made: a distributor makes them all, but it
// may have ended while the account was in trouble, and tasks that cannot be quarantined come back
// for ever. Unlike with a work queue (window 33), making it again does not hide a loss that could
// still be noticed.
func (s *Queue) Put(ctx context.Context, text []byte, delay time.Duration) error {
	about := s.Digest(text)
	err := s.putOnce(ctx, text, delay, about)
	if s != s.Account.Poison || !storage.Is(err, storage.Missing) {
		return err
	}
	if err := s.Do(ctx, ClassPut, 1, cluster.OpCreate, about, s.Queue.Create); err != nil {
		return err
	}
	s.log.Warn("the poison queue was missing and has been made", "queue", s.String())
	return s.putOnce(ctx, text, delay, about)
}

func (s *Queue) putOnce(ctx context.Context, text []byte, delay time.Duration, about string) error {
	if err := s.Pay(ctx, ClassPut, 1, OpPut, about); err != nil {
		return err
	}
	return s.sendPut(ctx, text, delay, about)
}

// Digest is what a put is about, for its turn.
func (s *Queue) Digest(text []byte) string {
	if s.Turn == nil {
		return ""
	}
	return fmt.Sprintf("%016x", xxhash.Sum64(text))
}

// sendPut makes a put that is paid for.
func (s *Queue) sendPut(ctx context.Context, text []byte, delay time.Duration, about string) error {
	err := s.Send(ctx, OpPut, about, func(ctx context.Context) error {
		_, err := s.Queue.Put(ctx, text, delay)
		return err
	})
	return s.hidden(err, delay)
}

// Get also says when the request was sent: leases are counted from then (window
// 11). It waits for the budget only while wait lasts; once sent, the request
// lives as long as ctx, because it may have hidden messages that only its
// answer tells of (window 4).
//
// If a get costs what it returns, it pays for as many messages as the last get brought and settles
// the difference with the answer. If it paid only with the answer, the messages of gets under way
// would not be in the budget: with answers that take 60 ms, those of four gets are more than the
// service forgives.
func (s *Queue) Get(
	wait, ctx context.Context, limit int, visibility time.Duration,
) (msgs []storage.Message, sent time.Time, err error) {
	paid := 1
	if s.perMsg {
		paid = max(min(limit, int(s.brought.Load())), 1)
	}
	if err := s.Pay(wait, ClassGet, paid, OpGet, ""); err != nil {
		return nil, time.Time{}, err
	}
	err = s.Send(ctx, OpGet, "", func(ctx context.Context) error {
		sent = time.Now()
		var err error
		msgs, err = s.Queue.Get(ctx, limit, visibility)
		return err
	})
	if !s.perMsg {
		return msgs, sent, err
	}
	if err == nil {
		s.brought.Store(int32(len(msgs)))
	}
	if more := max(len(msgs), 1) - paid; more != 0 {
		s.Budget.Charge(more)
		s.Account.Budget.Charge(more)
	}
	return msgs, sent, err
}

// Renew also says when the request was sent, as get does.
func (s *Queue) Renew(
	ctx context.Context, r storage.Receipt, visibility time.Duration,
) (next storage.Receipt, sent time.Time, err error) {
	err = s.Do(ctx, ClassRenew, 1, cluster.OpRenew, r.ID, func(ctx context.Context) error {
		sent = time.Now()
		var err error
		next, err = s.Queue.Renew(ctx, r, visibility)
		return err
	})
	return next, sent, err
}

// Release makes a message visible again; it settles, so it goes before renewals.
func (s *Queue) Release(ctx context.Context, r storage.Receipt, delay time.Duration) error {
	err := s.Do(ctx, ClassSettle, 1, cluster.OpRenew, r.ID, func(ctx context.Context) error {
		_, err := s.Queue.Renew(ctx, r, delay)
		return err
	})
	return s.hidden(err, delay)
}

// Replace puts a message back with another text.
func (s *Queue) Replace(
	ctx context.Context, r storage.Receipt, text []byte, delay time.Duration,
) error {
	err := s.Do(ctx, ClassSettle, 1, OpReplace, r.ID, func(ctx context.Context) error {
		_, err := s.Queue.Replace(ctx, r, text, delay)
		return err
	})
	return s.hidden(err, delay)
}

// Delete ends a message.
func (s *Queue) Delete(ctx context.Context, r storage.Receipt) error {
	return s.Do(ctx, ClassSettle, 1, OpDelete, r.ID, func(ctx context.Context) error {
		return s.Queue.Delete(ctx, r)
	})
}

func (s *Queue) String() string { return s.Account.Name + "/" + s.Name }

// tableOps are the requests to the control table that are counted.
var tableOps = map[string]operation{
	"create": cluster.OpCreate, "read": cluster.OpRead, "write": cluster.OpWrite,
	"query": cluster.OpQuery,
}

// countedTable gives the control table, which counts its requests. They are few and
// guard the leases, so no budget holds them up.
func (f *Set) countedTable(a *Account) storage.Table {
	t := a.Store.Table(row.TableName)
	count := func(op string, request func(storage.Table) error) error {
		start := time.Now()
		err := request(t)
		if is, counted := tableOps[op]; counted {
			a.counts.add(is, err)
			HookRequest(&f.Cfg.Hooks, a.Name, t.Name(), op, time.Since(start), err)
		}
		return err
	}
	return through.Table{Called: t.Name(), Way: count}
}

// AsError is the storage failure in err, if there is one.
func AsError(err error) (*storage.Error, bool) { return errors.AsType[*storage.Error](err) }

// AtOnce is how many queues of one account are looked at together: a
// thousand queues of ten accounts are seen in under a second, with a thousandth of the
// requests that the accounts allow.
const AtOnce = 8

// Each calls f for each of some things, with its place, for [AtOnce] of them at once. The first
// error ends the context of the others, and is Each's.
func Each[T any](
	ctx context.Context, of []T, f func(ctx context.Context, i int, one T) error,
) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(AtOnce)
	for i, one := range of {
		g.Go(func() error { return f(ctx, i, one) })
	}
	return g.Wait()
}

// ErrNotAsked is why nothing is known of a queue that a command would have asked.
var ErrNotAsked = errors.New("not asked, as another queue of the account did not answer")

// NotThere tells a queue that does not exist, and so holds nothing, from a disabled or unknown
// account, whose queues may hold messages.
func NotThere(err error) bool {
	e, ok := errors.AsType[*storage.Error](err)
	return ok && e.Code == storage.Missing &&
		(e.Service == "QueueNotFound" || e.Service == "ContainerNotFound")
}
