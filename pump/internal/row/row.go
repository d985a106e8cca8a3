package row

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// RequestTimeout bounds one request to the table. A request takes tens of
	// milliseconds; the service itself gives up after 30 s.
	RequestTimeout = 10 * time.Second
	// Patience bounds how long one call of this package tries again, so that a
	// caller without a deadline sees an error rather than a standstill. It is
	// longer than a table of the same name takes to be deleted (about 40 s).
	Patience = time.Minute

	// NonceProperty and FormatProperty are in every row: the write that made it, and the version of
	// its layout.
	NonceProperty  = "Nonce"
	FormatProperty = "Format" // see NonceProperty
	// Format is the version of every row's layout. A reader refuses newer ones.
	Format = 1
)

// ErrLost is the answer of TryWrite when the row is no longer at the version that the write was
// based on, and does not hold the write either. (The write may have been there for a moment, if
// another one replaced it before it could be read back; a caller that needs to know reads and
// looks.)
var ErrLost = errors.New("another writer changed the row first")

// Row is one row of the control table as a T: the storage behind two methods,
// Read and TryWrite. It holds no state
// and may be used from many goroutines at once.
type Row[T any] struct {
	Table          storage.Table
	Partition, Key string
	Timeout        time.Duration // of one request; the longest pause between two is a fifth of it
	Encode         func(T) map[string]any
	Decode         func(*Fields) T
	// Newest is the newest layout that Decode reads; 0: Format. Encode says which layout it wrote, as
	// FormatProperty, if that is newer than Format.
	Newest int64
	// Beside are writes of the same partition that are made with each write of the row, in one
	// transaction. They must have no condition.
	Beside []storage.Write
	// Salvage gives what can be relied on of a row that cannot be read; nil: nothing.
	Salvage func(props map[string]any) T
}

// Version is what a row holds at one ETag.
type Version[T any] struct {
	Value T
	// ETag is empty if the row is not there.
	ETag storage.ETag
	// Modified is the server's clock at the write. Only read gives it.
	Modified time.Time
	// Sent is when the request was sent, a write's first attempt if it took
	// several; received is when its answer was here. Local, with monotonic clock.
	Sent, Received time.Time
	// stored are all columns: those that a newer program has added stay when the row is replaced.
	stored map[string]any
}

// Absent reports whether there is no such row.
func (v Version[T]) Absent() bool { return v.ETag == "" }

// Object names the row in errors and draws: partition/key.
func (r Row[T]) Object() string { return r.Partition + "/" + r.Key }

// LongestPause is the longest pause between two attempts of a request.
func (r Row[T]) LongestPause() time.Duration { return r.Timeout / 5 }

// Read asks once for the row. Without a row the version is absent, and that is not an error.
func (r Row[T]) Read(ctx context.Context) (Version[T], error) {
	v, _, err := r.readWithNonce(ctx)
	return v, err
}

func (r Row[T]) readWithNonce(ctx context.Context) (v Version[T], nonce string, err error) {
	call, cancel := bounded(ctx, r.Timeout)
	defer cancel()
	v.Sent = time.Now()
	e, err := r.Table.Read(call, r.Partition, r.Key)
	v.Received = time.Now()
	if storage.Is(err, storage.Gone) {
		return v, "", nil
	}
	if err != nil {
		return v, "", err
	}
	nonce, err = r.Parse(e, &v)
	return v, nonce, err
}

// bounded gives one request its time. If ctx ends at the same instant, its own timer is the only
// one: the caller must not see one end without the other.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// Parse fills in what an entity of this row says, as a read or a query gave it. If the entity
// cannot be read, only its version is known, and what salvage gives.
func (r Row[T]) Parse(e storage.Entity, v *Version[T]) (nonce string, err error) {
	f := &Fields{Props: e.Properties}
	v.ETag, v.Modified, v.stored = e.ETag, e.Modified, e.Properties
	v.Value = readUpTo(max(Format, r.Newest), f, r.Decode)
	nonce = f.Text(NonceProperty)
	if f.Err != nil {
		if r.Salvage != nil {
			v.Value = r.Salvage(e.Properties)
		}
		return "", fmt.Errorf("row %s of table %s: %w", r.Object(), r.Table.Name(), f.Err)
	}
	return nonce, nil
}

// ReadFormat decodes a row of this version's layout. A newer one is an error that names the fix.
func ReadFormat[T any](f *Fields, decode func(*Fields) T) (zero T) {
	return readUpTo(Format, f, decode)
}

func readUpTo[T any](newest int64, f *Fields, decode func(*Fields) T) (zero T) {
	switch n := f.Integer(FormatProperty); {
	case f.Err == nil && n > newest:
		f.Err = &NewerFormat{n, newest}
	case f.Err == nil && n < Format:
		f.Fail(FormatProperty, fmt.Sprintf("is %d", n))
	}
	if f.Err != nil {
		return zero
	}
	return decode(f)
}

// MustRead reads until there is an answer, for as long as patience lasts.
func (r Row[T]) MustRead(ctx context.Context) (Version[T], error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	v, _, err := r.ReadBack(ctx)
	return v, err
}

// ReadBack reads until there is an answer or ctx ends, and gives the nonce of the write that the
// row holds.
func (r Row[T]) ReadBack(ctx context.Context) (v Version[T], nonce string, err error) {
	err = Retry(ctx, r.Table, r.Object(), r.LongestPause(), func() error {
		if err == nil || ctx.Err() == nil { // else err says more than that the context ended
			v, nonce, err = r.readWithNonce(ctx)
		}
		return err
	})
	return v, nonce, err
}

