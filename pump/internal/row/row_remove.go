package row

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Insist makes a request about something that may be made twice until it is answered.
func Insist(
	ctx context.Context, t storage.Table, object string, request func(context.Context) error,
) error {
	return Retry(ctx, t, object, RequestTimeout/5, func() error {
		call, cancel := bounded(ctx, RequestTimeout)
		defer cancel()
		return request(call)
	})
}

// InsistOn makes writes of one partition in a transaction, as [Insist] makes a request.
func InsistOn(ctx context.Context, t storage.Table, writes ...storage.Write) error {
	return Insist(ctx, t, writes[0].Entity.Partition, func(ctx context.Context) error {
		return WriteAll(ctx, t, writes)
	})
}

// WriteAll makes writes of one partition in a transaction, or the one write without.
func WriteAll(ctx context.Context, t storage.Table, writes []storage.Write) (err error) {
	if len(writes) == 1 { // a transaction is several times as dear
		_, err = t.Write(ctx, writes[0])
	} else {
		_, err = t.Transact(ctx, writes)
	}
	return err
}

// Retry makes an attempt at something about an object until it succeeds, cannot succeed, or ctx
// ends. It waits between two attempts, longest at most.
func Retry(
	ctx context.Context, t storage.Table, object string, longest time.Duration, attempt func() error,
) error {
	for n := 1; ; n++ {
		err := attempt()
		if err == nil || ctx.Err() != nil || !MayRetry(err) {
			return err
		}
		DrawOf(t).Pause(ctx, object, n, longest, err)
	}
}

// RemoveFound removes rows of one partition, as far as they still have the given version. A failed
// batch does not keep others back.
func RemoveFound(ctx context.Context, t storage.Table, rows []storage.Entity) error {
	var errs []error
	for batch := range slices.Chunk(rows, storage.MaxBatch) {
		writes := make([]storage.Write, len(batch))
		for i, e := range batch {
			writes[i] = storage.Write{
				Mode:   storage.Remove,
				Entity: storage.Entity{Partition: e.Partition, Row: e.Row, ETag: e.ETag},
			}
		}
		errs = append(errs, RemoveAll(ctx, t, writes))
	}
	return errors.Join(errs...)
}

// RemoveAll makes removals together, or, if one of them keeps the others back, each by itself. A
// row that is gone, or has another version by now, is not an error.
func RemoveAll(ctx context.Context, t storage.Table, writes []storage.Write) error {
	if len(writes) == 0 {
		return nil
	}
	err := InsistOn(ctx, t, writes...)
	if code := storage.CodeOf(err); err == nil ||
		code != storage.Gone && code != storage.Precondition {
		return err
	}
	var errs []error
	for _, w := range writes {
		err := InsistOn(ctx, t, w)
		if !storage.Is(err, storage.Gone) && !storage.Is(err, storage.Precondition) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
