package worlds

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// limitsWorld is a number of accounts at the published limits (azsim/AZURE.md A2), in
// virtual time: what either side of the pump makes of them is counted by what the
// service did, with the real driver between them. One task makes one message, because the
// limits are of messages.
type limitsWorld struct {
	t                *testing.T
	sim              *azsim.Sim
	accounts, queues int
	part             float64 // of the published limits that is allowed: in small worlds less, so that minutes take seconds
	segments         int

	mu     sync.Mutex // guards what follows
	log    bytes.Buffer
	counts map[string]*limitsCount
	tasks  map[string]bool // by their keys, whether they were handled; nil: not asked for
}

// limitsCount is what became of the pump's requests to one account.
type limitsCount struct{ puts, deletes, gets, others, throttled, failed atomic.Int64 }

// The published limits, and the time that an answer takes: near, and on another continent.
const (
	limitQueue   = 2_000.
	limitAccount = 20_000.
	limitNear    = 5 * time.Millisecond
	limitFar     = 50 * time.Millisecond
)

type limitsOf struct {
	accounts, queues int
	latency          time.Duration // 0: limitNear
	part             float64       // 0: 1
	segments         int           // 0: the default
}

func inLimits(t *testing.T, of limitsOf, test func(w *limitsWorld)) {
	t.Helper()
	if of.latency == 0 {
		of.latency = limitNear
	}
	if of.part == 0 {
		of.part = 1
	}
	synctest.Test(t, func(t *testing.T) {
		w := &limitsWorld{t: t, accounts: of.accounts, queues: of.queues, part: of.part, segments: of.segments, counts: map[string]*limitsCount{}}
		c := azsim.Config{Seed: 1, Latency: of.latency}
		c.Limits.Queue, c.Limits.QueueAccount = azsim.Rate(limitQueue*of.part), azsim.Rate(limitAccount*of.part)
		for i := range of.accounts {
			name := fmt.Sprintf("account%03d", i)
			c.Accounts = append(c.Accounts, azsim.Account{Name: name})
			w.counts[name] = &limitsCount{}
		}
		w.sim = azsim.New(c)
		test(w)
		if t.Failed() {
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Logf("log:\n%s", &w.log)
		}
	})
}

// limit is the sum of the limits, in messages a second.
func (w *limitsWorld) limit() float64 {
	return float64(w.accounts) * w.part * min(float64(w.queues)*limitQueue, limitAccount)
}

// Write takes the processes' logs.
func (w *limitsWorld) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *limitsWorld) open(account, instance string) storage.Account {
	w.t.Helper()
	st, err := azure.Open(azure.Options{ConnectionString: w.sim.ConnectionString(account), Transport: w.sim.Transport().As(instance)})
	must(w.t, err)
	return st
}

func (w *limitsWorld) config(instance string) pump.Config {
	w.t.Helper()
	c := pump.Config{
		Workload: "work", Instance: instance, Segments: w.segments, Log: slog.New(slog.NewTextHandler(w, nil)),
		Budget: pump.Budget{Queue: limitQueue * w.part, Account: limitAccount * w.part},
		Hooks:  pump.Hooks{Request: w.count},
	}
	for _, name := range w.sim.Accounts() {
		c.Accounts = append(c.Accounts, pump.Account{Storage: w.open(name, instance), Queues: w.queues})
	}
	return c
}

func (w *limitsWorld) count(account, _, operation string, _ time.Duration, err error) {
	c := w.counts[account]
	switch {
	case storage.Is(err, storage.Throttled):
		c.throttled.Add(1)
	case err != nil:
		c.failed.Add(1)
	case operation == queues.OpPut.String():
		c.puts.Add(1)
	case operation == queues.OpDelete.String():
		c.deletes.Add(1)
	case operation == queues.OpGet.String():
		c.gets.Add(1)
	default:
		c.others.Add(1)
	}
}

// limitsSample is what was counted up to a moment.
type limitsSample struct {
	at                  time.Time
	useful              int64 // messages put, got and deleted
	requests, throttled int64
}

func (w *limitsWorld) sample(got int64) limitsSample {
	s := limitsSample{at: time.Now(), useful: got}
	for _, c := range w.counts {
		useful := c.puts.Load() + c.deletes.Load()
		s.useful += useful
		s.throttled += c.throttled.Load()
		s.requests += useful + c.gets.Load() + c.others.Load() + c.throttled.Load()
	}
	return s
}

