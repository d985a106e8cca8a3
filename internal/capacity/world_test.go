package capacity

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// must ends a test with an error.
var must = proof.Must

// measured is what a run of the whole pump came to, a second.
type measured struct {
	fed, handled               float64 // tasks
	put, get, delete, throttle float64 // requests
	table                      float64
	perMessage                 float64 // tasks
}

// trial is the pump as a plan has it, on simulated accounts in virtual time.
type trial struct {
	in      Input
	plan    *Plan
	rate    float64 // tasks a second that are fed; the plan's if 0
	body    func(r *rand.Rand) []byte
	hot     float64 // part of the tasks that has the same key; each of the others has its own
	settle  time.Duration
	measure time.Duration
}

// run feeds tasks at a steady rate and measures once all has settled.
func (tr trial) run(t *testing.T) (m measured) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &works{trial: tr, sim: tr.simulator(), finished: make(chan error)}
		ctx, stop := context.WithCancel(t.Context())
		for i := range tr.plan.Processors {
			w.startProcessor(ctx, t, fmt.Sprint("p", i))
		}
		w.startDistributor(ctx, t)
		time.Sleep(tr.settle)
		before := w.counts()
		time.Sleep(tr.measure)
		m = w.counts().since(before, tr.measure)
		stop()
		for range tr.plan.Processors + 1 {
			<-w.finished
		}
	})
	return m
}

// simulator is the accounts that the plan asks for.
func (tr trial) simulator() *azsim.Sim {
	limits := azsim.Limits{
		Queue: azsim.Rate(tr.in.QueueLimit), QueueAccount: azsim.Rate(tr.in.AccountLimit),
	}
	if !tr.in.GetPerMsg {
		limits.GetCost = 1
	}
	// The simulator adds an eighth on average.
	sc := azsim.Config{Seed: 1, Latency: tr.in.Latency * 8 / 9, Limits: limits}
	for i := range tr.plan.Accounts {
		sc.Accounts = append(sc.Accounts, azsim.Account{Name: fmt.Sprintf("account%d", i)})
	}
	return azsim.New(sc)
}

// works is a trial under way.
type works struct {
	trial
	sim         *azsim.Sim
	handled     atomic.Int64
	processors  sync.Map // by instance, for nudges
	feed        *feed
	distributor *distributor.Distributor
	finished    chan error // of each process
}

// handle takes as long as the plan has it.
func (w *works) handle(ctx context.Context, _ *pump.Task) error {
	time.Sleep(time.Duration(w.in.HandlerSeconds * float64(time.Second)))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.handled.Add(1)
	return nil
}

func (w *works) nudge(_ context.Context, n pump.Nudge) error {
	time.Sleep(5 * time.Millisecond) // as between machines of a region
	if p, ok := w.processors.Load(n.Instance); ok {
		p.(*processor.Processor).Nudged(n)
	}
	return nil
}

func (w *works) startProcessor(ctx context.Context, t *testing.T, instance string) {
	t.Helper()
	p, err := processor.New(
		w.config(t, w.sim, instance, w.nudge), pump.HandlerFunc(w.handle),
		processor.Options{Concurrency: w.plan.Concurrency},
	)
	must(t, err)
	w.processors.Store(instance, p)
	go func() {
		_, err := p.Run(ctx)
		w.finished <- err
	}()
}

func (w *works) startDistributor(ctx context.Context, t *testing.T) {
	t.Helper()
	w.feed = &feed{trial: w.trial, ctx: ctx}
	var err error
	w.distributor, err = distributor.New(
		w.config(t, w.sim, "d", w.nudge), source.FromSeq(w.feed.tasks),
		distributor.Options{Pack: w.in.Pack, SealAge: w.in.SealAge},
	)
	must(t, err)
	go func() {
		_, err := w.distributor.Run(ctx)
		w.finished <- err
	}()
}

// counts is what a trial has come to at one moment.
type counts struct {
	requests     azsim.Stats
	fed, handled int64 // tasks
	sent         distributor.Counts
}

func (w *works) counts() counts {
	return counts{w.sim.Stats(), w.feed.fed.Load(), w.handled.Load(), w.distributor.State().Done}
}

// since is what was done after earlier counts, a second.
func (c counts) since(before counts, took time.Duration) measured {
	per := 1 / took.Seconds()
	of := func(operation string) float64 {
		return float64(c.requests.Count("", operation)-before.requests.Count("", operation)) * per
	}
	tasks, messages := c.sent.Tasks-before.sent.Tasks, c.sent.Envelopes-before.sent.Envelopes
	m := measured{
		fed: float64(c.fed-before.fed) * per, handled: float64(c.handled-before.handled) * per,
		put: of("PutMessage"), get: of("GetMessages"), delete: of("DeleteMessage"),
		perMessage: float64(tasks) / float64(messages),
	}
	for sign, s := range map[float64]azsim.Stats{1: c.requests, -1: before.requests} {
		for _, r := range s.Requests {
			if r.Service == "table" {
				m.table += sign * float64(r.Count) * per
			}
			if r.Status == 503 {
				m.throttle += sign * float64(r.Count) * per
			}
		}
	}
	return m
}

