package control

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// requestTimeout bounds one request to the table. A request takes tens of
	// milliseconds; the service itself gives up after 30 s.
	requestTimeout = 10 * time.Second
	// patience bounds how long one call of this package tries again, so that a
	// caller without a deadline sees an error rather than a standstill. It is
	// longer than a table of the same name takes to be deleted (about 40 s).
	patience = time.Minute

	nonceProperty  = "Nonce"
	formatProperty = "Format"
	// format is the version of every row's layout. A reader refuses newer ones.
	format = 1
)

// errLost is the answer of tryWrite when the row is no longer at the version
// that the write was based on, and does not hold the write either. (The write
// may have been there for a moment, if another one replaced it before it could
// be read back; a caller to whom that matters reads and looks.)
var errLost = errors.New("another writer changed the row first")

// row is one row of the control table as a T: the storage behind two methods,
// read and tryWrite, under everything else in this package. It holds no state
// and may be used from many goroutines at once.
type row[T any] struct {
	table          storage.Table
	partition, key string
	timeout        time.Duration // of one request; the longest pause between two is a fifth of it
	encode         func(T) map[string]any
	decode         func(*fields) T
	// beside are writes of the same partition that are made with each write of the row, in one
	// transaction. They must have no condition.
	beside []storage.Write
	// salvage gives what can be relied on of a row that cannot be read; nil: nothing.
	salvage func(props map[string]any) T
}

// version is what a row holds at one ETag.
type version[T any] struct {
	value T
	// etag is empty if the row is not there.
	etag storage.ETag
	// modified is the server's clock at the write. Only read gives it.
	modified time.Time
	// sent is when the request was sent, a write's first attempt if it took
	// several; received is when its answer was here. Local, with monotonic clock.
	sent, received time.Time
}

func (v version[T]) absent() bool { return v.etag == "" }

func (r row[T]) object() string { return r.partition + "/" + r.key }

func (r row[T]) longestPause() time.Duration { return r.timeout / 5 }

// read asks once for the row. That there is none is no error but an absent version.
func (r row[T]) read(ctx context.Context) (version[T], error) {
	v, _, err := r.readWithNonce(ctx)
	return v, err
}

func (r row[T]) readWithNonce(ctx context.Context) (v version[T], nonce string, err error) {
	call, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	v.sent = time.Now()
	e, err := r.table.Read(call, r.partition, r.key)
	v.received = time.Now()
	if storage.Is(err, storage.Gone) {
		return v, "", nil
	}
	if err != nil {
		return v, "", err
	}
	nonce, err = r.parse(e, &v)
	return v, nonce, err
}

// parse fills in what an entity of this row says, as a read or a query gave it.
// Of one that cannot be read only the version is known, and what salvage gives.
func (r row[T]) parse(e storage.Entity, v *version[T]) (nonce string, err error) {
	f := &fields{props: e.Properties}
	v.etag, v.modified = e.ETag, e.Modified
	v.value = readFormat(f, r.decode)
	nonce = f.text(nonceProperty)
	if f.err != nil {
		if r.salvage != nil {
			v.value = r.salvage(e.Properties)
		}
		return "", fmt.Errorf("row %s of table %s: %w", r.object(), r.table.Name(), f.err)
	}
	return nonce, nil
}

func readFormat[T any](f *fields, decode func(*fields) T) (zero T) {
	if n := f.integer(formatProperty); f.err == nil && n != format {
		f.fail(formatProperty, fmt.Sprintf("is %d: this program reads %d; use a newer one", n, format))
	}
	if f.err != nil {
		return zero
	}
	return decode(f)
}

// mustRead reads until there is an answer, for as long as patience lasts.
func (r row[T]) mustRead(ctx context.Context) (version[T], error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, _, err := r.readBack(ctx)
	return v, err
}

func (r row[T]) readBack(ctx context.Context) (version[T], string, error) {
	for attempt := 1; ; attempt++ {
		v, nonce, err := r.readWithNonce(ctx)
		if err == nil || ctx.Err() != nil || !mayRetry(err) {
			return v, nonce, err
		}
		drawOf(r.table).pause(ctx, r.object(), attempt, r.longestPause(), err)
		if ctx.Err() != nil {
			return v, nonce, err // it says more than that the context ended
		}
	}
}

