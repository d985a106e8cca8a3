package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

// world is simulated accounts with a workload in them, in a bubble of virtual
// time. The real driver talks to the real wire protocol.
type world struct {
	many int // runs made by manyRun
	t    *testing.T
	sim  *azsim.Sim
	cfg  pump.Config // of whoever puts; has its defaults
	run  pump.RunID
	runs byte              // made so far
	ns   map[uint32]uint64 // next n of each segment
	log  *bytes.Buffer     // of the processors, guarded by mu
	mu   sync.Mutex

	pinned   int           // Config.Segments of everybody
	delivery pump.Delivery // and Config.Delivery
	turns    *turns        // makes histories a function of the seed; nil: they are not
}

// inWorld runs a test in a world. Names of accounts are accounta, accountb, ...
func inWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{}, accounts, queues, change, test)
}

// inSharedWorldOf is inWorld with a workload whose segments nobody owns.
func inSharedWorldOf(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{Shared: true}, accounts, queues, change, test)
}

// inOnceWorld is inWorld with delivery mode once.
func inOnceWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{Delivery: workload.DeliverOnce}, accounts, queues, change, test)
}

// inWorldOf is inWorld with what spec says of the workload besides its queues.
func inWorldOf(t *testing.T, spec workload.Spec, accounts, qs int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sc := azsim.Config{Seed: 1, Latency: 10 * time.Millisecond}
		for i := range accounts {
			sc.Accounts = append(sc.Accounts, azsim.Account{Name: "account" + string(rune('a'+i))})
		}
		if change != nil {
			change(&sc)
		}
		w := &world{t: t, sim: azsim.New(sc), ns: map[uint32]uint64{}, log: new(bytes.Buffer), delivery: pump.Delivery(spec.Delivery)}
		if spec.Shared {
			w.pinned = pump.Shared
		}
		cfg, err := settings.Complete(w.config("putter", qs))
		if err != nil {
			t.Fatal(err)
		}
		w.cfg = cfg
		f := queues.Open(&cfg, row.TableName)
		spec.Name, spec.Shards, spec.Delivery = cfg.Workload, settings.Shards(cfg), string(cfg.Delivery)
		if _, err := workload.Ensure(t.Context(), f.Control, spec); err != nil {
			t.Fatal(err)
		}
		var qs []*queues.Queue
		for _, s := range settings.Shards(cfg) {
			sh, err := f.Queue(s.Account, s.Queue)
			if err != nil {
				t.Fatal(err)
			}
			qs = append(qs, sh)
		}
		for _, name := range f.Names {
			qs = append(qs, f.Accounts[name].Poison)
		}
		g, ctx := errgroup.WithContext(t.Context())
		g.SetLimit(16)
		for _, q := range qs {
			g.Go(func() error { return queues.Create(ctx, q, backoff.Jitter(cfg.Instance), cfg.Log) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		w.run = w.newRun()
		t.Cleanup(func() {
			if t.Failed() {
				w.mu.Lock()
				defer w.mu.Unlock()
				t.Logf("faults:\n%slog:\n%s", w.sim.Faults(), w.log)
			}
		})
		test(t, w)
	})
}

func (w *world) newRun() pump.RunID {
	w.t.Helper()
	w.runs++ // not a random one: whoever lists runs reads its row (P9)
	id := pump.RunID{0: 0xf0, 15: w.runs}
	f := queues.Open(&w.cfg, row.TableName)
	if err := workload.NewRuns(f.Control, w.cfg.Workload).Create(w.t.Context(), workload.Run{ID: id}); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// config is the configuration of one instance.
func (w *world) config(instance string, queues int) pump.Config {
	c := pump.Config{Workload: "work", Instance: instance, Segments: w.pinned, Delivery: w.delivery, Retention: w.cfg.Retention, Log: slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if w.turns != nil {
		c.Private.Seeding = w.turns.of(instance)
	}
	for _, name := range w.sim.Accounts() {
		st, err := azure.Open(azure.Options{ConnectionString: w.sim.ConnectionString(name), Transport: w.sim.Transport().As(instance)})
		if err != nil {
			w.t.Fatal(err)
		}
		c.Accounts = append(c.Accounts, pump.Account{Storage: st, Queues: queues})
	}
	return c
}

// Write takes the processors' logs.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *world) logged(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.log.String(), what)
}

func (w *world) queue(account, queue string) storage.Queue {
	for _, a := range w.cfg.Accounts {
		if a.Name == account {
			return a.Storage.Queue(queue)
		}
	}
	w.t.Fatalf("no account %q", account)
	return nil
}

// envelope makes the text of an envelope of n tasks of a segment. The body of
// each task is its identity.
func (w *world) envelope(segment uint32, n int) []byte {
	w.t.Helper()
	b := codec.NewBuilder(0)
	b.Reset(codec.Header{Workload: w.cfg.Workload, Run: w.run, Segment: segment, MapVersion: 1})
	for range n {
		i := w.ns[segment]
		w.ns[segment]++
		fits, err := b.Add(codec.Task{N: i, Key: []byte("key"), Body: fmt.Appendf(nil, "%d/%d", segment, i)})
		if err != nil || !fits {
			w.t.Fatalf("task does not fit: %v", err)
		}
	}
	text, _, err := b.Seal(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// put puts envelopes of n tasks each into a queue, of a segment of its own.
func (w *world) put(account, queue string, envelopes, n int) {
	w.t.Helper()
	for range envelopes {
		w.putText(account, queue, w.envelope(shardmap.Segment([]byte(account+queue), 64), n))
	}
}

func (w *world) putText(account, queue string, text []byte) string {
	w.t.Helper()
	r, err := w.queue(account, queue).Put(w.t.Context(), text, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.ID
}

// spread puts envelopes of n tasks each into every queue and says how many tasks that is.
func (w *world) spread(envelopes, n int) (tasks int) {
	w.t.Helper()
	for _, s := range settings.Shards(w.cfg) {
		w.put(s.Account, s.Queue, envelopes, n)
		tasks += envelopes * n
	}
	return tasks
}

// count is how many messages a queue holds, the invisible ones included.
func (w *world) count(account, queue string) int {
	w.t.Helper()
	n, err := w.queue(account, queue).Count(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return int(n)
}

// left is how many messages all work queues hold.
func (w *world) left() (n int) {
	w.t.Helper()
	for _, s := range settings.Shards(w.cfg) {
		n += w.count(s.Account, s.Queue)
	}
	return n
}

// visible is how many messages can be got from a queue at once, up to 32.
func (w *world) visible(account, queue string) int {
	w.t.Helper()
	ms, err := w.queue(account, queue).Peek(w.t.Context(), storage.MaxGet)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(ms)
}

// poisoned gives the headers of the messages in an account's poison queue.
func (w *world) poisoned(account string) (texts [][]byte) {
	w.t.Helper()
	ms, err := w.queue(account, settings.PoisonQueue(w.cfg.Workload)).Peek(w.t.Context(), storage.MaxGet)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range ms {
		texts = append(texts, m.Text)
	}
	return texts
}

// cause is the cause of the only message in an account's poison queue.
func (w *world) cause(account string) (codec.Header, codec.Cause) {
	w.t.Helper()
	texts := w.poisoned(account)
	if len(texts) != 1 {
		w.t.Fatalf("%d messages in the poison queue, want 1", len(texts))
	}
	h, err := codec.ReadHeader(texts[0])
	if err != nil {
		w.t.Fatal(err)
	}
	if h.Cause == nil {
		w.t.Fatal("the message has no cause")
	}
	return h, *h.Cause
}

// requests is how many requests of an operation the server has had, from all clients.
func (w *world) requests(operation string) int { return int(w.sim.Stats().Count("", operation)) }

// fault injects a rule for the processor named "p".
func (w *world) fault(r azsim.Rule, operations ...string) *azsim.Injection {
	r.Operations = operations
	if r.Instance == "" {
		r.Instance = "p"
	}
	return w.sim.Inject(r)
}

// processor makes the processor of instance "p".
func (w *world) processor(h pump.Handler, o ProcessorOptions) *Processor {
	w.t.Helper()
	return w.processorOf("p", h, o)
}

func (w *world) processorOf(instance string, h pump.Handler, o ProcessorOptions) *Processor {
	w.t.Helper()
	p, err := NewProcessor(w.config(instance, w.cfg.Accounts[0].Queues), h, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// drain runs a processor until it is idle.
func (w *world) drain(h pump.Handler, o ProcessorOptions) ProcessorSummary {
	w.t.Helper()
	if o.UntilIdle == 0 {
		o.UntilIdle = 2 * time.Minute
	}
	s, err := w.processor(h, o).Run(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// ready does what Run does before it polls.
func ready(t *testing.T, r *processing) {
	t.Helper()
	if err := r.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.launch()
	r.member.Load().Admit()
}

// started is a processor at work.
type started struct {
	t       *testing.T
	of      *Processor
	stop    context.CancelFunc
	done    chan struct{}
	summary ProcessorSummary
	err     error
}

func (w *world) start(p *Processor) *started {
	ctx, cancel := context.WithCancel(w.t.Context())
	s := &started{t: w.t, of: p, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.summary, s.err = p.Run(ctx)
	}()
	return s
}

// end stops the processor and waits for it.
func (s *started) end() ProcessorSummary {
	s.t.Helper()
	s.stop()
	<-s.done
	if s.err != nil {
		s.t.Fatal(s.err)
	}
	return s.summary
}

// seen is a handler that notes what it is given.
type seen struct {
	mu    sync.Mutex
	times map[string]int // deliveries by identity
	most  int            // at once
	now   int
	order []pump.Task
	first time.Time // when the first was handled
	work  func(ctx context.Context, t *pump.Task) error
}

func (s *seen) Handle(ctx context.Context, t *pump.Task) error {
	s.mu.Lock()
	if s.times == nil {
		s.times = map[string]int{}
		s.first = time.Now()
	}
	s.times[identity(t)]++
	copied := *t
	copied.Key, copied.Body = slices.Clone(t.Key), slices.Clone(t.Body)
	s.order = append(s.order, copied)
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if s.work == nil {
		return nil
	}
	return s.work(ctx, t)
}

func identity(t *pump.Task) string {
	if t.Foreign != "" {
		return t.Foreign
	}
	return fmt.Sprintf("%v/%d/%d", t.Run, t.Segment, t.N)
}

// tasks is how many different tasks were seen, deliveries how often in all.
func (s *seen) tasks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

func (s *seen) deliveries() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n2 := range maps.Values(s.times) {
		n += n2
	}
	return n
}

// atOnce is how many tasks were handled at the same time, at most.
func (s *seen) atOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// expect checks that each of n tasks was delivered, and in all so many times.
func (s *seen) expect(t *testing.T, tasks, deliveries int) {
	t.Helper()
	if got := s.tasks(); got != tasks {
		t.Errorf("%d tasks were handled, want %d", got, tasks)
	}
	if got := s.deliveries(); got != deliveries {
		t.Errorf("%d deliveries, want %d", got, deliveries)
	}
}

// pause sleeps in virtual time as a handler does: until its context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errFlop = errors.New("flop")
