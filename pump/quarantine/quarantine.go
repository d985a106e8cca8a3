package quarantine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Quarantine is what a workload has in quarantine, in all accounts that it uses at once, drained
// ones too. It is for one goroutine.
//
// Messages are looked at by taking them: no request shows more than the first 32 of a queue. A
// method puts back the messages that it does not redrive or drop, visible, before it returns, also
// when its context has ended. Messages that a crash or a request without an answer leaves hidden
// are visible again after five minutes. Two processes that do this at the same time each see a
// part.
//
// The files follow the way of a message: this one, scan.go takes messages, judge.go says what each
// is and what can be done with it, settle.go does it.
type Quarantine struct {
	of       *setup.Session
	accounts []string      // of the configuration, that the workload uses: another one may be gone
	mapBusy  chan struct{} // capacity 1: guards of.Workload and read
	read     time.Time     // when the workload was read, by the local clock
	runs     *workload.Runs
	runBusy  chan struct{} // capacity 1: guards known
	known    map[pump.RunID]runSeen
	rows     map[string][]causeFound // causes that did not fit, by the hash of their texts
}

// Filter says which messages in quarantine are meant: those that match every field that is set. The
// zero filter means all.
type Filter struct {
	// Reasons are causes: ReasonAttempts and so on.
	Reasons []string
	// Key means only tasks of that key: from an envelope that has others too, only those are redriven
	// or dropped.
	Key []byte
	// Since and Until bound when the last attempt was made: not before Since, and before Until.
	// Without a cause they bound when the message was put there.
	Since, Until time.Time
	Run          pump.RunID
	IDs          []string // of messages
	// Limit is the most messages that are meant; 0: no limit.
	Limit int
}

// Message is a message in quarantine, as far as it can be read. Everything in
// it comes from outside: it is not fit to be printed as it is.
type Message struct {
	Account string `json:"account"`
	ID      string `json:"id"`
	// Reason is a Reason constant, or another text that stands there; empty if no cause is known.
	Reason   string `json:"reason"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"` // that put it there
	Attempts uint32 `json:"attempts"`
	// First is when the message was first put into its queue, Last when the last
	// attempt ended; nil if that is not known.
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
	// Put is when it came into quarantine, by the service's clock.
	Put        time.Time `json:"put"`
	Run        string    `json:"run,omitempty"` // empty: no distributor made it
	Segment    *uint32   `json:"segment,omitempty"`
	Generation uint32    `json:"generation"`
	Tasks      int       `json:"tasks"`
	// Matching is how many of them the filter means.
	Matching int `json:"matching"`
	// Problem is why it cannot be redriven; empty if it can.
	Problem string `json:"problem,omitempty"`

	text    []byte
	header  codec.Header
	foreign bool // a text without an envelope
	intact  bool // the header could be read
	key     []byte
	// segments of the workload
	segments int
	row      *causeFound
}

// Task is a task of a message in quarantine.
type Task struct {
	N       uint64
	Key     []byte
	ID      string
	Body    []byte
	Foreign string // the identity of a message that no distributor made; such a task has no N
}

// Text is the message as it is.
func (m *Message) Text() []byte { return slices.Clone(m.text) }

// Open unpacks the tasks of the message that the filter chooses. The error says why none can be
// read; the limits are those of a processor.
func (m *Message) Open() ([]Task, error) {
	if m.foreign {
		return []Task{{Body: m.Text(), Foreign: m.ID}}, nil
	}
	env, err := codec.Open(m.text, codec.Limits{})
	if err != nil {
		return nil, err
	}
	defer env.Release()
	var tasks []Task
	for _, t := range env.Tasks {
		key := m.keyOf(&t)
		if m.key != nil && string(key) != string(m.key) {
			continue
		}
		q := Task{N: t.N, Key: slices.Clone(key), ID: string(t.ID), Body: slices.Clone(t.Body)}
		if m.header.Run.IsZero() {
			q.Foreign, q.ID = q.ID, ""
		}
		tasks = append(tasks, q)
	}
	return tasks, nil
}

// keyOf is the key of one of the message's tasks.
func (m *Message) keyOf(t *codec.Task) []byte {
	return shardmap.KeyOf(t.Key, t.Body, m.header.Segment, m.segments)
}

