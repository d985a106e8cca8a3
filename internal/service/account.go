package service

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// account is a storage account whose credential may change while it is in use. Requests that were
// begun go on with the old one.
type account struct {
	name  string
	place string
	now   atomic.Pointer[opened]
	keys  *Keys
	// looked is when a refusal last had the credentials read again; Keys.looks guards it.
	looked time.Time
}

// opened is an account with one credential.
type opened struct {
	storage.Account
	by pump.Account // how it was opened
}

func (a *account) Name() string { return a.name }

// Place tells whether two handles are of one account; see package azure.
func (a *account) Place() string { return a.place }

func (a *account) Queue(name string) storage.Queue {
	open := func(o *opened) storage.Queue { return o.Queue(name) }
	return &queue{name: name, handles: handles[storage.Queue]{of: a, open: open}}
}

func (a *account) Table(name string) storage.Table {
	open := func(o *opened) storage.Table { return o.Table(name) }
	return &table{name: name, handles: handles[storage.Table]{of: a, open: open}}
}

func (a *account) Container(name string) storage.Container {
	open := func(o *opened) storage.Container { return o.Container(name) }
	return &container{name: name, handles: handles[storage.Container]{of: a, open: open}}
}

func (a *account) Queues(ctx context.Context, prefix string) (names []string, err error) {
	of := a.now.Load()
	if names, err = of.Queues(ctx, prefix); a.another(of, err) {
		names, err = a.now.Load().Queues(ctx, prefix)
	}
	return names, err
}

// another reports whether the credential of a refused request has changed by now. Then the request
// should be made once more, which no budget counts, so that a rotated key does not make requests
// wait. A service that refuses has not acted.
func (a *account) another(of *opened, err error) bool {
	if err == nil || !storage.Is(err, storage.Auth) {
		return false
	}
	if a.now.Load() == of {
		a.keys.refused(a, of)
	}
	return a.now.Load() != of
}

// handles gives a queue, table or container of an account by the present credential.
type handles[T any] struct {
	of   *account
	open func(*opened) T
	kept atomic.Pointer[handle[T]]
}

// handle is a queue, table or container of an account as it was opened.
type handle[T any] struct {
	of *opened
	it T
}

// current gives the handle by the account's present credential, and keeps it until the credential
// changes.
func (hs *handles[T]) current() *handle[T] {
	now := hs.of.now.Load()
	h := hs.kept.Load()
	if h == nil || h.of != now {
		h = &handle[T]{now, hs.open(now)}
		hs.kept.Store(h)
	}
	return h
}

// do makes a request, and once more if its credential has changed by then.
func (hs *handles[T]) do(request func(T) error) error {
	h := hs.current()
	err := request(h.it)
	if hs.of.another(h.of, err) {
		err = request(hs.current().it)
	}
	return err
}

// give is do for a request that gives something.
func give[T, R any](hs *handles[T], request func(T) (R, error)) (got R, err error) {
	err = hs.do(func(it T) (err error) {
		got, err = request(it)
		return err
	})
	return got, err
}

type queue struct {
	name string
	handles[storage.Queue]
}

func (q *queue) Name() string { return q.name }

func (q *queue) Create(ctx context.Context) error {
	return q.do(func(it storage.Queue) error { return it.Create(ctx) })
}

func (q *queue) Drop(ctx context.Context) error {
	return q.do(func(it storage.Queue) error { return it.Drop(ctx) })
}

func (q *queue) Put(
	ctx context.Context, text []byte, delay time.Duration,
) (storage.Receipt, error) {
	return give(&q.handles, func(it storage.Queue) (storage.Receipt, error) {
		return it.Put(ctx, text, delay)
	})
}

func (q *queue) Get(
	ctx context.Context, most int, visibility time.Duration,
) ([]storage.Message, error) {
	return give(&q.handles, func(it storage.Queue) ([]storage.Message, error) {
		return it.Get(ctx, most, visibility)
	})
}

func (q *queue) Peek(ctx context.Context, most int) ([]storage.Message, error) {
	return give(&q.handles, func(it storage.Queue) ([]storage.Message, error) {
		return it.Peek(ctx, most)
	})
}

func (q *queue) Renew(
	ctx context.Context, r storage.Receipt, visibility time.Duration,
) (storage.Receipt, error) {
	return give(&q.handles, func(it storage.Queue) (storage.Receipt, error) {
		return it.Renew(ctx, r, visibility)
	})
}

func (q *queue) Replace(
	ctx context.Context, r storage.Receipt, text []byte, visibility time.Duration,
) (storage.Receipt, error) {
	return give(&q.handles, func(it storage.Queue) (storage.Receipt, error) {
		return it.Replace(ctx, r, text, visibility)
	})
}

func (q *queue) Delete(ctx context.Context, r storage.Receipt) error {
	return q.do(func(it storage.Queue) error { return it.Delete(ctx, r) })
}

func (q *queue) Count(ctx context.Context) (int64, error) {
	return give(&q.handles, func(it storage.Queue) (int64, error) { return it.Count(ctx) })
}

func (q *queue) Clear(ctx context.Context) error {
	return q.do(func(it storage.Queue) error { return it.Clear(ctx) })
}

type table struct {
	name string
	handles[storage.Table]
}

func (t *table) Name() string { return t.name }

func (t *table) Create(ctx context.Context) error {
	return t.do(func(it storage.Table) error { return it.Create(ctx) })
}

func (t *table) Drop(ctx context.Context) error {
	return t.do(func(it storage.Table) error { return it.Drop(ctx) })
}

func (t *table) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	return give(&t.handles, func(it storage.Table) (storage.Entity, error) {
		return it.Read(ctx, partition, row)
	})
}

func (t *table) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	return give(&t.handles, func(it storage.Table) (storage.ETag, error) { return it.Write(ctx, w) })
}

func (t *table) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	return give(&t.handles, func(it storage.Table) ([]storage.ETag, error) {
		return it.Transact(ctx, writes)
	})
}

// Query does not repeat itself: yielded rows must not come twice. Its caller's retry finds the
// present credential.
func (t *table) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return repeatless(&t.handles, func(it storage.Table) iter.Seq2[storage.Entity, error] {
		return it.Query(ctx, q)
	})
}

type container struct {
	name string
	handles[storage.Container]
}

func (c *container) Name() string { return c.name }

func (c *container) Create(ctx context.Context) error {
	return c.do(func(it storage.Container) error { return it.Create(ctx) })
}

func (c *container) Put(
	ctx context.Context, name string, body []byte, metadata map[string]string,
) error {
	return c.do(func(it storage.Container) error { return it.Put(ctx, name, body, metadata) })
}

func (c *container) Get(
	ctx context.Context, name string, offset, length int64,
) (storage.Blob, error) {
	return give(&c.handles, func(it storage.Container) (storage.Blob, error) {
		return it.Get(ctx, name, offset, length)
	})
}

func (c *container) Delete(ctx context.Context, name string) error {
	return c.do(func(it storage.Container) error { return it.Delete(ctx, name) })
}

// List does not repeat itself, as Query of a table.
func (c *container) List(ctx context.Context, prefix, from string) iter.Seq2[storage.Blob, error] {
	return repeatless(&c.handles, func(it storage.Container) iter.Seq2[storage.Blob, error] {
		return it.List(ctx, prefix, from)
	})
}

// repeatless is give for a request that gives a sequence.
func repeatless[T, R any](hs *handles[T], of func(T) iter.Seq2[R, error]) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		h := hs.current()
		for got, err := range of(h.it) {
			_ = hs.of.another(h.of, err)
			if !yield(got, err) {
				return
			}
		}
	}
}
