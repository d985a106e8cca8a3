package scenario

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// test is one load test.
type test struct {
	world    World
	o        Options
	info     *Info
	plan     *plan
	workload string
	table    string
	segments int

	meters   []*meter
	record   *recorder
	source   *taskSource
	cluster  *cluster
	series   *series
	operator pump.Config // for what an operator does: adding and draining accounts

	mu      sync.Mutex // guards what follows
	events  []report.Event
	trouble []string

	sender  sender
	phases  []report.Phase
	warmUp  int64 // tasks that were sent in the warm-up
	cpu     *float64
	seconds float64 // of load
	cut     bool    // stopped before every task could be handled
	cleaned sync.Once
}

// sender is the distributor's run.
type sender struct {
	stop    context.CancelFunc
	done    chan struct{} // closed when it has ended; then the rest is valid
	summary distributor.Summary
	err     error
}

var validID = regexp.MustCompile(`^[0-9a-f]{8}$`)

// newTest checks everything that can be checked before something is done.
func newTest(w World, o Options) (*test, error) {
	info, err := find(o.Scenario)
	if err != nil {
		return nil, err
	}
	if err := o.unused(info); err != nil {
		return nil, err
	}
	o.preset(w)
	if err := o.fill(info); err != nil {
		return nil, err
	}
	if n := len(w.Config.Accounts); n < info.Least {
		return nil, wrong("scenario", "%s needs %d accounts, and there is %d", info.Name, info.Least, n)
	}
	if o.ID == "" {
		var b [idLen / 2]byte
		_, _ = rand.Read(b[:])
		o.ID = hex.EncodeToString(b[:])
	}
	if !validID.MatchString(o.ID) {
		return nil, wrong("id", "%q is not %d lower-case hexadecimal digits", o.ID, idLen)
	}
	t := &test{world: w, o: o, info: info, workload: "loadtest-" + o.ID, table: "loadtest" + o.ID}
	shards := 0
	for i, a := range w.Config.Accounts {
		m, err := w.meter(i)
		if err != nil {
			return nil, err
		}
		if a.Name != "" {
			m.name = a.Name
		}
		shards += m.queues
		t.meters = append(t.meters, m)
	}
	// Pinned for all accounts, also if the test begins with fewer.
	t.segments = cmp.Or(w.Config.Segments, shardmap.DefaultSegments(shards))
	p := &planner{
		plan: plan{processors: o.Processors, accounts: len(t.meters)}, o: &t.o, limits: w.Limits,
		meters: t.meters,
	}
	if err := info.plan(p); err != nil {
		return nil, err
	}
	t.plan = &p.plan
	t.judgeQueues()
	t.record = newRecorder(o.ID)
	if p.grouped {
		// The recorder looks at groups, the rest included, from the first task on.
		t.record.groups[groupRest] = &groupSeen{latencies: newLatencies()}
	}
	t.source = newSource(o.ID, t.plan, &t.o, t.record, t.put)
	t.cluster = newCluster(t)
	t.operator, err = t.cluster.config("operator")
	return t, err
}

// judgeQueues notes, before anybody waits for the result, that processors have to share
// queues: how they pass each other's messages on is what such a test measures (P7).
func (t *test) judgeQueues() {
	if t.segments == pump.Shared {
		return
	}
	for i := range t.plan.phases {
		ph := &t.plan.phases[i]
		if n := queuesOf(t.meters[:ph.accounts]); ph.processors > n {
			t.note("%d processors share the queues, of which there are %d while it is %q, "+
				"and pass on what is another's, which is slow: have at least as many queues",
				ph.processors, n, ph.name)
			t.o.Log.Warn("processors share queues, which is slow: have at least as many queues",
				"processors", ph.processors, "queues", n, "phase", ph.name)
			return
		}
	}
}

// put is how many messages were put so far.
func (t *test) put() (n int64) {
	for _, m := range t.meters {
		n += m.puts.Load()
	}
	return n
}

// preset sets the defaults that depend on the scenario.
func (o *Options) preset(w World) {
	o.Over = cmp.Or(o.Over, OverAccounts)
	if o.Scenario != "scale-out" {
		return
	}
	if o.Over != OverProcessors {
		// Two processors that share a queue are always slow, and would be compared with processors that
		// have queues of their own.
		if a := w.Config.Accounts; o.Processors == 0 && len(a) > 0 && a[0].Queues == 1 {
			o.Processors = 1
		}
		return
	}
	// A processor that is limited by nothing but the accounts shows nothing when there are two.
	o.Processors = cmp.Or(o.Processors, 4)
	o.Concurrency = cmp.Or(o.Concurrency, 16)
	o.HandlerTime = cmp.Or(o.HandlerTime, 20*time.Millisecond)
}

