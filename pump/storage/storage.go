// Package storage is what the pump needs of a queue, a table and a blob
// service, written down as a contract. Package storage/azure implements it on
// Azure Storage; package storage/storagetest holds the one conformance suite
// that judges every implementation and every server.
//
// # What an implementation promises
//
//   - One call is one request. Nothing is retried below this seam: a Put that
//     was retried inside an SDK after a lost answer is two messages and no
//     trace, and a throttle that was waited out there never reaches the budget.
//     The caller owns every retry, deadline and budget.
//   - Every call ends when its context does. A caller always gives a deadline,
//     because a server that hangs otherwise hangs the call.
//   - Every failure is an [*Error] whose [Code] says what the caller may
//     conclude, above all whether the request may have taken effect
//     ([Error.Ambiguous]). An answer that cannot be decoded is ambiguous, never
//     "empty".
//   - Secrets (keys, signatures, tokens) appear in no error text.
//   - All methods may be called from many goroutines at once.
//
// Message text is opaque here: bytes that are legal XML characters, at most
// [MaxText] of them. Package codec makes such text of anything.
package storage

import (
	"context"
	"iter"
	"time"
)

// Published limits of the services, which a server enforces and a client may
// rely on (learn.microsoft.com/azure/storage/queues/scalability-targets and
// .../tables/scalability-targets).
const (
	MaxText       = 64 << 10           // bytes of text in one message
	MaxGet        = 32                 // messages in one Get or Peek
	MaxVisibility = 7 * 24 * time.Hour // longest invisibility of a message
	MaxBatch      = 100                // operations in one entity group transaction
	MaxProperty   = 64 << 10           // bytes of one string (as UTF-16) or binary property
	MaxBlob       = 256 << 20          // bytes of one Put of a blob in any version of the service
)

// Account is one storage account: its queues, tables and containers behind
// one credential and one rate limit.
type Account interface {
	// Name is the account's own name, as it stands in logs and metrics.
	Name() string
	// Queue gives a handle; it makes no request and checks nothing.
	Queue(name string) Queue
	// Table gives a handle; it makes no request and checks nothing.
	Table(name string) Table
	// Container gives a handle; it makes no request and checks nothing.
	Container(name string) Container
	// Queues lists the names of the account's queues that begin with prefix,
	// in the service's order, asking page after page.
	Queues(ctx context.Context, prefix string) ([]string, error)
}

// As finds the first account of type T in an account and those that it wraps. An account that wraps
// another gives it by a method Unwrap.
func As[T any](a Account) (found T, ok bool) {
	for a != nil {
		if found, ok = a.(T); ok {
			return found, true
		}
		wraps, is := a.(interface{ Unwrap() Account })
		if !is {
			break
		}
		a = wraps.Unwrap()
	}
	return found, false
}

// Queue is one queue. A message in it is visible or, for a while after a Put with a delay, a Get or
// an Update, invisible. Delivery is at least once and unordered: a message may come back before its
// visibility ends (clock skew in the service) and may be delivered again after a Delete whose
// answer was lost.
//
// Times are whole seconds to the service; a part of a second counts as a whole one. A count, time
// or text outside its limits is refused before a request is made: a text over MaxText as TooLarge,
// everything else as Invalid.
type Queue interface {
	Name() string

	// Create makes the queue. A queue that exists already is success. While an
	// older queue of that name is still being deleted the error is Missing.
	Create(ctx context.Context) error
	// Drop deletes the queue and all it holds. Missing if it is not there.
	Drop(ctx context.Context) error

	// Put adds a message that never expires and becomes visible after delay (0 to MaxVisibility). The
	// receipt that Put returns deletes or updates the message as long as no client has got it. Text is
	// not kept after the return.
	Put(ctx context.Context, text []byte, delay time.Duration) (Receipt, error)

	// Get takes up to max messages (1 to MaxGet) and hides each for visibility (1 s to MaxVisibility,
	// whole seconds). Without a visible message the slice is empty and the error nil. The messages of
	// one Get may share a pop receipt: only the pair (ID, PopReceipt) names a delivery. An ambiguous
	// failure may have hidden up to max messages.
	Get(ctx context.Context, max int, visibility time.Duration) ([]Message, error)

	// Peek looks at up to max visible messages without taking them; their
	// receipts are empty.
	Peek(ctx context.Context, max int) ([]Message, error)

	// Renew changes when the message becomes visible (now + visibility; 0 is now) and leaves its text
	// as it is, without sending it. The old receipt is dead at once, so a Renew and a Delete of one
	// message must never be under way together. Gone if the receipt is no longer the newest.
	Renew(ctx context.Context, r Receipt, visibility time.Duration) (Receipt, error)

	// Replace is Renew with a new text.
	Replace(ctx context.Context, r Receipt, text []byte, visibility time.Duration) (Receipt, error)

	// Delete ends the message. Gone if it was deleted already, or if another client has got it since
	// the receipt was made. A receipt whose visibility has run out still deletes while no other client
	// has got the message.
	Delete(ctx context.Context, r Receipt) error

	// Count is the service's approximate number of messages, the invisible ones
	// included: never lower than the true number, and no proof of emptiness.
	Count(ctx context.Context) (int64, error)

	// Clear deletes every message.
	Clear(ctx context.Context) error
}

// Receipt names one delivery of one message.
type Receipt struct {
	ID         string
	PopReceipt string
	// NextVisible is when the service says the message becomes visible, by the
	// service's clock. It is for display; leases are judged on the local
	// monotonic clock from the moment the request was sent.
	NextVisible time.Time
}

