package row

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// MustReadOrCreate is MustRead before a write: a missing table is made.
func (r Row[T]) MustReadOrCreate(ctx context.Context) (Version[T], error) {
	v, err := r.MustRead(ctx)
	if NoTable(err) {
		if err = createTable(ctx, r.Table); err == nil {
			v, err = r.MustRead(ctx)
		}
	}
	return v, err
}

// Change reads the row and writes what change makes of it, if it says so: again, while others are
// faster. It gives the row as it is then.
func (r Row[T]) Change(
	ctx context.Context, change func(is Version[T]) (next T, write bool, err error),
) (Version[T], error) {
	for {
		v, err := r.MustRead(ctx)
		if err != nil {
			return v, err
		}
		next, write, err := change(v)
		if err != nil || !write {
			return v, err
		}
		if v, err = r.TryWrite(ctx, v, next); !errors.Is(err, ErrLost) {
			return v, err
		}
	}
}

// PageSize is how many rows are read at once, to be counted, looked through or removed: a page of a
// query.
const PageSize = 1000

// After gives the first key that may follow a key, for a query that goes on behind it: a dash is
// the first of the characters that keys have, and a driver refuses all others.
func After(key string) string { return key + "-" }

// Next gives the key from which a query goes on behind a page, "" if that was the last one.
func Next(page []storage.Entity) string {
	if len(page) < PageSize {
		return ""
	}
	return After(page[len(page)-1].Row)
}

// MustFind gives the first rows of a query, at most `most`, trying until there is an answer or
// patience is over. Without the table it gives no rows.
func MustFind(
	ctx context.Context, t storage.Table, q storage.Query, most int,
) (found []storage.Entity, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err = Retry(ctx, t, q.Partition, RequestTimeout/5, func() (err error) {
		found, err = findRows(ctx, t, q, most)
		return err
	})
	if NoTable(err) {
		return nil, nil
	}
	return found, err
}

func findRows(
	ctx context.Context, t storage.Table, q storage.Query, most int,
) ([]storage.Entity, error) {
	// A query is a request for each page of a thousand.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+most/1000)*RequestTimeout)
	defer cancel()
	var found []storage.Entity
	for e, err := range t.Query(ctx, q) {
		if err != nil {
			return nil, err
		}
		if found = append(found, e); len(found) == most {
			break
		}
	}
	return found, nil
}

// createTable waits for an older table of that name to be gone (about 40 s).
func createTable(ctx context.Context, t storage.Table) error {
	for attempt := 1; ; attempt++ {
		call, cancel := bounded(ctx, RequestTimeout)
		err := t.Create(call)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !MayRetry(err) && !storage.Is(err, storage.Missing) {
			return fmt.Errorf("creating table %s: %w", t.Name(), err)
		}
		DrawOf(t).Pause(ctx, t.Name(), attempt, RequestTimeout/5, err)
	}
}
