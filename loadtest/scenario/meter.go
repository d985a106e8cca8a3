package scenario

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// meter counts what is asked of one account by all instances together, in the units of its limits,
// and can cut the account off from them. The same cut is made to simulated and to real accounts, so
// that they can be compared.
type meter struct {
	name    string
	queues  int
	limit   float64 // units a second; 0: not known
	getEach bool    // a get is a unit for each message, not one
	dark    atomic.Bool

	units, puts, taken, requests, throttled, failed, control atomic.Int64
}

// counts is what a meter, or all of them, had counted at one moment.
type counts struct {
	units, puts, taken, requests, throttled, failed, control int64
}

func (m *meter) read() counts {
	return counts{
		m.units.Load(), m.puts.Load(), m.taken.Load(), m.requests.Load(), m.throttled.Load(),
		m.failed.Load(), m.control.Load(),
	}
}

func (c counts) minus(o counts) counts {
	return counts{
		c.units - o.units, c.puts - o.puts, c.taken - o.taken, c.requests - o.requests,
		c.throttled - o.throttled, c.failed - o.failed, c.control - o.control,
	}
}

func (c counts) plus(o counts) counts {
	return c.minus(counts{}.minus(o))
}

// errDark is the answer of an account that is cut off.
var errDark = errors.New("the account is cut off for the test")

func (m *meter) cut(op, object string) error {
	// MaybeDone, because a client whose connection fails knows no more.
	return &storage.Error{
		Code: storage.MaybeDone, Op: op, Account: m.name, Object: object, Index: -1, Err: errDark,
	}
}

// call makes a request to a queue that costs so many units. If the account is cut off, the request
// is not made, or its answer is lost if it is under way.
func (m *meter) call(op, object string, request func() (units int, err error)) error {
	m.requests.Add(1)
	if m.dark.Load() {
		m.failed.Add(1)
		return m.cut(op, object)
	}
	units, err := request()
	if m.dark.Load() {
		m.failed.Add(1)
		return m.cut(op, object)
	}
	switch {
	case err == nil:
		m.units.Add(int64(units))
	case storage.Is(err, storage.Throttled):
		m.throttled.Add(1)
	case storage.Is(err, storage.Canceled): // never sent
		m.requests.Add(-1)
	case storage.Is(err, storage.Gone): // an answer like any other
		m.units.Add(int64(units))
	default:
		m.failed.Add(1)
	}
	return err
}

// row makes a request to the table, which has other limits.
func (m *meter) row(op, object string, request func() error) error {
	m.control.Add(1)
	if m.dark.Load() {
		return m.cut(op, object)
	}
	err := request()
	if m.dark.Load() {
		return m.cut(op, object)
	}
	return err
}

// wrap gives an account that is counted. All requests to tables go to the one named table: the rows
// of a test must be away from all others.
func (m *meter) wrap(a storage.Account, table string) storage.Account {
	return &meteredAccount{Account: a, meter: m, table: table}
}

type meteredAccount struct {
	storage.Account
	meter *meter
	table string
}

func (a *meteredAccount) Queue(name string) storage.Queue {
	return &meteredQueue{Queue: a.Account.Queue(name), meter: a.meter}
}

func (a *meteredAccount) Table(string) storage.Table {
	return &meteredTable{Table: a.Account.Table(a.table), meter: a.meter}
}

func (a *meteredAccount) Queues(ctx context.Context, prefix string) (names []string, err error) {
	err = a.meter.call("list", prefix, func() (int, error) {
		names, err = a.Account.Queues(ctx, prefix)
		return 1, err
	})
	return names, err
}

type meteredQueue struct {
	storage.Queue
	meter *meter
}

func (q *meteredQueue) Put(
	ctx context.Context, text []byte, delay time.Duration,
) (r storage.Receipt, err error) {
	err = q.meter.call("put", q.Name(), func() (int, error) {
		r, err = q.Queue.Put(ctx, text, delay)
		if err == nil {
			q.meter.puts.Add(1)
		}
		return 1, err
	})
	return r, err
}

func (q *meteredQueue) Get(
	ctx context.Context, n int, visibility time.Duration,
) (ms []storage.Message, err error) {
	err = q.meter.call("get", q.Name(), func() (int, error) {
		ms, err = q.Queue.Get(ctx, n, visibility)
		q.meter.taken.Add(int64(len(ms)))
		if q.meter.getEach {
			return max(len(ms), 1), err
		}
		return 1, err
	})
	if err != nil {
		ms = nil // the answer was lost
	}
	return ms, err
}

func (q *meteredQueue) Peek(ctx context.Context, n int) (ms []storage.Message, err error) {
	err = q.meter.call("peek", q.Name(), func() (int, error) {
		ms, err = q.Queue.Peek(ctx, n)
		if q.meter.getEach {
			return max(len(ms), 1), err
		}
		return 1, err
	})
	return ms, err
}

func (q *meteredQueue) Renew(
	ctx context.Context, r storage.Receipt, visibility time.Duration,
) (now storage.Receipt, err error) {
	err = q.meter.call("renew", q.Name(), func() (int, error) {
		now, err = q.Queue.Renew(ctx, r, visibility)
		return 1, err
	})
	return now, err
}

func (q *meteredQueue) Replace(
	ctx context.Context, r storage.Receipt, text []byte, visibility time.Duration,
) (now storage.Receipt, err error) {
	err = q.meter.call("replace", q.Name(), func() (int, error) {
		now, err = q.Queue.Replace(ctx, r, text, visibility)
		return 1, err
	})
	return now, err
}

func (q *meteredQueue) Delete(ctx context.Context, r storage.Receipt) error {
	return q.meter.call("delete", q.Name(), func() (int, error) { return 1, q.Queue.Delete(ctx, r) })
}

func (q *meteredQueue) Create(ctx context.Context) error {
	return q.meter.call("create", q.Name(), func() (int, error) { return 1, q.Queue.Create(ctx) })
}

func (q *meteredQueue) Count(ctx context.Context) (n int64, err error) {
	err = q.meter.call("count", q.Name(), func() (int, error) {
		n, err = q.Queue.Count(ctx)
		return 1, err
	})
	return n, err
}

type meteredTable struct {
	storage.Table
	meter *meter
}

func (t *meteredTable) Create(ctx context.Context) error {
	return t.meter.row("create", t.Name(), func() error { return t.Table.Create(ctx) })
}

func (t *meteredTable) Read(
	ctx context.Context, partition, row string,
) (e storage.Entity, err error) {
	err = t.meter.row("read", t.Name(), func() error {
		e, err = t.Table.Read(ctx, partition, row)
		return err
	})
	return e, err
}

func (t *meteredTable) Write(ctx context.Context, w storage.Write) (tag storage.ETag, err error) {
	err = t.meter.row("write", t.Name(), func() error {
		tag, err = t.Table.Write(ctx, w)
		return err
	})
	return tag, err
}

func (t *meteredTable) Transact(
	ctx context.Context, ws []storage.Write,
) (tags []storage.ETag, err error) {
	err = t.meter.row("write", t.Name(), func() error {
		tags, err = t.Table.Transact(ctx, ws)
		return err
	})
	return tags, err
}

func (t *meteredTable) Query(
	ctx context.Context, q storage.Query,
) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		t.meter.control.Add(1)
		for e, err := range t.Table.Query(ctx, q) {
			// Asked for each row, as each page is a request of its own.
			if t.meter.dark.Load() {
				yield(storage.Entity{}, t.meter.cut("query", t.Name()))
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
