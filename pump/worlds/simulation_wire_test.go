package worlds

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// simWire is a storage account as one simulated process reaches it: the driver that ships
// over the simulated service, and between the two what it is to be a process that
// is stopped or dies.
//
// A request is on its way whatever becomes of the sender: each request runs in a
// goroutine of its own under a context of its own, and acts although its caller
// has given up or is dead. A dead process gets no answer and sends nothing more.
type simWire struct {
	storage.Account
	by *simProcess
}

func (w *simWire) Queue(name string) storage.Queue {
	return &simQueue{w.Account.Queue(name), w.by, w.Name() + "/" + name}
}

func (w *simWire) Table(name string) storage.Table {
	return &simTable{w.Account.Table(name), w.by, w.Name()}
}

var errSimLost = errors.New("no answer came")

// simSent is for how long a request that its sender has given up goes on by itself.
const simSent = 30 * time.Second

// simSpread is over what time requests of one instant are spread. Which of them the
// service sees first must not depend on which goroutine ran first (P9).
const simSpread = 20 * time.Microsecond

// simRequest says what a request is: the kind of it that a process may die at, what it
// is about, and what tells it from others that this process may send in the same instant.
type simRequest struct {
	op, object, key string
	step            string // one of simSteps, if it is one
}

// sendSim carries one request.
func sendSim[T any](p *simProcess, ctx context.Context, r simRequest, act func(context.Context) (T, error)) (T, error) {
	n := p.count(r.op + " " + r.object + " " + r.key)
	began, at := p.world.now(), time.Now()
	answer, err := carrySim(p, ctx, r, n, act)
	if err == nil && slices.Contains([]string{"read", "query", "write", "transact"}, r.op) {
		p.hears(at)
	}
	p.world.sent(p, began, r, n, err)
	return answer, err
}

// carrySim is the sender's side: it sends, and waits for the answer or its context.
func carrySim[T any](p *simProcess, ctx context.Context, r simRequest, n int, act func(context.Context) (T, error)) (zero T, _ error) {
	id := r.op + r.object + r.key
	notSent := func() error { return storage.NotSent(ctx, r.op, "", r.object) }
	if ctx.Err() == nil {
		time.Sleep(time.Duration(p.roll(uint64(simSpread), "spread", id, n)))
	}
	paused := p.stopped(id)
	switch {
	case p.over():
		<-ctx.Done() // nothing waits for this
		return zero, notSent()
	case ctx.Err() != nil && (!paused || p.roll(2, "wakes", id, n) == 0):
		// Otherwise it was stopped in the middle of sending, and sends the rest
		// when it goes on, although the time for it is over.
		return zero, notSent()
	case p.reaches(r, false):
		<-ctx.Done()
		return zero, notSent()
	}
	paused = p.stopped(id) || paused // it may have reached where it is to stand still
	if paused {
		p.world.count(simSentLate)
	}
	type reply struct {
		answer T
		err    error
	}
	replies := make(chan reply, 1)
	p.world.goes.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), simSent)
		defer cancel()
		var a reply
		a.answer, a.err = act(ctx)
		p.reaches(r, true)
		replies <- a
	})
	var a reply
	answered := false
	select {
	case a = <-replies:
		answered = true
	case <-ctx.Done():
	}
	if p.stopped(id) && !answered {
		// The answer and the end of the caller's patience are both there when the
		// process goes on; it sees either of them first.
		select {
		case a = <-replies:
			answered = p.roll(4, "awake", id, n) > 0
		default:
		}
	}
	if p.over() {
		<-ctx.Done()
		answered = false
	}
	if !answered {
		return zero, &storage.Error{Code: storage.MaybeDone, Op: r.op, Object: r.object, Index: -1, Err: errors.Join(errSimLost, context.Cause(ctx))}
	}
	return a.answer, a.err
}

