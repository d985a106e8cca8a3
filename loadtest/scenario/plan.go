package scenario

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/pump/accounts"
)

// plan is a scenario made ready for a world.
type plan struct {
	phases []phase
	steps  []step
	// processors and accounts there are when the load begins.
	processors, accounts int
	grouped              bool // tasks are in groups
	// answer finds the figures that the scenario is about.
	answer func(*answers)
}

// phase is a part of the test with a load of one kind.
type phase struct {
	name string
	load
	processors, accounts int // while it lasts
}

// step is something that is done at a time of the load, beside it.
type step struct {
	at   time.Duration
	text string
	do   func(ctx context.Context, t *test) error
}

func (p *plan) end() time.Duration { return p.phases[len(p.phases)-1].until }

func (p *plan) loads() []load {
	var ls []load
	for _, ph := range p.phases {
		ls = append(ls, ph.load)
	}
	return ls
}

// phase adds a phase, with the processors and accounts of the one before. The first one has a
// time of its own to warm up in: shares of the budgets follow the demand from beat to
// beat, and are even at first (P8.1).
func (p *planner) phase(name string, l load) {
	if len(p.phases) == 0 && p.o.WarmUp > 0 {
		warm := l
		warm.until, warm.burst = p.o.WarmUp, 0
		p.phases = append(p.phases,
			phase{name: "warm-up", load: warm, processors: p.processors, accounts: p.accounts})
	}
	ph := phase{name: name, load: l, processors: p.processors, accounts: p.accounts}
	if n := len(p.phases); n > 0 {
		ph.processors, ph.accounts = p.phases[n-1].processors, p.phases[n-1].accounts
	}
	p.phases = append(p.phases, ph)
}

// last is the phase that was added last.
func (p *plan) last() *phase { return &p.phases[len(p.phases)-1] }

// planner makes a plan.
type planner struct {
	plan
	o      *Options
	limits report.Limits
	meters []*meter
}

// capacity is how many tasks a second the first n accounts give from put to delete; 0: not known.
func (p *planner) capacity(n int) float64 {
	return p.limits.EndToEnd(limitOf(p.meters[:n])) * float64(max(p.o.Pack, 1))
}

// rate is the offered rate, a share of the capacity if it is not given.
func (p *planner) rate(share float64) (float64, error) {
	if p.o.Rate > 0 {
		return p.o.Rate, nil
	}
	c := p.capacity(len(p.meters))
	if c == 0 {
		return 0, wrong("rate", "is needed, because it is not known what these accounts give")
	}
	return c * share, nil
}

// window is how many tasks may be under way where as many are offered as are taken: what
// so many accounts and processors do in two seconds. Fewer would leave queues empty now and
// then, and more only wait, at last for the test to finish.
func (p *planner) window(accounts, processors int) int64 {
	c := cmp.Or(p.capacity(accounts), 10_000)
	if p.o.Pack < 0 {
		c *= 500 // about as many tasks of 130 bytes fit one message
	}
	if h := p.o.HandlerTime.Seconds(); h > 0 {
		c = min(c, float64(processors*p.o.Concurrency)/h)
	}
	return max(int64(2*c), 200)
}

// part is where a share of the duration ends, in whole milliseconds.
func (p *planner) part(share float64) time.Duration {
	return p.o.WarmUp + time.Duration(share*float64(p.o.Duration)).Round(time.Millisecond)
}

