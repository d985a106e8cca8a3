package testworld

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

// World is simulated accounts with a workload in them, in a bubble of virtual
// time. The real driver talks to the real wire protocol.
type World struct {
	many int // runs made by ManyRun
	T    *testing.T
	Sim  *azsim.Sim
	Cfg  pump.Config // of the process that puts; has its defaults
	Run  pump.RunID
	runs byte              // made so far
	Ns   map[uint32]uint64 // next n of each segment
	Log  *bytes.Buffer     // of the processors, guarded by mu
	Mu   sync.Mutex

	Pinned   int           // Config.Segments of every process
	delivery pump.Delivery // and Config.Delivery
	Engine   sim.Config    // and what its accounts bring
	// Seeding makes histories a function of the seed; nil: they are not.
	Seeding func(instance string) sim.Seeding
}

// In runs a test in a world; spec says more of the workload besides its queues.
func In(
	t *testing.T, spec workload.Spec, accounts, qs int, change func(*azsim.Config),
	test func(t *testing.T, w *World),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sc := azsim.Config{Seed: 1, Latency: 10 * time.Millisecond}
		for i := range accounts {
			sc.Accounts = append(sc.Accounts, azsim.Account{Name: "account" + string(rune('a'+i))})
		}
		if change != nil {
			change(&sc)
		}
		w := &World{
			T: t, Sim: azsim.New(sc), Ns: map[uint32]uint64{}, Log: new(bytes.Buffer),
			Engine: sim.Config{Lanes: 2}, delivery: pump.Delivery(spec.Delivery),
		}
		if spec.Shared {
			w.Pinned = pump.Shared
		}
		cfg, err := setup.Complete(w.Config("putter", qs))
		proof.Must(t, err)
		w.Cfg = cfg.Config
		f := queues.Open(&w.Cfg)
		spec.Name, spec.Shards, spec.Delivery = cfg.Workload, setup.Shards(w.Cfg), string(cfg.Delivery)
		proof.Must(t, proof.ErrOf(workload.Ensure(t.Context(), f.Control, spec)))
		var qs []*queues.Queue
		for _, s := range setup.Shards(w.Cfg) {
			sh, err := f.Queue(s.Account, s.Queue)
			proof.Must(t, err)
			qs = append(qs, sh)
		}
		for _, name := range f.Names() {
			qs = append(qs, f.Account(name).Poison)
		}
		g, ctx := errgroup.WithContext(t.Context())
		g.SetLimit(16)
		for _, q := range qs {
			g.Go(func() error { return queues.Create(ctx, q, waits.Jitter(cfg.Instance), cfg.Log) })
		}
		proof.Must(t, g.Wait())
		w.Run = w.NewRun()
		t.Cleanup(func() {
			if t.Failed() {
				w.Mu.Lock()
				defer w.Mu.Unlock()
				t.Logf("faults:\n%slog:\n%s", w.Sim.Faults(), w.Log)
			}
		})
		test(t, w)
	})
}

// NewRun makes the row of another run.
func (w *World) NewRun() pump.RunID {
	w.T.Helper()
	w.runs++ // not a random one: those that list runs read its row (P9)
	id := pump.RunID{0: 0xf0, 15: w.runs}
	proof.Must(w.T, w.AllRuns().Create(w.T.Context(), workload.Run{ID: id}))
	return id
}

// Config is the configuration of one instance.
func (w *World) Config(instance string, queues int) pump.Config {
	c := pump.Config{
		Workload: "work", Instance: instance, Segments: w.Pinned, Delivery: w.delivery,
		Retention: w.Cfg.Retention,
		// A real one looks up names, and the resolver keeps a channel of the bubble of its first use.
		Nudge: func(context.Context, pump.Nudge) error { return ErrFlop },
		Log:   slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, name := range w.Sim.Accounts() {
		st, err := azure.Open(azure.Options{
			ConnectionString: w.Sim.ConnectionString(name), Transport: w.Sim.Transport().As(instance),
		})
		proof.Must(w.T, err)
		c.Accounts = append(c.Accounts, pump.Account{Storage: st, Queues: queues})
	}
	engine := sim.In(&c)
	if *engine = w.Engine; w.Seeding != nil {
		engine.Seeding = w.Seeding(instance)
	}
	return c
}

// Write takes the processors' logs.
func (w *World) Write(p []byte) (int, error) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Log.Write(p)
}

// Logged is how often a text stands in the log.
func (w *World) Logged(what string) int {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return strings.Count(w.Log.String(), what)
}

// Queue is a queue of the world.
func (w *World) Queue(account, queue string) storage.Queue {
	for _, a := range w.Cfg.Accounts {
		if a.Name == account {
			return a.Storage.Queue(queue)
		}
	}
	w.T.Fatalf("no account %q", account)
	return nil
}

// Envelope makes the text of an envelope of n tasks of a segment. The body of
// each task is its identity.
func (w *World) Envelope(segment uint32, n int) []byte {
	w.T.Helper()
	ns := make([]uint64, n)
	for i := range ns {
		ns[i] = w.Ns[segment]
		w.Ns[segment]++
	}
	return w.Text(segment, nil, ns...)
}

