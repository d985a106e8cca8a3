package quarantine_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
)

var moveSeeds = flag.Int("move.seeds", 30, "of how many seeds quarantine is redriven and dropped while accounts are drained and removed")

// frozen is an account whose process stands still now and then in the moment before a put
// goes out: deadlines have passed when it goes on, and the put is sent all the same.
type frozen struct {
	storage.Account
	still func() time.Duration // before this put
}

type frozenQueue struct {
	storage.Queue
	still func() time.Duration
}

func (a frozen) Queue(name string) storage.Queue { return frozenQueue{a.Account.Queue(name), a.still} }

func (q frozenQueue) Put(ctx context.Context, text []byte, delay time.Duration) (storage.Receipt, error) {
	if d := q.still(); d > 0 {
		time.Sleep(d)
		ctx = context.WithoutCancel(ctx)
	}
	return q.Queue.Put(ctx, text, delay)
}

// settleAs is what an operator does to tasks in quarantine for an outcome.
func settleAs(q *quarantine.Quarantine, outcome string) func(context.Context, quarantine.Filter, quarantine.Options, func(quarantine.Outcome) bool) error {
	if outcome == quarantine.Dropped {
		return q.Drop
	}
	return q.Redrive
}

// freezing is the configuration of an operator whose puts stand still.
func freezing(w *testworld.World, still func() time.Duration) pump.Config {
	c := w.Operator()
	for i := range c.Accounts {
		c.Accounts[i].Storage = frozen{c.Accounts[i].Storage, still}
	}
	return c
}

// A6: a put that is tried for longer than it takes to drain and remove an account.
func TestP65ATaskIsRedrivenToItsHomeOfTheMomentOfEachTry(t *testing.T) {
	for name, still := range map[string]time.Duration{"by a process that retries": 0, "by a process that stood still": 90 * time.Second} {
		for _, outcome := range []string{quarantine.Redriven, quarantine.Dropped} {
			t.Run(outcome+" "+name, func(t *testing.T) {
				testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
					still := still
					var good atomic.Bool
					h := &testworld.Seen{Work: func(context.Context, *pump.Task) error {
						if !good.Load() {
							return pump.Reject(testworld.ErrFlop)
						}
						return nil
					}}
					p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
					var segment uint32
					for account, _ := w.Home(segment); account != "accountb"; account, _ = w.Home(segment) {
						segment++
					}
					w.PutTasks(segment, 0, 1, 2)
					time.Sleep(time.Minute)
					text := w.Poisoned("accountb")[0]
					w.PutText("accounta", workload.PoisonQueue(w.Cfg.Workload), text) // the account with the quarantine stays
					proof.Must(t, w.Queue("accountb", workload.PoisonQueue(w.Cfg.Workload)).Clear(t.Context()))
					good.Store(true)
					time.Sleep(time.Second)
					q, err := quarantine.Open(t.Context(), freezing(w, func() time.Duration { d := still; still = 0; return d }))
					proof.Must(t, err)
					if still == 0 {
						w.Sim.Inject(azsim.Rule{Instance: "operator", Account: "accountb", Operations: []string{"PutMessage"}, Fault: azsim.Answer, RetryAfter: 70 * time.Second, First: 1})
					}
					var done sync.WaitGroup
					done.Go(func() {
						note := func(o quarantine.Outcome) bool {
							proof.Same(t, o.Outcome, outcome, o.Problem)
							return true
						}
						if err := settleAs(q, outcome)(t.Context(), quarantine.Filter{}, quarantine.Options{}, note); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(2 * time.Second)
					w.DrainAccount("accountb")
					time.Sleep(queues.RemoveAfter)
					w.Without("accountb")
					done.Wait()
					time.Sleep(time.Minute)
					if d, quarantined := recorded(w); d != 3 || quarantined != 0 {
						t.Errorf("%d done, %d quarantined; %d messages in the removed account", d, quarantined, w.Count("accountb", "work-00"))
					}
					p.End()
				})
			})
		}
	}
}

// Redrive and drop at any moment of other operators' commands, over an account's whole way out
// and back in, with puts that fail, hang, land unanswered and stand still: no task is lost.
func TestRedriveAndDropLoseNothingWhileAccountsAreDrainedAndRemoved(t *testing.T) {
	proof.Only(t)
	var all moved
	for seed := range uint64(*moveSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			testworld.In(t, testworld.Once, 4, 1, func(c *azsim.Config) { c.Seed = seed }, func(t *testing.T, w *testworld.World) {
				m := newMoving(w, seed)
				m.play()
				all.add(m)
			})
		})
	}
	t.Logf("%d histories: %v", *moveSeeds, all)
	if all.removed < *moveSeeds || all.still < *moveSeeds {
		t.Error("too little went on beside the redrives and drops")
	}
}

// moved is what went on in all histories, and what came of their tasks.
type moved struct {
	redriven, dropped, missing, twice int // tasks
	removed                           int // accounts
	still                             int // puts before which the operator's process stood still
}

func (a moved) String() string {
	return fmt.Sprintf("%d tasks redriven, %d dropped, %d lost, %d done twice; accounts were removed %d times, puts stood still %d times",
		a.redriven, a.dropped, a.missing, a.twice, a.removed, a.still)
}

func (a *moved) add(m *moving) {
	a.removed += m.removed
	a.still += m.stills
	for _, n := range m.effects {
		a.twice += n - 1
	}
	a.missing += m.missing
	if m.outcome == quarantine.Redriven {
		a.redriven += movingTasks - m.missing
	} else {
		a.dropped += movingTasks - m.missing
	}
}

