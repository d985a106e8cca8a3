// Package through gives handles of queues, tables and containers whose requests all go through one
// function: it counts them, refuses them, or makes them by another handle.
package through

import (
	"context"
	"iter"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Way makes a request, named as in an error of package storage, by a handle that it chooses: by
// none, or again after an error. Its error is that of the request. It may be called by many
// goroutines at once.
type Way[T any] func(op string, request func(T) error) error

// give is a request that gives something.
func give[T, R any](way Way[T], op string, request func(T) (R, error)) (got R, err error) {
	err = way(op, func(it T) (err error) {
		got, err = request(it)
		return err
	})
	if err != nil { // what was got is lost
		var none R
		return none, err
	}
	return got, nil
}

// each is a request that gives a sequence. Once something was given it is not made again, as that
// would be given twice.
func each[T, R any](way Way[T], op string, row func(n int) error,
	list func(T) iter.Seq2[R, error],
) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		n, more := 0, true
		var failed error
		err := way(op, func(it T) error {
			if n > 0 {
				return failed
			}
			for got, err := range list(it) {
				if err == nil {
					n++
				}
				if err == nil && row != nil {
					err = row(n)
				}
				if failed = err; err != nil {
					return err
				}
				if more = yield(got, nil); !more {
					return nil
				}
			}
			return nil
		})
		if err != nil && more {
			var none R
			yield(none, err)
		}
	}
}

// Queue is a queue whose requests go through Way. Its methods are those of [storage.Queue].
type Queue struct {
	Called string
	Way    Way[storage.Queue]
}

// Name is what the queue is called.
func (q Queue) Name() string { return q.Called }

// Create makes the queue.
func (q Queue) Create(ctx context.Context) error {
	return q.Way("create", func(it storage.Queue) error { return it.Create(ctx) })
}

// Drop removes the queue.
func (q Queue) Drop(ctx context.Context) error {
	return q.Way("drop", func(it storage.Queue) error { return it.Drop(ctx) })
}

// Put puts a message.
func (q Queue) Put(
	ctx context.Context, text []byte, delay time.Duration,
) (storage.Receipt, error) {
	return give(q.Way, "put", func(it storage.Queue) (storage.Receipt, error) {
		return it.Put(ctx, text, delay)
	})
}

// Get takes messages.
func (q Queue) Get(
	ctx context.Context, most int, visibility time.Duration,
) ([]storage.Message, error) {
	return give(q.Way, "get", func(it storage.Queue) ([]storage.Message, error) {
		return it.Get(ctx, most, visibility)
	})
}

// Peek looks at messages.
func (q Queue) Peek(ctx context.Context, most int) ([]storage.Message, error) {
	return give(q.Way, "peek", func(it storage.Queue) ([]storage.Message, error) {
		return it.Peek(ctx, most)
	})
}

// Renew keeps a message hidden.
func (q Queue) Renew(
	ctx context.Context, r storage.Receipt, visibility time.Duration,
) (storage.Receipt, error) {
	return give(q.Way, "renew", func(it storage.Queue) (storage.Receipt, error) {
		return it.Renew(ctx, r, visibility)
	})
}

// Replace changes a message.
func (q Queue) Replace(
	ctx context.Context, r storage.Receipt, text []byte, visibility time.Duration,
) (storage.Receipt, error) {
	return give(q.Way, "replace", func(it storage.Queue) (storage.Receipt, error) {
		return it.Replace(ctx, r, text, visibility)
	})
}

// Delete ends a message.
func (q Queue) Delete(ctx context.Context, r storage.Receipt) error {
	return q.Way("delete", func(it storage.Queue) error { return it.Delete(ctx, r) })
}

// Count gives how many messages there are, at the most.
func (q Queue) Count(ctx context.Context) (int64, error) {
	return give(q.Way, "count", func(it storage.Queue) (int64, error) { return it.Count(ctx) })
}

// Clear deletes all messages.
func (q Queue) Clear(ctx context.Context) error {
	return q.Way("clear", func(it storage.Queue) error { return it.Clear(ctx) })
}

// Table is a table whose requests go through Way. Its methods are those of [storage.Table].
type Table struct {
	Called string
	Way    Way[storage.Table]
	// Row is told of each row of a query, the first is 1, before the row is given; an error of it
	// ends the query. nil: nobody is told.
	Row func(n int) error
}

// Name is what the table is called.
func (t Table) Name() string { return t.Called }

// Create makes the table.
func (t Table) Create(ctx context.Context) error {
	return t.Way("create", func(it storage.Table) error { return it.Create(ctx) })
}

// Drop removes the table.
func (t Table) Drop(ctx context.Context) error {
	return t.Way("drop", func(it storage.Table) error { return it.Drop(ctx) })
}

// Read reads a row.
func (t Table) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	return give(t.Way, "read", func(it storage.Table) (storage.Entity, error) {
		return it.Read(ctx, partition, row)
	})
}

// Write writes a row.
func (t Table) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	return give(t.Way, "write", func(it storage.Table) (storage.ETag, error) {
		return it.Write(ctx, w)
	})
}

// Transact writes rows together.
func (t Table) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	return give(t.Way, "write", func(it storage.Table) ([]storage.ETag, error) {
		return it.Transact(ctx, writes)
	})
}

// Query reads rows of a partition.
func (t Table) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return each(t.Way, "query", t.Row, func(it storage.Table) iter.Seq2[storage.Entity, error] {
		return it.Query(ctx, q)
	})
}

// Container is a container whose requests go through Way. Its methods are those of
// [storage.Container].
type Container struct {
	Called string
	Way    Way[storage.Container]
}

// Name is what the container is called.
func (c Container) Name() string { return c.Called }

// Create makes the container.
func (c Container) Create(ctx context.Context) error {
	return c.Way("create", func(it storage.Container) error { return it.Create(ctx) })
}

// Put writes a blob.
func (c Container) Put(
	ctx context.Context, name string, body []byte, metadata map[string]string,
) error {
	return c.Way("put", func(it storage.Container) error { return it.Put(ctx, name, body, metadata) })
}

// Get reads a blob.
func (c Container) Get(
	ctx context.Context, name string, offset, length int64,
) (storage.Blob, error) {
	return give(c.Way, "get", func(it storage.Container) (storage.Blob, error) {
		return it.Get(ctx, name, offset, length)
	})
}

// Delete deletes a blob.
func (c Container) Delete(ctx context.Context, name string) error {
	return c.Way("delete", func(it storage.Container) error { return it.Delete(ctx, name) })
}

// List lists blobs.
func (c Container) List(ctx context.Context, prefix, from string) iter.Seq2[storage.Blob, error] {
	return each(c.Way, "list", nil, func(it storage.Container) iter.Seq2[storage.Blob, error] {
		return it.List(ctx, prefix, from)
	})
}
