package control

import (
	"context"
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