// meter makes the meter of the i-th account.
func (w World) meter(i int) (*meter, error) {
	a := w.Config.Accounts[i]
	st, err := w.Open("meter", i)
	if err != nil {
		return nil, err
	}
	m := &meter{
		name: st.Name(), queues: cmp.Or(a.Queues, pump.DefaultQueues), getEach: w.Limits.GetCost > 1,
	}
	if q := w.Limits.Queue * float64(m.queues); q > 0 {
		m.limit = q
	}
	if l := w.Limits.Account; l > 0 && (m.limit == 0 || l < m.limit) {
		m.limit = l
	}
	return m, nil
}

// run makes the test.
func (t *test) run(ctx context.Context) (*report.Result, error) {
	defer t.clean(ctx)
	defer t.cluster.end()
	defer t.endSender()
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	err := t.load(ctx)
	t.seconds = t.record.now().Seconds()
	if err == nil {
		err = t.finish(ctx)
	} else {
		t.cut = true
		t.note("the test was cut short after %.0f s: %v", t.seconds, err)
	}
	t.endSender()
	t.cluster.end()
	t.clean(ctx)
	r := t.result(began)
	if err == nil && r.Tasks.Lost > 0 {
		err = fmt.Errorf("%d of %d tasks were not handled", r.Tasks.Lost, r.Tasks.Sent)
	}
	return r, err
}

// note adds a trouble to the result.
func (t *test) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trouble = append(t.trouble, fmt.Sprintf(format, args...))
}