// moving is one such history.
type moving struct {
	w       *testworld.World
	outcome string
	good    atomic.Bool
	mu      sync.Mutex
	random  *rand.Rand
	effects map[string]int
	removed int // accounts, how often
	stills  int // how often a put stood still
	missing int // tasks that are not recorded as done in the end
}

const movingTasks = 24

func newMoving(w *testworld.World, seed uint64) *moving {
	m := &moving{w: w, random: rand.New(rand.NewPCG(seed, 6)), effects: map[string]int{}, outcome: quarantine.Redriven}
	if seed%3 == 2 {
		m.outcome = quarantine.Dropped
	}
	return m
}

func (m *moving) draw(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

func (m *moving) seconds(most int) time.Duration {
	return time.Duration(m.draw(most*1000)) * time.Millisecond
}

func (m *moving) handle(_ context.Context, t *pump.Task) error {
	if !m.good.Load() {
		return pump.Reject(testworld.ErrFlop)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.effects[testworld.Identity(t)]++
	return nil
}

// still is how long the process stands still before a put: one in four does.
func (m *moving) still() time.Duration {
	if m.draw(4) > 0 {
		return 0
	}
	m.mu.Lock()
	m.stills++
	m.mu.Unlock()
	return m.seconds(200)
}

func (m *moving) play() {
	t, w := m.w.T, m.w
	p := testworld.Begun(w, processor.New, "p", pump.HandlerFunc(m.handle), processor.Options{})
	for i := range uint64(movingTasks) {
		w.PutTasks(uint32(i*5%64), i)
	}
	time.Sleep(time.Minute)
	m.good.Store(true)
	m.gather()
	for _, fault := range []azsim.Rule{
		{Operations: []string{"PutMessage"}, Fault: azsim.FailBefore},
		{Operations: []string{"PutMessage"}, Fault: azsim.AnswerLost},
		{Operations: []string{"PutMessage"}, Fault: azsim.HangBefore},
		{Operations: []string{"PutMessage"}, Fault: azsim.Answer, RetryAfter: m.seconds(80)},
		{Service: "table", Fault: azsim.DelayBefore, Delay: 1 + m.seconds(8)},
	} {
		fault.Instance, fault.Probability = "operator", 0.15
		w.Sim.Inject(fault)
	}
	ctx, stop := context.WithCancel(t.Context())
	var accounts, q sync.WaitGroup
	accounts.Go(func() { m.moveAccounts(ctx) })
	q.Go(func() { m.settle() })
	q.Wait()
	stop()
	accounts.Wait()
	time.Sleep(2 * time.Minute)
	p.End()
	done, quarantined := recorded(w)
	m.missing = movingTasks - int(done)
	if done != movingTasks || quarantined != 0 {
		t.Errorf("%s: %d of %d recorded as done, %d as quarantined", m.outcome, done, movingTasks, quarantined)
	}
	if m.outcome == quarantine.Redriven && len(m.effects) != movingTasks {
		t.Errorf("%d of %d tasks were done", len(m.effects), movingTasks)
	}
	for id, n := range m.effects {
		proof.Same(t, n, 1, id, "done … times")
	}
}

// gather brings the quarantine into the one account that stays, so that it keeps none of the
// others from being removed.
func (m *moving) gather() {
	t, w := m.w.T, m.w
	for _, a := range w.Cfg.Accounts[1:] {
		q := w.Queue(a.Name, workload.PoisonQueue(w.Cfg.Workload))
		for {
			ms, err := q.Get(t.Context(), storage.MaxGet, time.Hour)
			proof.Must(t, err)
			if len(ms) == 0 {
				break
			}
			for _, message := range ms {
				w.PutText(w.Cfg.Accounts[0].Name, workload.PoisonQueue(w.Cfg.Workload), message.Text)
				proof.Must(t, q.Delete(t.Context(), message.Receipt))
			}
		}
	}
}

// moveAccounts drains, removes and adds accounts for as long as there is something in quarantine.
func (m *moving) moveAccounts(ctx context.Context) {
	for ctx.Err() == nil {
		name := "account" + string(rune('b'+m.draw(3)))
		cfg := m.w.Config("accounts", 1)
		_, err := accounts.Drain(ctx, cfg, name)
		for tries := 0; err == nil && tries < 30 && ctx.Err() == nil; tries++ {
			waits.Wait(ctx, m.seconds(5))
			if _, err := accounts.Remove(ctx, cfg, name, accounts.RemoveOptions{}); err == nil {
				m.removed++
				break
			}
		}
		waits.Wait(ctx, m.seconds(120))
		if m.draw(2) == 0 {
			_, _ = accounts.Add(ctx, cfg, name)
		}
		waits.Wait(ctx, m.seconds(20))
	}
}

// settle redrives or drops until the quarantine is seen to be empty.
func (m *moving) settle() {
	t := m.w.T
	for round := 0; ; round++ {
		left := 0
		q, err := quarantine.Open(t.Context(), freezing(m.w, m.still))
		if err == nil {
			err = settleAs(q, m.outcome)(t.Context(), quarantine.Filter{}, quarantine.Options{Rate: 0.2 + float64(m.draw(10))/10}, func(o quarantine.Outcome) bool {
				left++
				return true
			})
		}
		if err == nil && left == 0 && len(m.w.Condemned()) == 0 {
			return
		}
		if round > 200 {
			t.Errorf("the quarantine is not empty after %d rounds: %v", round, err)
			return
		}
		time.Sleep(quarantine.Lease / 5)
	}
}
