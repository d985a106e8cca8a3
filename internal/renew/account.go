package renew

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// account is a storage account whose credential may become another while it is in use. Requests
// that were begun go on with the one before.
type account struct {
	name    string
	place   string
	now     atomic.Pointer[opened]
	refused func() // told of each request whose credential was not good; it must not wait
}

// opened is an account with one credential.
type opened struct {
	storage.Account
	by pump.Account // how it was opened
}

func (a *account) Name() string { return a.name }

// Place says that two handles are of one account; see package azure.
func (a *account) Place() string { return a.place }

func (a *account) Queue(name string) storage.Queue { return &queue{of: a, name: name} }

func (a *account) Table(name string) storage.Table { return &table{of: a, name: name} }

func (a *account) Queues(ctx context.Context, prefix string) ([]string, error) {
	names, err := a.now.Load().Queues(ctx, prefix)
	return names, a.heard(err)
}

// heard passes on how a request ended.
func (a *account) heard(err error) error {
	if err != nil && storage.Is(err, storage.Auth) {
		a.refused()
	}
	return err
}

// handle is a queue or table of an account as it was opened.
type handle[T any] struct {
	of *opened
	it T
}

// current gives the handle by the account's credential of now, and keeps it until there is another.
func current[T any](kept *atomic.Pointer[handle[T]], of *account, open func(*opened) T) T {
	now := of.now.Load()
	h := kept.Load()
	if h == nil || h.of != now {
		h = &handle[T]{now, open(now)}
		kept.Store(h)
	}
	return h.it
}

type queue struct {
	of   *account
	name string
	kept atomic.Pointer[handle[storage.Queue]]
}

func (q *queue) now() storage.Queue {
	return current(&q.kept, q.of, func(o *opened) storage.Queue { return o.Queue(q.name) })
}

func (q *queue) Name() string { return q.name }

func (q *queue) Create(ctx context.Context) error { return q.of.heard(q.now().Create(ctx)) }

func (q *queue) Drop(ctx context.Context) error { return q.of.heard(q.now().Drop(ctx)) }

func (q *queue) Put(
	ctx context.Context, text []byte, delay time.Duration,
) (storage.Receipt, error) {
	r, err := q.now().Put(ctx, text, delay)
	return r, q.of.heard(err)
}

func (q *queue) Get(
	ctx context.Context, most int, visibility time.Duration,
) ([]storage.Message, error) {
	ms, err := q.now().Get(ctx, most, visibility)
	return ms, q.of.heard(err)
}

func (q *queue) Peek(ctx context.Context, most int) ([]storage.Message, error) {
	ms, err := q.now().Peek(ctx, most)
	return ms, q.of.heard(err)
}

func (q *queue) Renew(
	ctx context.Context, r storage.Receipt, visibility time.Duration,
) (storage.Receipt, error) {
	next, err := q.now().Renew(ctx, r, visibility)
	return next, q.of.heard(err)
}

func (q *queue) Replace(
	ctx context.Context, r storage.Receipt, text []byte, visibility time.Duration,
) (storage.Receipt, error) {
	next, err := q.now().Replace(ctx, r, text, visibility)
	return next, q.of.heard(err)
}

func (q *queue) Delete(ctx context.Context, r storage.Receipt) error {
	return q.of.heard(q.now().Delete(ctx, r))
}

func (q *queue) Count(ctx context.Context) (int64, error) {
	n, err := q.now().Count(ctx)
	return n, q.of.heard(err)
}

func (q *queue) Clear(ctx context.Context) error { return q.of.heard(q.now().Clear(ctx)) }

type table struct {
	of   *account
	name string
	kept atomic.Pointer[handle[storage.Table]]
}

func (t *table) now() storage.Table {
	return current(&t.kept, t.of, func(o *opened) storage.Table { return o.Table(t.name) })
}

func (t *table) Name() string { return t.name }

func (t *table) Create(ctx context.Context) error { return t.of.heard(t.now().Create(ctx)) }

func (t *table) Drop(ctx context.Context) error { return t.of.heard(t.now().Drop(ctx)) }

func (t *table) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	e, err := t.now().Read(ctx, partition, row)
	return e, t.of.heard(err)
}

func (t *table) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	e, err := t.now().Write(ctx, w)
	return e, t.of.heard(err)
}

func (t *table) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	es, err := t.now().Transact(ctx, writes)
	return es, t.of.heard(err)
}

func (t *table) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		for e, err := range t.now().Query(ctx, q) {
			if !yield(e, t.of.heard(err)) {
				return
			}
		}
	}
}
