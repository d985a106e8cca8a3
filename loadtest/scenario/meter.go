package scenario

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/through"
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

// meteredAccount is an account that is counted. All requests to tables go to the one named table:
// the rows of a test must be away from all others.
type meteredAccount struct {
	storage.Account
	meter *meter
	table string
}

func (a *meteredAccount) Queue(name string) storage.Queue {
	q := a.Account.Queue(name)
	return through.Queue{Called: name, Way: func(op string, request func(storage.Queue) error) error {
		return a.meter.call(op, name, func() (int, error) {
			it := &meteredQueue{Queue: q, meter: a.meter, units: 1}
			err := request(it)
			return it.units, err
		})
	}}
}

func (a *meteredAccount) Table(string) storage.Table {
	t := a.Account.Table(a.table)
	return through.Table{
		Called: a.table,
		Way: func(op string, request func(storage.Table) error) error {
			return a.meter.row(op, a.table, func() error { return request(t) })
		},
		Row: func(int) error { // as each page is a request of its own
			if a.meter.dark.Load() {
				return a.meter.cut("query", a.table)
			}
			return nil
		},
	}
}

func (a *meteredAccount) Queues(ctx context.Context, prefix string) (names []string, err error) {
	err = a.meter.call("list", prefix, func() (int, error) {
		names, err = a.Account.Queues(ctx, prefix)
		return 1, err
	})
	return names, err
}

// meteredQueue makes one request.
type meteredQueue struct {
	storage.Queue
	meter *meter
	units int // of the request
}

func (q *meteredQueue) Put(
	ctx context.Context, text []byte, delay time.Duration,
) (storage.Receipt, error) {
	r, err := q.Queue.Put(ctx, text, delay)
	if err == nil {
		q.meter.puts.Add(1)
	}
	return r, err
}

func (q *meteredQueue) Get(
	ctx context.Context, n int, visibility time.Duration,
) ([]storage.Message, error) {
	ms, err := q.Queue.Get(ctx, n, visibility)
	q.meter.taken.Add(int64(len(ms)))
	q.gave(len(ms))
	return ms, err
}

func (q *meteredQueue) Peek(ctx context.Context, n int) ([]storage.Message, error) {
	ms, err := q.Queue.Peek(ctx, n)
	q.gave(len(ms))
	return ms, err
}

func (q *meteredQueue) gave(messages int) {
	if q.meter.getEach {
		q.units = max(messages, 1)
	}
}