func (tr trial) config(
	t *testing.T, sim *azsim.Sim, instance string, nudge func(context.Context, pump.Nudge) error,
) pump.Config {
	c := pump.Config{
		Workload: "work", Instance: instance, Admin: instance + ":1", Nudge: nudge, Segments: tr.plan.Segments,
		Budget: pump.Budget{Account: tr.in.AccountLimit, Queue: tr.in.QueueLimit, GetCostsMessages: &tr.in.GetPerMsg},
	}
	if tr.in.Once {
		c.Delivery = pump.Once
	}
	if tr.in.Shared {
		c.Segments = pump.Shared
	}
	for _, name := range sim.Accounts() {
		st, err := azure.Open(
			azure.Options{ConnectionString: sim.ConnectionString(name), Transport: sim.Transport().As(instance)},
		)
		must(t, err)
		c.Accounts = append(c.Accounts, pump.Account{Storage: st, Queues: tr.plan.QueuesPerAccount})
	}
	return c
}

// feed is tasks at a steady rate, as long as they are taken.
type feed struct {
	trial
	ctx context.Context
	fed atomic.Int64
}

func (f *feed) tasks(yield func(source.Record, error) bool) {
	random := rand.New(rand.NewPCG(7, 7))
	rate := f.rate
	if rate == 0 {
		rate = f.plan.Rate
	}
	began := time.Now()
	for n := 0; f.ctx.Err() == nil; n++ {
		// By the clock and not by pauses, which would add up to less.
		if due := began.Add(time.Duration(float64(n) / rate * float64(time.Second))); time.Until(due) > 0 {
			time.Sleep(time.Until(due))
		}
		f.fed.Add(1)
		if !yield(f.record(random, n), nil) {
			return
		}
	}
}

func (f *trial) record(random *rand.Rand, n int) source.Record {
	key := fmt.Append(nil, n)
	if random.Float64() < f.hot {
		key = []byte("hot")
	}
	return source.Record{Key: key, Body: f.body(random)}
}

// sample measures what the trial will feed.
func (tr trial) sample(t *testing.T, tasks int) Sample {
	t.Helper()
	random := rand.New(rand.NewPCG(8, 8))
	s, err := Measure(t.Context(), source.FromSeq(func(yield func(source.Record, error) bool) {
		for n := range tasks {
			if !yield(tr.record(random, n), nil) {
				return
			}
		}
	}), tasks, tr.in.Pack)
	must(t, err)
	s.PackSeconds, s.OpenSeconds = 1e-6, 1e-6 // this machine is none of the test's
	return s
}

// make makes the plan of a sample of what the trial will feed.
func (tr *trial) make(t *testing.T) {
	t.Helper()
	tr.in.Sample = tr.sample(t, 20_000)
	var err error
	tr.in, err = tr.in.Defaults()
	must(t, err)
	tr.plan, err = Make(tr.in)
	must(t, err)
}

// jsonTask is a task of about 130 bytes.
func jsonTask(r *rand.Rand) []byte {
	return fmt.Appendf(
		nil,
		`{"id":%d,"city":"%s","customer":"c-%06d","amount":%d.%02d,"currency":"EUR","at":"2026-03-%02dT%02d:%02d:%02dZ","note":"order"}`,
		r.Uint32(), []string{"Berlin", "Roma", "Lisboa", "Paris", "Oslo"}[r.IntN(5)], r.IntN(1e6),
		r.IntN(1000), r.IntN(100), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60),
	)
}

// noise is a task that does not compress.
func noise(size int) func(r *rand.Rand) []byte {
	return func(r *rand.Rand) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
}

// within checks that a figure of a plan is a tenth off at most.
func within(t *testing.T, what string, planned, measured float64) {
	t.Helper()
	off := planned/measured - 1
	t.Logf("%-16s planned %9.2f, measured %9.2f: %+.1f %%", what, planned, measured, 100*off)
	if math.Abs(off) > 0.1 {
		t.Errorf("%s: planned %.3f, measured %.3f", what, planned, measured)
	}
}

