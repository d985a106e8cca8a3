package engine

import (
	"bytes"
	"fmt"
	"log/slog"
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
	"github.com/queuepump/queuepump/pump/internal/private"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

// baseWorld is simulated accounts with a workload in them, in a bubble of virtual
// time. The real driver talks to the real wire protocol.
type baseWorld struct {
	many int // runs made by manyRun
	t    *testing.T
	sim  *azsim.Sim
	cfg  pump.Config // of whoever puts; has its defaults
	run  pump.RunID
	runs byte              // made so far
	ns   map[uint32]uint64 // next n of each segment
	log  *bytes.Buffer     // of the processors, guarded by mu
	mu   sync.Mutex

	pinned   int            // Config.Segments of everybody
	delivery pump.Delivery  // and Config.Delivery
	private  private.Config // and Config.Private
	turns    *turns         // makes histories a function of the seed; nil: they are not
}

// baseInWorldOf is baseInWorld with what spec says of the workload besides its queues.
func baseInWorldOf(t *testing.T, spec workload.Spec, accounts, qs int, change func(*azsim.Config), test func(t *testing.T, w *baseWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sc := azsim.Config{Seed: 1, Latency: 10 * time.Millisecond}
		for i := range accounts {
			sc.Accounts = append(sc.Accounts, azsim.Account{Name: "account" + string(rune('a'+i))})
		}
		if change != nil {
			change(&sc)
		}
		w := &baseWorld{t: t, sim: azsim.New(sc), ns: map[uint32]uint64{}, log: new(bytes.Buffer), private: private.Config{Lanes: 2}, delivery: pump.Delivery(spec.Delivery)}
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

func (w *baseWorld) newRun() pump.RunID {
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
func (w *baseWorld) config(instance string, queues int) pump.Config {
	c := pump.Config{Workload: "work", Instance: instance, Segments: w.pinned, Delivery: w.delivery, Retention: w.cfg.Retention, Log: slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	c.Private = w.private
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
func (w *baseWorld) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *baseWorld) logged(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.log.String(), what)
}

func (w *baseWorld) queue(account, queue string) storage.Queue {
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
func (w *baseWorld) envelope(segment uint32, n int) []byte {
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
func (w *baseWorld) put(account, queue string, envelopes, n int) {
	w.t.Helper()
	for range envelopes {
		w.putText(account, queue, w.envelope(shardmap.Segment([]byte(account+queue), 64), n))
	}
}

func (w *baseWorld) putText(account, queue string, text []byte) string {
	w.t.Helper()
	r, err := w.queue(account, queue).Put(w.t.Context(), text, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.ID
}

// spread puts envelopes of n tasks each into every queue and says how many tasks that is.
func (w *baseWorld) spread(envelopes, n int) (tasks int) {
	w.t.Helper()
	for _, s := range settings.Shards(w.cfg) {
		w.put(s.Account, s.Queue, envelopes, n)
		tasks += envelopes * n
	}
	return tasks
}

// count is how many messages a queue holds, the invisible ones included.
func (w *baseWorld) count(account, queue string) int {
	w.t.Helper()
	n, err := w.queue(account, queue).Count(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return int(n)
}

// left is how many messages all work queues hold.
func (w *baseWorld) left() (n int) {
	w.t.Helper()
	for _, s := range settings.Shards(w.cfg) {
		n += w.count(s.Account, s.Queue)
	}
	return n
}

// visible is how many messages can be got from a queue at once, up to 32.
func (w *baseWorld) visible(account, queue string) int {
	w.t.Helper()
	ms, err := w.queue(account, queue).Peek(w.t.Context(), storage.MaxGet)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(ms)
}

// poisoned gives the headers of the messages in an account's poison queue.
func (w *baseWorld) poisoned(account string) (texts [][]byte) {
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
func (w *baseWorld) cause(account string) (codec.Header, codec.Cause) {
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
func (w *baseWorld) requests(operation string) int { return int(w.sim.Stats().Count("", operation)) }

// fault injects a rule for the processor named "p".
func (w *baseWorld) fault(r azsim.Rule, operations ...string) *azsim.Injection {
	r.Operations = operations
	if r.Instance == "" {
		r.Instance = "p"
	}
	return w.sim.Inject(r)
}

// incompressible makes printable text that no compression makes smaller.
func incompressible(n int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%()*+,-./:;=?@[]^_`{|}~"
	out := make([]byte, n)
	j := backoff.Jitter("incompressible")
	for i := range out {
		out[i] = letters[int(j.Float("letter", "", uint64(i))*float64(len(letters)))]
	}
	return out
}

// operator is the configuration of whoever types commands.
func (w *baseWorld) operator() pump.Config {
	c := w.config("operator", w.cfg.Accounts[0].Queues)
	c.Workload = w.cfg.Workload
	return c
}

// putSuspects puts n single tasks of a segment of the world's run, numbered from 0, each with
// so many attempts written down and delivered suspiciously often since.
func (w *baseWorld) putSuspects(segment uint32, n int, attempts uint32) {
	w.t.Helper()
	account, queue := w.home(segment)
	for i := range n {
		w.putText(account, queue, w.text(segment, func(h *codec.Header) { h.Attempt = attempts }, uint64(i)))
	}
	w.passAround(account, queue, int(attempts)+suspectAfterAttempts)
}

// passAround gets everything that is visible in a queue n times and releases it, as owners
// of other segments do.
func (w *baseWorld) passAround(account, queue string, n int) {
	w.t.Helper()
	q := w.queue(account, queue)
	for range n {
		ms, err := q.Get(w.t.Context(), storage.MaxGet, time.Minute)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, m := range ms {
			if _, err := q.Renew(w.t.Context(), m.Receipt, 0); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// suspectAfterAttempts is how often a message is delivered before a processor suspects it.
const suspectAfterAttempts = 3