var scenarios = []Info{
	{
		Name: "saturate", Duration: time.Minute, Least: 1, taken: true,
		Asks: "What do the accounts give, and how much of it does the pump take?",
		Load: "as much as is taken: puts, gets and deletes together, then puts alone, " +
			"then gets and deletes alone",
		plan: planSaturate,
	},
	{
		Name: "ramp", Duration: 2 * time.Minute, Least: 1,
		Asks: "Up to what rate do latencies hold?",
		Load: "twelve steps from 10 % to 120 % of --rate (default: what the " +
			"accounts give from put to delete)",
		plan: planRamp,
	},
	{
		Name: "soak", Duration: 10 * time.Minute, Least: 1,
		Asks: "Does it go on like that for hours, in flat memory?",
		Load: "a steady --rate",
		plan: planSoak,
	},
	{
		Name: "burst", Duration: 2 * time.Minute, Least: 1,
		Asks: "How long do bursts take, and the first task of one after a quiet time?",
		Load: "nearly idle, with six bursts of as many tasks at once as come in four seconds at --rate",
		plan: planBurst,
	},
	{
		Name: "hot-key", Duration: time.Minute, Least: 1,
		Asks: "Do other tasks suffer if half of all have one key?",
		Load: "a steady --rate of tasks, a --hot-share of them with one and the same key",
		plan: planHotKey,
	},
	{
		Name: "account-dark", Duration: 3 * time.Minute, Least: 2, victim: true,
		Asks: "What does the loss of an account cost, and how soon is it back?",
		Load: "a steady --rate; for a third of the time one account is cut off from everybody",
		plan: planDark,
	},
	{
		Name: "rolling-restart", Duration: 2 * time.Minute, Least: 1,
		Asks: "What does a roll-out cost?",
		Load: "a steady --rate; the processors are replaced one after another",
		plan: planRolling,
	},
	{
		Name: "scale-out", Duration: 0, Least: 1, taken: true,
		Asks: "Does twice as much give twice as much?",
		Load: "as much as is taken, while accounts (or --over processors) are added: 1, 2, 5, " +
			"10, ... of them, 40 s each",
		plan: planScaleOut,
	},
	{
		Name: "drain-add", Duration: 3 * time.Minute, Least: 2, victim: true,
		Asks: "Can an account be taken out and put back while everything runs?",
		Load: "a steady --rate; an account is drained after a quarter of the time, and " +
			"added again after two thirds",
		plan: planDrain,
	},
}

func planSaturate(p *planner) error {
	p.phase("both", load{
		until: p.part(0.35), rate: asTaken, window: p.window(p.accounts, p.processors),
	})
	// Stopping, starting and finding shares are not measured.
	p.phase("processors stop", load{until: p.part(0.4)})
	p.phase("put", load{
		until: p.part(0.65), rate: asTaken, window: p.window(p.accounts, p.processors), unhandled: true,
	})
	p.last().processors = 0
	p.phase("processors start", load{until: p.part(0.75)})
	p.last().processors = p.o.Processors
	p.phase("take", load{until: p.part(1)}) // what is in the queues by now
	p.steps = append(p.steps,
		step{p.part(0.35), "processors stop", func(_ context.Context, t *test) error {
			t.cluster.end()
			return nil
		}},
		step{p.part(0.65), "processors start", func(ctx context.Context, t *test) error {
			return t.cluster.grow(ctx, p.o.Processors)
		}})
	p.answer = answerSaturate
	return nil
}

func planRamp(p *planner) error {
	top, err := p.rate(1)
	if err != nil {
		return err
	}
	const steps = 12
	for i := range steps {
		rate := top * float64(i+1) / 10
		p.phase(fmt.Sprintf("%d %%", 10*(i+1)), load{until: p.part(float64(i+1) / steps), rate: rate})
	}
	p.answer = answerRamp
	return nil
}

// even makes phases of the same length, at half of what the accounts give.
func (p *planner) even(names ...string) error {
	rate, err := p.rate(0.5)
	for i, name := range names {
		p.phase(name, load{until: p.part(float64(i+1) / float64(len(names))), rate: rate})
	}
	return err
}

func planSoak(p *planner) error {
	p.answer = answerSoak
	return p.even("first third", "second third", "last third")
}

func planBurst(p *planner) error {
	rate, err := p.rate(0.5)
	const bursts = 6
	quiet := min(rate/100, 10)
	p.phase("before", load{until: p.part(1. / (bursts + 1)), rate: quiet})
	for i := range bursts {
		p.phase(fmt.Sprintf("burst %d", i+1), load{
			until: p.part(float64(i+2) / (bursts + 1)), rate: quiet, burst: max(int(4*rate), 1),
			group: uint8(i + 1),
		})
	}
	p.grouped = true
	p.answer = answerBurst
	return err
}

func planHotKey(p *planner) error {
	p.o.HotShare = cmp.Or(p.o.HotShare, 0.5)
	p.grouped = true
	p.answer = answerHotKey
	return p.even("first half", "second half")
}