// prepare brings everything to where load can begin.
func (t *test) prepare(ctx context.Context) error {
	if err := t.first(ctx); err != nil {
		return err
	}
	if err := t.send(); err != nil {
		return err
	}
	select {
	case <-t.source.opened:
	case <-t.sender.done:
		return t.failed(errors.New("the distributor ended before the load began"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := t.cluster.grow(ctx, t.plan.processors); err != nil {
		return err
	}
	if err := t.cluster.settled(ctx); err != nil {
		return t.failed(err)
	}
	return nil
}

// first makes the workload with as many accounts as the plan begins with; only then the
// others can be added.
func (t *test) first(ctx context.Context) error {
	if t.plan.accounts == len(t.meters) {
		return nil
	}
	cfg, err := t.cluster.config("first")
	if err != nil {
		return err
	}
	cfg.Accounts = cfg.Accounts[:t.plan.accounts]
	if cfg.Control != "" &&
		!slices.ContainsFunc(cfg.Accounts, func(a pump.Account) bool { return a.Name == cfg.Control }) {
		return wrong("scenario",
			"%s begins with the first account, so that must be the control account, which is %q",
			t.info.Name, cfg.Control)
	}
	d, err := distributor.New(cfg, source.FromSeq(func(func(source.Record, error) bool) {}),
		distributor.Options{})
	if err != nil {
		return err
	}
	_, err = d.Run(ctx)
	return err
}

// send starts the distributor.
func (t *test) send() error {
	const name = "distributor"
	cfg, err := t.cluster.config(name)
	if err != nil {
		return err
	}
	d, err := distributor.New(cfg, t.source,
		distributor.Options{Pack: max(t.o.Pack, 0), SealAge: t.o.Linger})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	t.sender.stop, t.sender.done = stop, make(chan struct{})
	t.cluster.reach(name, d)
	go func() {
		defer close(t.sender.done)
		t.sender.summary, t.sender.err = d.Run(ctx)
		t.cluster.reach(name, nil)
		if t.sender.err != nil && ctx.Err() == nil {
			t.cluster.fail(fmt.Errorf("the distributor: %w", t.sender.err))
		}
	}()
	return nil
}

// endSender stops the distributor if it still runs.
func (t *test) endSender() {
	if t.sender.stop != nil {
		t.sender.stop()
		<-t.sender.done
	}
}

// failed is why the cluster failed, or else err.
func (t *test) failed(err error) error {
	t.cluster.mu.Lock()
	defer t.cluster.mu.Unlock()
	return cmp.Or(t.cluster.failed, err)
}

// handle is the work of a task.
func (t *test) handle(ctx context.Context, task *pump.Task) error {
	t.record.begins(task.Body)
	if t.o.HandlerTime > 0 {
		return Sleep(ctx, t.o.HandlerTime)
	}
	return nil
}

// scale brings the test to n accounts or processors.
func (t *test) scale(ctx context.Context, n int) error {
	if t.o.Over == OverProcessors {
		return t.cluster.grow(ctx, n)
	}
	for _, m := range t.meters[:n] {
		// adding one that is there changes nothing
		if _, err := accounts.Add(ctx, t.operator, m.name); err != nil {
			return err
		}
	}
	return nil
}

// load puts the load on and measures.
func (t *test) load(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop(nil)

	interval := max(time.Second, (t.plan.end()/600 + time.Second - 1).Truncate(time.Second))
	t.record.start()
	t.series = newSeries(t.record, t.meters, interval)
	before := processorTime()
	defer func() {
		if before != nil && t.world.Against != report.Virtual {
			if after := processorTime(); after != nil {
				t.cpu = new(*after - *before)
			}
		}
	}()
	close(t.source.begin)
	beside.Go(func() { stop(t.steps(ctx)) })
	beside.Go(func() {
		select {
		case <-t.cluster.failing:
			stop(t.failed(nil))
		case <-ctx.Done():
		}
	})
	return t.watch(ctx, interval)
}

// watch measures until the last phase has ended.
func (t *test) watch(ctx context.Context, interval time.Duration) error {
	tick := interval
	for i := 0; i < len(t.plan.phases); {
		ph := &t.plan.phases[i]
		next := min(tick, ph.until)
		err := Sleep(ctx, next-t.record.now())
		now := t.record.now()
		if now >= tick || err != nil || i == len(t.plan.phases)-1 && now >= ph.until {
			// A last interval that is much shorter than the others would only be noise.
			if now-t.series.tickAt > interval/2 || len(t.series.out.Sent) == 0 {
				t.series.tick(now)
			}
			tick = now.Truncate(interval) + interval
			h := t.series.out.Handled
			t.progress(ph.name, h[len(h)-1])
		}
		if now >= ph.until || err != nil {
			t.phases = append(t.phases, t.series.finish(ph, now))
			if i == 0 && t.o.WarmUp > 0 {
				t.warmUp = t.series.phaseMark.sent
			}
			i++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// progress tells how far the test is; perSecond is how many tasks were handled lately.
func (t *test) progress(phase string, perSecond float64) {
	if t.o.Progress == nil {
		return
	}
	p := Progress{
		Phase: phase, Seconds: t.record.now().Seconds(), Of: t.plan.end().Seconds(),
		Sent: t.record.sent.Load(), HandledPerLast: perSecond,
	}
	p.Handled = p.Sent - t.record.waiting()
	for _, m := range t.meters {
		p.Throttled += m.throttled.Load()
	}
	t.o.Progress(p)
}

// steps takes the steps of the plan. nil means to go on.
func (t *test) steps(ctx context.Context) error {
	for _, s := range t.plan.steps {
		if Sleep(ctx, s.at-t.record.now()) != nil {
			return nil // over, for a reason that is known
		}
		t.mu.Lock()
		t.events = append(t.events, report.Event{At: t.record.now().Seconds(), Text: s.text})
		t.mu.Unlock()
		if err := s.do(ctx, t); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", s.text, err)
		}
	}
	<-ctx.Done()
	return nil
}

// finish waits until every task that was sent is handled, or nothing moves any more.
func (t *test) finish(ctx context.Context) error {
	for _, m := range t.meters {
		m.dark.Store(false)
	}
	moved, before := time.Now(), int64(-1)
	second, then, perSecond := time.Now(), t.record.sent.Load()-t.record.waiting(), 0.0
	for {
		sent := t.record.sent.Load()
		waiting := t.record.waiting()
		select {
		case <-t.sender.done:
			if waiting == 0 {
				return t.failed(nil)
			}
		default:
		}
		if done := sent - waiting; done != before {
			moved, before = time.Now(), done
		}
		if time.Since(moved) > t.o.Patience {
			t.note("given up: nothing has moved for %v", t.o.Patience)
			return t.failed(nil)
		}
		if d := time.Since(second); d >= time.Second {
			done := sent - waiting
			second, then, perSecond = time.Now(), done, float64(done-then)/d.Seconds()
		}
		t.progress("finishing", perSecond)
		if err := Sleep(ctx, 100*time.Millisecond); err != nil {
			t.cut = true
			t.note("stopped before all tasks were handled: %v", err)
			return err
		}
		if err := t.failed(nil); err != nil {
			t.note("%v", err)
			return err
		}
	}
}
