package control

import (
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// mustReadOrCreate is mustRead for who is about to write: a table that is not
// there is made.
func (r row[T]) mustReadOrCreate(ctx context.Context) (version[T], error) {
	v, err := r.mustRead(ctx)
	if storage.Is(err, storage.Missing) {
		if err = createTable(ctx, r.table); err == nil {
			v, err = r.mustRead(ctx)
		}
	}
	return v, err
}

// rowsPage is how many rows are read at once, to be counted, looked through or removed: a page of a query.
const rowsPage = 1000

// mustFindRows gives the first rows of a query, at most `most`, trying until there
// is an answer or patience is over. Without the table there are none.
func mustFindRows(ctx context.Context, t storage.Table, q storage.Query, most int) ([]storage.Entity, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for attempt := 1; ; attempt++ {
		found, err := findRows(ctx, t, q, most)
		switch {
		case storage.Is(err, storage.Missing):
			return nil, nil
		case err == nil || ctx.Err() != nil || !mayRetry(err):
			return found, err
		}
		drawOf(t).pause(ctx, q.Partition, attempt, requestTimeout/5, err)
	}
}

func findRows(ctx context.Context, t storage.Table, q storage.Query, most int) ([]storage.Entity, error) {
	// A query is a request for each page of a thousand.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+most/1000)*requestTimeout)
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
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		err := t.Create(call)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !mayRetry(err) && !storage.Is(err, storage.Missing) {
			return fmt.Errorf("creating table %s: %w", t.Name(), err)
		}
		drawOf(t).pause(ctx, t.Name(), attempt, requestTimeout/5, err)
	}
}