// victim is the account that something is done to.
func (p *planner) victim() (*meter, error) {
	if p.o.Account == "" {
		return p.meters[len(p.meters)-1], nil
	}
	for _, m := range p.meters {
		if m.name == p.o.Account {
			return m, nil
		}
	}
	return nil, wrong("account", "%q is not among the accounts", p.o.Account)
}

func planDark(p *planner) error {
	m, err := p.victim()
	if err != nil {
		return err
	}
	turn := func(on bool) func(context.Context, *test) error {
		return func(context.Context, *test) error {
			m.dark.Store(on)
			return nil
		}
	}
	p.steps = append(p.steps,
		step{p.part(1. / 3), m.name + " is dark", turn(true)},
		step{p.part(2. / 3), m.name + " is back", turn(false)})
	p.answer = answerDark
	return p.even("before", "dark", "after")
}

func planRolling(p *planner) error {
	for i := range p.o.Processors {
		at := p.part((1 + float64(i)/float64(p.o.Processors)) / 3)
		replace := func(ctx context.Context, t *test) error { return t.cluster.replace(ctx, i) }
		p.steps = append(p.steps, step{at, fmt.Sprintf("processor %d is replaced", i+1), replace})
	}
	p.answer = answerRolling
	return p.even("before", "restarts", "after")
}

// amounts are 1, 2, 5, 10, 20, 50 and so on up to n, and n.
func amounts(n int) (list []int) {
	for ten := 1; ten <= n; ten *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*ten < n {
				list = append(list, m*ten)
			}
		}
	}
	return append(list, n)
}

func planScaleOut(p *planner) error {
	most := len(p.meters)
	switch p.o.Over {
	case OverAccounts:
	case OverProcessors:
		most = p.o.Processors
	default:
		return wrong("over", "%q is unknown; use %s or %s", p.o.Over, OverAccounts, OverProcessors)
	}
	list := amounts(most)
	p.o.Duration = cmp.Or(p.o.Duration, time.Duration(len(list))*40*time.Second)
	for i, n := range list {
		if i == 0 {
			p.accounts, p.processors = p.scaled(n)
		} else {
			scale := func(ctx context.Context, t *test) error { return t.scale(ctx, n) }
			p.steps = append(p.steps, step{p.last().until, fmt.Sprintf("%d %s", n, p.o.Over), scale})
		}
		// In the first half of each part the added accounts or processors come into use: all have read
		// the new map after 30 s at the latest (P6.5), by a nudge at once.
		begin, end := float64(i)/float64(len(list)), float64(i+1)/float64(len(list))
		for _, half := range []struct {
			name  string
			until float64
		}{{fmt.Sprintf("to %d", n), (begin + end) / 2}, {fmt.Sprintf("%d %s", n, p.o.Over), end}} {
			p.phase(half.name, load{until: p.part(half.until), rate: asTaken, window: p.window(p.scaled(n))})
			p.last().accounts, p.last().processors = p.scaled(n)
		}
	}
	p.answer = answerScaleOut
	return nil
}

// scaled is the number of accounts and processors if n of the scaled ones are used.
func (p *planner) scaled(n int) (accounts, processors int) {
	if p.o.Over == OverAccounts {
		return n, p.processors
	}
	return p.accounts, n
}

func planDrain(p *planner) error {
	m, err := p.victim()
	if err != nil {
		return err
	}
	rate, err := p.rate(0.5)
	quarter, twoThirds := p.part(0.25), p.part(2./3)
	p.phase("before", load{until: quarter, rate: rate})
	p.phase("draining", load{until: p.part((0.25 + 2./3) / 2), rate: rate})
	p.phase("drained", load{until: twoThirds, rate: rate})
	p.last().accounts--
	p.phase("added", load{until: p.part(1), rate: rate})
	p.last().accounts++
	p.steps = append(p.steps,
		step{quarter, m.name + " drains", func(ctx context.Context, t *test) error {
			_, err := accounts.Drain(ctx, t.operator, m.name)
			return err
		}},
		step{twoThirds, m.name + " is added", func(ctx context.Context, t *test) error {
			_, err := accounts.Add(ctx, t.operator, m.name)
			return err
		}})
	p.answer = func(a *answers) { answerDrain(a, m) }
	return err
}