// Put puts envelopes of n tasks each into a queue, of a segment of its own.
func (w *World) Put(account, queue string, envelopes, n int) {
	w.T.Helper()
	for range envelopes {
		w.PutText(account, queue, w.Envelope(shardmap.Segment([]byte(account+queue), 64), n))
	}
}

// PutText puts a text into a queue and gives the id of its message.
func (w *World) PutText(account, queue string, text []byte) string {
	w.T.Helper()
	r, err := w.Queue(account, queue).Put(w.T.Context(), text, 0)
	proof.Must(w.T, err)
	return r.ID
}

// Spread puts envelopes of n tasks each into every queue and says how many tasks that is.
func (w *World) Spread(envelopes, n int) (tasks int) {
	w.T.Helper()
	for _, s := range setup.Shards(w.Cfg) {
		w.Put(s.Account, s.Queue, envelopes, n)
		tasks += envelopes * n
	}
	return tasks
}

// Count is how many messages a queue holds, the invisible ones included.
func (w *World) Count(account, queue string) int {
	w.T.Helper()
	n, err := w.Queue(account, queue).Count(w.T.Context())
	proof.Must(w.T, err)
	return int(n)
}

// Left is how many messages all work queues hold.
func (w *World) Left() (n int) {
	w.T.Helper()
	for _, s := range setup.Shards(w.Cfg) {
		n += w.Count(s.Account, s.Queue)
	}
	return n
}

// Visible is how many messages can be got from a queue at once, up to 32.
func (w *World) Visible(account, queue string) int {
	w.T.Helper()
	ms, err := w.Queue(account, queue).Peek(w.T.Context(), storage.MaxGet)
	proof.Must(w.T, err)
	return len(ms)
}

// Poisoned gives the headers of the messages in an account's poison queue.
func (w *World) Poisoned(account string) (texts [][]byte) {
	w.T.Helper()
	ms, err := w.Queue(account, workload.PoisonQueue(w.Cfg.Workload)).Peek(w.T.Context(),
		storage.MaxGet)
	proof.Must(w.T, err)
	for _, m := range ms {
		texts = append(texts, m.Text)
	}
	return texts
}

// Cause is the cause of the only message in an account's poison queue.
func (w *World) Cause(account string) (codec.Header, codec.Cause) {
	w.T.Helper()
	texts := w.Poisoned(account)
	if len(texts) != 1 {
		w.T.Fatalf("%d messages in the poison queue, want 1", len(texts))
	}
	h, err := codec.ReadHeader(texts[0])
	proof.Must(w.T, err)
	if h.Cause == nil {
		w.T.Fatal("the message has no cause")
	}
	return h, *h.Cause
}

// Requests is how many requests of an operation the server has had, from all clients.
func (w *World) Requests(operation string) int { return int(w.Sim.Stats().Count("", operation)) }

// Fault injects a rule for the processor named "p".
func (w *World) Fault(r azsim.Rule, operations ...string) *azsim.Injection {
	r.Operations = operations
	r.Instance = cmp.Or(r.Instance, "p")
	return w.Sim.Inject(r)
}

// Incompressible makes printable text that no compression makes smaller.
func Incompressible(n int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" +
		"0123456789!#$%()*+,-./:;=?@[]^_`{|}~"
	out := make([]byte, n)
	j := waits.Jitter("incompressible")
	for i := range out {
		out[i] = letters[int(j.Float("letter", "", uint64(i))*float64(len(letters)))]
	}
	return out
}

// Operator is the configuration of the user who types commands.
func (w *World) Operator() pump.Config {
	c := w.Config("operator", w.Cfg.Accounts[0].Queues)
	c.Workload = w.Cfg.Workload
	return c
}

// PutSuspects puts n single tasks of a segment of the world's run, numbered from 0, each with
// so many attempts written down and delivered suspiciously often since.
func (w *World) PutSuspects(segment uint32, n int, attempts uint32) {
	w.T.Helper()
	account, queue := w.Home(segment)
	for i := range n {
		w.PutText(account, queue, w.Text(segment, func(h *codec.Header) {
			h.Attempt = attempts
		}, uint64(i)))
	}
	w.PassAround(account, queue, int(attempts)+suspectAfterAttempts)
}

// PassAround gets everything that is visible in a queue n times and releases it, as owners
// of other segments do.
func (w *World) PassAround(account, queue string, n int) {
	w.T.Helper()
	q := w.Queue(account, queue)
	for range n {
		ms, err := q.Get(w.T.Context(), storage.MaxGet, time.Minute)
		proof.Must(w.T, err)
		for _, m := range ms {
			proof.Must(w.T, proof.ErrOf(q.Renew(w.T.Context(), m.Receipt, 0)))
		}
	}
}

// suspectAfterAttempts is how often a message is delivered before a processor suspects it.
const suspectAfterAttempts = 3