// runSim is sendSim for a request without an answer to give.
func runSim(p *simProcess, ctx context.Context, r simRequest, act func(context.Context) error) error {
	_, err := sendSim(p, ctx, r, func(ctx context.Context) (struct{}, error) { return struct{}{}, act(ctx) })
	return err
}

type simQueue struct {
	storage.Queue
	by     *simProcess
	object string
}

func (q *simQueue) request(op, key string) simRequest {
	r := simRequest{op: op, object: q.object, key: key}
	if op == "put" && strings.HasSuffix(q.object, "/"+workload.PoisonQueue("work")) {
		r.step = "poison"
	}
	return r
}

func (q *simQueue) Create(ctx context.Context) error {
	return runSim(q.by, ctx, q.request("create", ""), q.Queue.Create)
}

func (q *simQueue) Put(ctx context.Context, text []byte, delay time.Duration) (storage.Receipt, error) {
	text = append([]byte(nil), text...) // the caller may go on, and use it again, before the request has left
	return sendSim(q.by, ctx, q.request("put", simDigest(text)), func(ctx context.Context) (storage.Receipt, error) {
		r, err := q.Queue.Put(ctx, text, delay)
		if err == nil {
			q.puts(text)
		}
		return r, err
	})
}

func (q *simQueue) Get(ctx context.Context, limit int, visibility time.Duration) ([]storage.Message, error) {
	return sendSim(q.by, ctx, q.request("get", ""), func(ctx context.Context) ([]storage.Message, error) {
		ms, err := q.Queue.Get(ctx, limit, visibility)
		q.by.takes(ms)
		q.by.world.got(q, ms)
		return ms, err
	})
}

func (q *simQueue) Renew(ctx context.Context, r storage.Receipt, visibility time.Duration) (storage.Receipt, error) {
	defer q.owns("renew", r)()
	return sendSim(q.by, ctx, q.request("renew", r.ID), func(ctx context.Context) (storage.Receipt, error) {
		return q.Queue.Renew(ctx, r, visibility)
	})
}

func (q *simQueue) Replace(ctx context.Context, r storage.Receipt, text []byte, visibility time.Duration) (storage.Receipt, error) {
	text = append([]byte(nil), text...)
	defer q.owns("replace", r)()
	return sendSim(q.by, ctx, q.request("replace", r.ID), func(ctx context.Context) (storage.Receipt, error) {
		return q.Queue.Replace(ctx, r, text, visibility)
	})
}

func (q *simQueue) Delete(ctx context.Context, r storage.Receipt) error {
	defer q.owns("delete", r)()
	return runSim(q.by, ctx, q.request("delete", r.ID), func(ctx context.Context) error { return q.Queue.Delete(ctx, r) })
}

// owns notes that a request with a message's receipt is under way. There must not be two of
// one process: each makes the other's receipt stale (window 15).
func (q *simQueue) owns(op string, r storage.Receipt) (over func()) {
	w, key := q.by.world, q.by.String()+" "+q.object+"/"+r.ID+" "+r.PopReceipt
	w.mu.Lock()
	other := w.judge.owning[key]
	w.judge.owning[key] = op
	w.mu.Unlock()
	if other != "" && !q.by.over() {
		w.wrongf("%s: %s while a %s is under way", key, op, other)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.judge.owning, key)
	}
}

func (q *simQueue) Count(ctx context.Context) (int64, error) {
	return sendSim(q.by, ctx, q.request("count", ""), q.Queue.Count)
}

func (q *simQueue) Drop(ctx context.Context) error {
	r := q.request("delete queue", "")
	r.step = "drop"
	return runSim(q.by, ctx, r, q.Queue.Drop)
}

// simDigest names a text in a history.
func simDigest(text []byte) string {
	const hex = "0123456789abcdef"
	sum := xxhash.Sum64(text)
	var b [8]byte
	for i := range b {
		b[i] = hex[sum&15]
		sum >>= 4
	}
	return string(b[:])
}