func TestAPlanIsWhatARunInVirtualTimeNeeds(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct {
		name string
		in   Input
		body func(r *rand.Rand) []byte
	}{
		{"messages that age", Input{Rate: 1000, HandlerSeconds: 0.01}, jsonTask},
		{"messages that fill", Input{Rate: 400, HandlerSeconds: 0.02, SealAge: 30 * time.Second}, noise(3000)},
		{"one task in a message", Input{Rate: 150, HandlerSeconds: 0.05, Pack: 1}, jsonTask},
		{"slow tasks", Input{Rate: 60, HandlerSeconds: 2, Concurrency: 16, Headroom: 0.3}, jsonTask},
		{"slow tasks in small messages", Input{Rate: 80, HandlerSeconds: 0.5, Concurrency: 4, Segments: 64, SealAge: time.Minute}, jsonTask},
		{"few tasks", Input{Rate: 4, HandlerSeconds: 0.5}, jsonTask},
		{"shared", Input{Rate: 600, HandlerSeconds: 0.5, Shared: true, Pack: 20, SealAge: 10 * time.Second}, jsonTask},
		{"once", Input{Rate: 500, HandlerSeconds: 0.01, Once: true}, jsonTask},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.GetPerMsg, c.in.Headroom = true, max(c.in.Headroom, 0.2)
			tr := trial{in: c.in, body: c.body, settle: 25 * time.Second}
			tr.make(t)
			p := tr.plan
			if p.Packing.By == "handling" {
				tr.settle += 2 * tr.in.SealAge // the first messages were filled before any handler was known
			}
			// A thousand messages are a few per cent by chance.
			tr.measure = max(15*time.Second, time.Duration(1000/p.Packing.Messages*float64(time.Second)))
			// Of several processors each looks at its tables at times of its own; over a quarter of a
			// minute that is 3 to 11 % off.
			if p.Processors > 1 {
				tr.measure = max(tr.measure, 90*time.Second)
			}
			t.Logf(
				"%d accounts x %d queues, %d segments, %d processors; bottleneck %s at %.0f; packing %+v",
				p.Accounts, p.QueuesPerAccount, p.Segments, p.Processors, p.Bottleneck, p.Most,
				p.Packing,
			)
			m := tr.run(t)
			within(t, "tasks handled", p.Rate, m.handled)
			within(t, "tasks a message", p.Packing.Tasks, m.perMessage)
			within(t, "puts", p.Requests.Put, m.put)
			within(t, "gets", p.Requests.Get, m.get)
			within(t, "deletes", p.Requests.Delete, m.delete)
			within(t, "all", p.Requests.Put+p.Requests.Get+p.Requests.Delete, m.put+m.get+m.delete)
			// Processes look at their tables about once a second, with up to three requests
			// together. Of so few, either edge of a window may hold one look more or less.
			if edge := 6 / tr.measure.Seconds(); math.Abs(p.Requests.Table-m.table) > edge {
				within(t, "tables", p.Requests.Table, m.table)
			}
			if m.throttle > 0 || !p.Fits {
				t.Errorf("fits %v, %.2f requests a second throttled", p.Fits, m.throttle)
			}
		})
	}
}

// Up to what a plan says is the most, all that is fed is done, and not much beyond: the plateau of
// origins H2 is where it says, and so is what it names as the reason.
func TestAPlateauIsWhereThePlanSaysThatItIs(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct {
		name string
		in   Input
		hot  float64
		want string
	}{
		{"handlers", Input{Rate: 120, HandlerSeconds: 0.2, Concurrency: 8, Pack: 4}, 0, "handlers"},
		{"a queue", Input{Rate: 500, Pack: 1, Accounts: 1, Queues: 1}, 0, "queues"},
		{"a hot key", Input{Rate: 200, HandlerSeconds: 0.05, Concurrency: 8, Pack: 4}, 0.5, "hottest key's processor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.GetPerMsg, c.in.Headroom = true, 0.1
			tr := trial{in: c.in, hot: c.hot, body: jsonTask, settle: 20 * time.Second, measure: 20 * time.Second}
			tr.make(t)
			most := tr.plan.Most
			t.Logf(
				"%d accounts x %d queues, %d processors: %s full at %.1f tasks/s", tr.plan.Accounts,
				tr.plan.QueuesPerAccount, tr.plan.Processors, tr.plan.Bottleneck, most,
			)
			proof.Same(t, tr.plan.Bottleneck, c.want, "the bottleneck", tr.plan.Limits)
			tr.rate = 0.92 * most
			below := tr.run(t)
			tr.rate = 1.1 * most
			above := tr.run(t)
			t.Logf("of %.1f tasks/s %.1f are done, of %.1f %.1f", 0.92*most, below.handled, 1.1*most, above.handled)
			if below.handled < 0.9*most {
				t.Errorf("of %.1f tasks/s only %.1f are done; the plan says that %.1f are possible",
					0.92*most, below.handled, most)
			}
			// Of a hot key's tasks no more are done, while of the others all are.
			possible := most*c.hot + 1.1*most*(1-c.hot)
			if c.hot == 0 {
				possible = most
			}
			if above.handled > 1.05*possible {
				t.Errorf(
					"of %.1f tasks/s %.1f are done; the plan says that no more than %.1f are possible",
					1.1*most, above.handled, possible,
				)
			}
		})
	}
}