// limitsRate is what was done between two samples.
type limitsRate struct {
	rate      float64 // messages a second, put, or got and deleted
	part      float64 // of the sum of the limits
	throttled float64 // part of the requests
}

func (w *limitsWorld) rate(from, to limitsSample) limitsRate {
	rate := float64(to.useful-from.useful) / to.at.Sub(from.at).Seconds()
	return limitsRate{rate, rate / w.limit(), float64(to.throttled-from.throttled) / float64(max(to.requests-from.requests, 1))}
}

func (r limitsRate) String() string {
	return fmt.Sprintf("%.0f messages a second, %.1f %% of the limits, %.3f %% of requests throttled", r.rate, 100*r.part, 100*r.throttled)
}

// over measures for the time from now on.
func (w *limitsWorld) over(d time.Duration, got func() int64) limitsRate {
	from := w.sample(got())
	time.Sleep(d)
	return w.rate(from, w.sample(got()))
}

// endless is a source without an end whose keys are all different. It tells the world of
// each record that is taken.
type endless struct{ w *limitsWorld }

func (endless) Fingerprint(context.Context) (string, error) { return "endless", nil }

func (e endless) Open(context.Context, []byte) (source.Reader, error) {
	return &endlessReader{w: e.w}, nil
}

type endlessReader struct {
	w   *limitsWorld
	n   int64
	key []byte
}

func (r *endlessReader) Next(ctx context.Context) (source.Record, error) {
	if err := ctx.Err(); err != nil {
		return source.Record{}, err
	}
	r.n++
	r.key = strconv.AppendInt(r.key[:0], r.n, 36)
	r.w.task(r.key, false)
	return source.Record{Key: r.key, Body: r.key}, nil
}

func (r *endlessReader) AppendCursor(dst []byte) []byte { return strconv.AppendInt(dst, r.n, 10) }
func (r *endlessReader) Progress() (int64, int64)       { return r.n, 0 }
func (r *endlessReader) Close() error                   { return nil }

// task notes a task that was given or handled.
func (w *limitsWorld) task(key []byte, handled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tasks != nil {
		w.tasks[string(key)] = handled
	}
}

func noGets() int64 { return 0 }

// distribute runs a distributor for as long as during takes, which measures.
func (w *limitsWorld) distribute(during func(got func() int64)) {
	w.t.Helper()
	cfg := w.config("d")
	sim.In(&cfg).Lanes = 2
	d, err := distributor.New(cfg, endless{w}, distributor.Options{Pack: 1})
	must(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if s, err := d.Run(ctx); ctx.Err() == nil {
			w.t.Errorf("it ended by itself: %+v, %v", s, err)
		}
	}()
	during(noGets)
	stop()
	<-ended
}

// process runs a processor for as long as during takes, which measures.
func (w *limitsWorld) process(during func(got func() int64)) {
	w.t.Helper()
	p, err := processor.New(w.config("p"), pump.HandlerFunc(func(_ context.Context, t *pump.Task) error {
		w.task(t.Key, true)
		return nil
	}), processor.Options{})
	must(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := p.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	during(func() int64 {
		return p.State().Done.Envelopes
	})
	stop()
	<-ended
}

// eat lets unknown clients spend a part of an account's limit in some queues: so
// many requests a second, evenly, whatever is answered. ate is how many a second were served since.
func (w *limitsWorld) eat(ctx context.Context, account string, perSecond float64, queues ...string) (ate func() float64) {
	w.t.Helper()
	const clients = 20
	var served atomic.Int64
	st, began := w.open(account, "unknown"), time.Now()
	for i := range clients {
		q := st.Queue(queues[i%len(queues)])
		if err := q.Create(ctx); err != nil && !storage.Is(err, storage.Exists) {
			w.t.Fatal(err)
		}
		go func() {
			waits.Wait(ctx, time.Duration(i)*7919*time.Microsecond) // not all in one nanosecond
			for waits.Wait(ctx, time.Duration(clients/perSecond*float64(time.Second))) {
				go func() {
					if _, err := q.Count(ctx); err == nil {
						served.Add(1)
					}
				}()
			}
		}()
	}
	return func() float64 { return float64(served.Load()) / time.Since(began).Seconds() }
}