// rowRequest says what the writing of a row is, in which of all steps (P2.1, P2.2, P3.3).
func rowRequest(op string, w storage.Write) simRequest {
	r := simRequest{op: op, object: w.Entity.Partition, key: w.Entity.Row}
	has := func(property string) bool { return w.Entity.Properties[property] != nil }
	switch {
	case strings.HasSuffix(r.object, ".election") && has("Checkpoint0"):
		r.step = "checkpoint"
	case strings.HasSuffix(r.object, ".runs"):
		sealed, broken := string(workload.RunSealed), string(workload.RunBroken)
		state, _ := w.Entity.Properties["State"].(string)
		r.step = map[string]string{sealed: "seal", broken: "break"}[state]
	case strings.Contains(r.object, ".ledger.") && has("Counts"):
		r.step = "commit"
	case strings.HasSuffix(r.object, ".results") && has("Index0"):
		r.step = "index"
	case strings.HasSuffix(r.object, ".results") && has("Last"):
		r.step = "note"
	case r.object == "work" && r.key == cluster.WorkloadKey && has("Deleting"):
		r.step = "mark"
	}
	return r
}

type simTable struct {
	storage.Table
	by      *simProcess
	account string
}

// key tells a row from that of the same name in another account: who starts and who deletes looks
// into all of them at once. The control account's have their names alone.
func (t *simTable) key(row string) string {
	if t.account == t.by.world.sim.Accounts()[0] {
		return row
	}
	return t.account + "/" + row
}

// sendRow is sendSim to a table, which may be slow: half of its time passes before the request
// acts.
func sendRow[T any](p *simProcess, ctx context.Context, r simRequest, act func(context.Context) (T, error)) (T, error) {
	slow := p.world.plan.tables
	if slow == 0 {
		return sendSim(p, ctx, r, act)
	}
	n := p.count("slow " + r.op + " " + r.object + " " + r.key)
	half := time.Duration(p.roll(uint64(slow), "slow "+r.op, r.object+r.key, n)) / 2
	return sendSim(p, ctx, r, func(ctx context.Context) (T, error) {
		time.Sleep(half)
		answer, err := act(ctx)
		time.Sleep(half)
		return answer, err
	})
}

func (t *simTable) Create(ctx context.Context) error {
	return runSim(t.by, ctx, simRequest{op: "create", object: t.Name()}, t.Table.Create)
}

func (t *simTable) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	return sendRow(t.by, ctx, simRequest{op: "read", object: partition, key: t.key(row)}, func(ctx context.Context) (storage.Entity, error) {
		return t.Table.Read(ctx, partition, row)
	})
}

func (t *simTable) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	r := rowRequest("write", w)
	if r.step == "mark" {
		t.by.marks(ctx)
	}
	r.key = t.key(r.key)
	return sendRow(t.by, ctx, r, func(ctx context.Context) (storage.ETag, error) {
		tag, err := t.Table.Write(ctx, w)
		t.by.world.wrote([]storage.Write{w}, err)
		return tag, err
	})
}

func (t *simTable) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	return sendRow(t.by, ctx, rowRequest("transact", writes[0]), func(ctx context.Context) ([]storage.ETag, error) {
		tags, err := t.Table.Transact(ctx, writes)
		t.by.world.wrote(writes, err)
		return tags, err
	})
}

// Query gives the answer as a whole: its pages come from several moments, but a
// stopped process is stopped before the first or after the last.
func (t *simTable) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		rows, err := sendRow(t.by, ctx, simRequest{op: "query", object: q.Partition, key: t.key(q.From)}, func(ctx context.Context) (rows []storage.Entity, _ error) {
			for e, err := range t.Table.Query(ctx, q) {
				if err != nil {
					return nil, err
				}
				rows = append(rows, e)
			}
			return rows, nil
		})
		for _, e := range rows {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(storage.Entity{}, err)
		}
	}
}