// Open reads the workload. Without a workload the error is pump.ErrNoWorkload.
func Open(ctx context.Context, cfg pump.Config) (*Quarantine, error) {
	of, err := setup.Reach(cfg)
	if err != nil {
		return nil, err
	}
	q := &Quarantine{
		of: of, known: map[pump.RunID]runSeen{}, runs: of.Runs(),
		mapBusy: make(chan struct{}, 1), runBusy: make(chan struct{}, 1),
	}
	if err := q.reload(ctx); err != nil {
		return nil, err
	}
	if err := of.Check(); err != nil {
		return nil, err
	}
	used := q.of.Workload.Map.Accounts()
	q.accounts = slices.DeleteFunc(slices.Clone(q.of.Queues.Names()), func(name string) bool {
		return !used[name]
	})
	return q, nil
}

// reload reads the workload's row, whose map says where tasks belong.
func (q *Quarantine) reload(ctx context.Context) error {
	sent := time.Now()
	err := waits.Within(ctx, q.of.Load)
	if err == nil {
		q.read = sent
	}
	return q.of.Advise(ctx, err)
}

// homeOf gives the queue that a segment's messages are put into, by a map with half of its
// time left at least (P6.5).
func (q *Quarantine) homeOf(ctx context.Context, segment uint32) (*queues.Queue, error) {
	q.mapBusy <- struct{}{} // no mutex: it is held while a request is made
	defer func() { <-q.mapBusy }()
	if queues.Elapsed(q.read) >= workload.MapMaxAge/2 {
		if err := q.reload(ctx); err != nil {
			return nil, err
		}
	}
	home := q.of.Workload.Map.Shards[q.of.Workload.Map.Home(segment)]
	return q.of.Queues.Queue(home.Account, home.Queue)
}

// mapNow gives the workload as last read.
func (q *Quarantine) mapNow() *workload.Workload {
	q.mapBusy <- struct{}{}
	defer func() { <-q.mapBusy }()
	return q.of.Workload
}

// segmentOf gives the segment of a message.
func (q *Quarantine) segmentOf(m *Message) uint32 {
	if m.foreign {
		w := q.mapNow()
		key, _ := jsonline.NewForeign(jsonline.Text, w.ForeignKey).Read(m.text)
		return jsonline.ForeignSegment(m.text, key, w.Map.Segments)
	}
	return m.header.Segment
}

// List calls visit for each message that the filter means, account by account, until it
// returns false. Others do not see the messages until List returns. The
// error joins those of accounts that could not be read to their end; the others were.
func (q *Quarantine) List(ctx context.Context, f Filter, visit func(*Message) (more bool)) error {
	left := f.Limit
	return q.scan(ctx, f, storage.MaxGet, oneByOne(func(t *taken) scanVerdict {
		if left--; !visit(t.message) || left == 0 {
			return scanEnough
		}
		return scanKeep
	}))
}

// Peek shows the first 32 messages in quarantine of each of these accounts, and takes none. It
// hides nothing from others. It asks each account once, after ask has returned nil for it. The
// error is that of [Quarantine.List].
func (q *Quarantine) Peek(
	ctx context.Context, accounts []string, ask func(context.Context) error,
) ([]*Message, error) {
	if err := q.readCauses(ctx); err != nil {
		return nil, err
	}
	shown, errs := make([][]storage.Message, len(accounts)), make([]error, len(accounts))
	_ = queues.Each(ctx, accounts, func(ctx context.Context, i int, name string) (err error) {
		account := q.of.Queues.Account(name)
		if account == nil {
			return nil
		}
		if err = ask(ctx); err == nil {
			shown[i], err = account.Poison.Queue.Peek(ctx, storage.MaxGet)
		}
		if err != nil && !queues.NotThere(err) {
			errs[i] = fmt.Errorf("quarantine of account %s: %w", name, err)
		}
		return nil
	})
	var all []*Message
	for i, name := range accounts {
		for j := range shown[i] {
			all = append(all, q.judge(ctx, name, &shown[i][j], &Filter{}))
		}
	}
	return all, errors.Join(errs...)
}

// Count is the approximate number of messages in quarantine, hidden ones too, as far as the
// accounts answer: for showing how far redriving is.
func (q *Quarantine) Count(ctx context.Context) (messages int64) {
	var all atomic.Int64
	_ = queues.Each(ctx, q.accounts, func(ctx context.Context, _ int, name string) error {
		// An account that does not answer, or has no such queue, counts as empty.
		n, _ := waits.Get(ctx, q.of.Queues.Account(name).Poison.Queue.Count)
		all.Add(n)
		return nil
	})
	return all.Load()
}

var errLeftLooking = errors.New(
	"the message was taken too long ago to be settled safely; run it again",
)