// tryWrite makes next the row's value on the condition that the row is still at
// base, inserting it if base is absent. It is errLost if the row is not; any
// other error means that it is not known, or (unless storage.Ambiguous) that
// nothing was written. It tries again, always the same bytes under the same
// condition with the same nonce, until the outcome is known or ctx ends.
func (r row[T]) tryWrite(ctx context.Context, base version[T], next T) (version[T], error) {
	draw := drawOf(r.table)
	nonce := draw.nonce(r.object())
	w := r.prepare(base, next, nonce)
	won := version[T]{value: next, sent: time.Now()}
	// doubt: an attempt may have landed, or may land yet.
	var doubt error
	for attempt := 1; ; attempt++ {
		etag, err := r.send(ctx, w)
		if err == nil {
			won.etag, won.received = etag, time.Now()
			return won, nil
		}
		switch code := storage.CodeOf(err); {
		case storage.Ambiguous(err):
			doubt = err
		case code == storage.Canceled && ctx.Err() == nil:
			// Only this attempt's own time ran out, before it was sent.
		case doubt != nil:
			// Precondition, Exists and Gone may be our own earlier attempt; a
			// failure of another kind says nothing about that attempt.
		case code == storage.Precondition || code == storage.Exists || code == storage.Gone:
			return version[T]{}, errLost
		default:
			return version[T]{}, err
		}
		// A partition that refuses is not asked twice for one write: if an earlier attempt landed, the
		// next says that the row is another, and then it is read back.
		if doubt != nil && !storage.Is(err, storage.Throttled) {
			now, found, err := r.readBack(ctx)
			switch {
			case err != nil:
				return version[T]{}, r.unknown(ctx, doubt, err)
			case found == nonce:
				won.etag, won.modified, won.received = now.etag, now.modified, now.received
				return won, nil
			case now.etag != base.etag:
				return version[T]{}, errLost
			}
		}
		draw.pause(ctx, r.object(), attempt, r.longestPause(), err)
		if ctx.Err() != nil {
			if doubt != nil {
				return version[T]{}, r.unknown(ctx, doubt, nil)
			}
			return version[T]{}, err
		}
	}
}

// tryRemove removes the row on the condition that it is still at base, and is
// errLost if another version is there. That no row is there is success, whoever
// removed it. Any other error means that it is not known, or (unless
// storage.Ambiguous) that the row was not removed. There is nothing to be read
// back: the same removal sent again finds the row, no row, or another version,
// and one that lands late can hit no other version than base.
func (r row[T]) tryRemove(ctx context.Context, base version[T]) error {
	if base.absent() {
		return nil // without an ETag it would remove any version
	}
	w := storage.Write{Mode: storage.Remove, Entity: storage.Entity{Partition: r.partition, Row: r.key, ETag: base.etag}}
	for attempt := 1; ; attempt++ {
		_, err := r.send(ctx, w)
		switch {
		case err == nil || storage.Is(err, storage.Gone):
			return nil
		case storage.Is(err, storage.Precondition):
			return errLost
		case !mayRetry(err):
			return err
		}
		drawOf(r.table).pause(ctx, r.object(), attempt, r.longestPause(), err)
		if ctx.Err() != nil {
			return err
		}
	}
}

// unknown keeps the ambiguous failure first, so that storage.Ambiguous sees it.
func (r row[T]) unknown(ctx context.Context, doubt, readBack error) error {
	if readBack == nil {
		readBack = context.Cause(ctx)
	}
	return fmt.Errorf("row %s: whether it was written could not be learned: %w (reading it back: %w)", r.object(), doubt, readBack)
}

func (r row[T]) send(ctx context.Context, w storage.Write) (storage.ETag, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if len(r.beside) == 0 {
		return r.table.Write(ctx, w)
	}
	etags, err := r.table.Transact(ctx, append([]storage.Write{w}, r.beside...))
	if err != nil {
		return "", err
	}
	return etags[0], nil
}

// prepare makes the write. Of a row that is there only the properties that
// changed are sent, so that a beat is small however large the checkpoint is.
func (r row[T]) prepare(base version[T], next T, nonce string) storage.Write {
	props := r.encode(next)
	w := storage.Write{Mode: storage.Insert, Entity: storage.Entity{Partition: r.partition, Row: r.key, ETag: base.etag, Properties: props}}
	if !base.absent() {
		w.Mode = storage.Merge
		before := r.encode(base.value)
		for name := range before {
			if _, ok := props[name]; !ok {
				w.Mode = storage.Replace // a merge cannot remove a property
			}
		}
		if w.Mode == storage.Merge {
			changed := map[string]any{}
			for name, value := range props {
				if !reflect.DeepEqual(before[name], value) {
					changed[name] = value
				}
			}
			w.Entity.Properties = changed
		}
	}
	w.Entity.Properties[nonceProperty] = nonce
	w.Entity.Properties[formatProperty] = int64(format)
	return w
}

// mayRetry reports whether the same request may succeed later by itself.
func mayRetry(err error) bool {
	e, ok := asStorage(err)
	return ok && (e.Ambiguous() || e.Code == storage.Canceled)
}

func asStorage(err error) (*storage.Error, bool) { return errors.AsType[*storage.Error](err) }