// Message is a message as a Get or Peek delivered it.
type Message struct {
	Receipt
	// Text belongs to the caller and may be changed.
	Text     []byte
	Inserted time.Time // service clock
	// Dequeued counts the deliveries so far, this one included. Lost answers,
	// releases and foreign owners all inflate it: it is a hint, and never by
	// itself a reason to give a message up.
	Dequeued int64
}

// Table is one table. Its rows are guarded by ETags: the control plane is built from conditional
// writes alone.
//
// Partition and row keys are 1 to 512 characters of [A-Za-z0-9_.~-]; any other key is refused as
// Invalid before a request is made, because the service and its SDKs disagree about escaping them.
// So is a property whose name is not a letter or _ and then letters, digits and _, or whose value
// is of another type than those of [Entity].
type Table interface {
	Name() string

	// Create makes the table; success if it exists. Missing while an older one
	// is being deleted.
	Create(ctx context.Context) error
	// Drop deletes the table. Missing if it is not there.
	Drop(ctx context.Context) error

	// Read gets one row. Gone if there is no such row.
	Read(ctx context.Context, partition, row string) (Entity, error)

	// Write does one conditional write and returns the row's new ETag. Exists
	// (for Insert), Precondition (stale ETag) and Gone (no such row) mean that
	// nothing was changed by this request; after an ambiguous failure of an
	// earlier attempt they may be that attempt's own success.
	Write(ctx context.Context, w Write) (ETag, error)

	// Transact does 1 to MaxBatch writes of one partition, each of another row,
	// all or none, and returns their new ETags in order ("" for a Remove). The
	// error's Index tells which write failed, -1 if the service did not say.
	Transact(ctx context.Context, writes []Write) ([]ETag, error)

	// Query yields the rows of one partition with from <= row key < to in key
	// order, asking page after page (an empty page with a continuation is not
	// the end). An empty `to` means no upper end; an empty partition means the
	// whole table. Only the named properties are fetched, all if none is named.
	// After an error the sequence ends.
	Query(ctx context.Context, q Query) iter.Seq2[Entity, error]
}

// Query says which rows to read; see [Table.Query].
type Query struct {
	Partition string
	From, To  string
	Select    []string
}

// ETag is a row's version, opaque, with the quotes and prefix the service uses.
type ETag string

// Entity is one row.
type Entity struct {
	Partition, Row string
	ETag           ETag
	Modified       time.Time // service clock
	// Properties has values of type string, []byte, int64, bool, float64 or
	// time.Time. Integers travel as Edm.Int64, exactly; a uint64 that does not
	// fit must be stored as a string by the caller.
	Properties map[string]any
}

// Mode is what a Write does with the row.
type Mode uint8

// The modes of a write.
const (
	Insert Mode = iota // the row must not exist; ETag is ignored
	// the row must exist at ETag (empty: any version) and gets exactly these properties
	Replace
	Merge  // as Replace, but properties not named are kept
	Upsert // insert or replace; ETag is ignored
	Remove // the row must exist at ETag (empty: any version); properties are ignored
)

// Write is one conditional write of one row. Entity.ETag is the condition.
type Write struct {
	Mode   Mode
	Entity Entity
}

// Container is one container of block blobs of an account. Its name follows the rules of a queue's.
//
// The name of a blob is 1 to 1,000 characters of [A-Za-z0-9_.~/-], without an empty part, a part
// "." or "..", and not ending in a dot. Other names are refused as Invalid before a request is
// made, because the service and what stands before it disagree about escaping them. Blobs whose
// names begin alike lie together, so what varies first should stand first.
//
// In metadata, names are small letters, digits and _, not beginning with a digit, and values are
// printable ASCII without a blank at their ends; 8 KiB in all.
type Container interface {
	Name() string

	// Create makes the container, which nobody can read without a credential; success if it exists.
	// While an older one of that name is still being deleted the error is Missing.
	Create(ctx context.Context) error

	// Put writes a whole blob by one request; a blob of that name is replaced with its metadata. A
	// reader sees the old blob or the new one. After an ambiguous failure the same bytes may be put
	// again. A body over MaxBlob is TooLarge. Neither body nor metadata is kept after the return.
	Put(ctx context.Context, name string, body []byte, metadata map[string]string) error

	// Get reads up to length bytes (1 to MaxBlob) from offset on; Blob.Size is the size of the whole
	// blob. Gone if there is no such blob, Invalid if offset is not within it; an empty blob is read
	// from 0, and then has neither time nor metadata. Two Gets may be of two versions of the blob.
	Get(ctx context.Context, name string, offset, length int64) (Blob, error)

	// Delete deletes the blob. Gone if it is not there, also after an earlier, ambiguous Delete.
	Delete(ctx context.Context, name string) error

	// List yields the blobs whose names begin with prefix and are not below from, in order of their
	// bytes, with metadata and without bodies, asking page after page. After an error the sequence
	// ends. A blob that is put or deleted meanwhile may be in it or not.
	List(ctx context.Context, prefix, from string) iter.Seq2[Blob, error]
}

// Blob is a blob as a Get or List gave it.
type Blob struct {
	Name     string
	Size     int64     // of the whole blob
	Modified time.Time // service clock
	Metadata map[string]string
	Body     []byte // of a Get: belongs to the caller
}