// TryWrite makes next the row's value on the condition that the row is still at base, inserting it
// if base is absent. It is ErrLost if the row is not; any other error means that the outcome is not
// known, or (unless storage.Ambiguous) that nothing was written. It tries again, always the same
// bytes under the same condition with the same nonce, until the outcome is known or ctx ends.
func (r Row[T]) TryWrite(ctx context.Context, base Version[T], next T) (Version[T], error) {
	draw := DrawOf(r.Table)
	nonce := draw.Nonce(r.Object())
	w := r.Prepare(base, next, nonce)
	won := Version[T]{Value: next, Sent: time.Now(), stored: w.Entity.Properties}
	if w.Mode == storage.Merge {
		won.stored = map[string]any{}
		maps.Copy(won.stored, base.stored)
		maps.Copy(won.stored, w.Entity.Properties)
	}
	// doubt: an attempt may have landed, or may land yet.
	var doubt error
	for attempt := 1; ; attempt++ {
		etag, err := r.send(ctx, w)
		if err == nil {
			won.ETag, won.Received = etag, time.Now()
			return won, nil
		}
		switch code := storage.CodeOf(err); {
		case storage.Ambiguous(err):
			doubt = err
		case code == storage.Canceled && ctx.Err() == nil:
			// Only this attempt's own time ran out, before it was sent.
		case doubt != nil:
			// Precondition, Exists and Gone may be due to an earlier attempt of this write; other failures
			// are not a sign of that attempt.
		case code == storage.Precondition || code == storage.Exists || code == storage.Gone:
			return Version[T]{}, ErrLost
		default:
			return Version[T]{}, err
		}
		// A partition that refuses is not asked twice for one write: if an earlier attempt landed, the
		// next attempt says that the row has changed, and then the row is read back.
		if doubt != nil && !storage.Is(err, storage.Throttled) {
			now, found, err := r.ReadBack(ctx)
			switch {
			case err != nil:
				return Version[T]{}, r.Unknown(ctx, doubt, err)
			case found == nonce:
				won.ETag, won.Modified, won.Received = now.ETag, now.Modified, now.Received
				return won, nil
			case now.ETag != base.ETag:
				return Version[T]{}, ErrLost
			}
		}
		draw.Pause(ctx, r.Object(), attempt, r.LongestPause(), err)
		if ctx.Err() != nil {
			if doubt != nil {
				return Version[T]{}, r.Unknown(ctx, doubt, nil)
			}
			return Version[T]{}, err
		}
	}
}

// TryRemove removes the row on the condition that it is still at base, and is ErrLost if another
// version is there. A missing row is success, whichever process removed it. Any other error means
// that the outcome is not known, or (unless storage.Ambiguous) that the row was not removed.
// Reading back is not needed: the same removal sent again finds the row, no row, or another
// version, and a late removal can only hit base.
func (r Row[T]) TryRemove(ctx context.Context, base Version[T]) error {
	if base.Absent() {
		return nil // without an ETag it would remove any version
	}
	w := storage.Write{
		Mode: storage.Remove, Entity: storage.Entity{Partition: r.Partition, Row: r.Key, ETag: base.ETag},
	}
	for attempt := 1; ; attempt++ {
		_, err := r.send(ctx, w)
		switch {
		case err == nil || storage.Is(err, storage.Gone):
			return nil
		case storage.Is(err, storage.Precondition):
			return ErrLost
		case !MayRetry(err):
			return err
		}
		DrawOf(r.Table).Pause(ctx, r.Object(), attempt, r.LongestPause(), err)
		if ctx.Err() != nil {
			return err
		}
	}
}

// Unknown keeps the ambiguous failure first, so that storage.Ambiguous sees it.
func (r Row[T]) Unknown(ctx context.Context, doubt, readBack error) error {
	readBack = cmp.Or(readBack, context.Cause(ctx))
	return fmt.Errorf("row %s: whether it was written could not be learned: %w (reading it back: %w)",
		r.Object(), doubt, readBack)
}

func (r Row[T]) send(ctx context.Context, w storage.Write) (storage.ETag, error) {
	ctx, cancel := bounded(ctx, r.Timeout)
	defer cancel()
	if len(r.Beside) == 0 {
		return r.Table.Write(ctx, w)
	}
	etags, err := r.Table.Transact(ctx, append([]storage.Write{w}, r.Beside...))
	if err != nil {
		return "", err
	}
	return etags[0], nil
}

// Prepare makes the write. For an existing row only changed properties are sent, so that a beat is
// small beside a checkpoint of any size.
func (r Row[T]) Prepare(base Version[T], next T, nonce string) storage.Write {
	props := r.Encode(next)
	format, ok := props[FormatProperty].(int64)
	if !ok {
		format = Format
	}
	w := storage.Write{
		Mode:   storage.Insert,
		Entity: storage.Entity{Partition: r.Partition, Row: r.Key, ETag: base.ETag, Properties: props},
	}
	if !base.Absent() {
		w.Mode = storage.Merge
		before := r.Encode(base.Value)
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
		} else {
			for name, value := range base.stored {
				if _, known := before[name]; !known && props[name] == nil {
					props[name] = value
				}
			}
		}
	}
	w.Entity.Properties[NonceProperty] = nonce
	w.Entity.Properties[FormatProperty] = format
	return w
}

// MayRetry reports whether the same request may succeed later by itself.
func MayRetry(err error) bool {
	e, ok := StorageError(err)
	return ok && (e.Ambiguous() || e.Code == storage.Canceled)
}

// NoTable reports whether err says that the table does not exist. A disabled or unknown account
// does not say that of its tables.
func NoTable(err error) bool {
	e, ok := StorageError(err)
	return ok && e.Code == storage.Missing && !e.NoAccount()
}

// StorageError is the error of the storage contract in err, if there is one.
func StorageError(err error) (*storage.Error, bool) { return errors.AsType[*storage.Error](err) }
