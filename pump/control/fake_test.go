package control

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// fakeServer is a table in memory, stricter than the service where that matters
// here: an ETag never comes again, values must be of the types of the contract.
type fakeServer struct {
	mu      sync.Mutex
	exists  bool
	rows    map[string]storage.Entity
	version int
	offset  time.Duration // of the server's clock
	history []storage.Entity
}

func newFakeServer() *fakeServer {
	return &fakeServer{exists: true, rows: map[string]storage.Entity{}}
}

// fakeClient is one machine's way to the server.
type fakeClient struct {
	*fakeServer
	name string

	// Guarded by fakeServer.mu.
	latency func(call) time.Duration // of a round trip; nil: 10 ms
	fault   func(call) fault         // nil: none
	calls   map[string]int
	log     []call
}

func (c *fakeClient) setFault(f func(call) fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

func (c *fakeClient) setLatency(f func(call) time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latency = f
}

// sent gives the requests made so far.
func (c *fakeClient) sent() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

func (s *fakeServer) client(name string) *fakeClient {
	return &fakeClient{fakeServer: s, name: name, calls: map[string]int{}}
}

// call is one request; n counts those of one client, operation and row from 1.
type call struct {
	client, op, row string
	n               int
	write           storage.Write
}

// fault is what happens to a request.
type fault struct {
	code    storage.Code  // with fail
	fail    bool          // answer code
	act     bool          // with fail: the request acts all the same
	late    time.Duration // with act: it acts this long after the answer
	hang    bool          // no answer until the context ends; act says whether it acts
	delayed time.Duration // the request is this much longer under way
}

var (
	lostAnswer  = fault{fail: true, act: true, code: storage.MaybeDone}
	lostRequest = fault{fail: true, code: storage.MaybeDone}
)

func landsLate(d time.Duration) fault {
	return fault{fail: true, act: true, late: d, code: storage.MaybeDone}
}

func (c *fakeClient) do(ctx context.Context, op, row string, w storage.Write, act func() error) error {
	c.mu.Lock()
	c.calls[op+row]++
	this := call{c.name, op, row, c.calls[op+row], w}
	this.write.Entity.Properties = maps.Clone(w.Entity.Properties)
	c.log = append(c.log, this)
	delays, faults := c.latency, c.fault
	c.mu.Unlock()
	if ctx.Err() != nil {
		return storage.NotSent(ctx, op, "fake", row)
	}
	latency := 10 * time.Millisecond
	if delays != nil {
		latency = delays(this)
	}
	var f fault
	if faults != nil {
		f = faults(this)
	}
	answer := make(chan error, 1)
	failure := &storage.Error{Code: f.code, Op: op, Account: "fake", Object: row, Index: -1}
	// The request acts half way, whether or not somebody still waits for it.
	if !f.fail && !f.hang || f.act {
		time.AfterFunc(latency/2+f.delayed+f.late, func() {
			err := act()
			if !f.fail && !f.hang {
				time.AfterFunc(latency-latency/2, func() { answer <- err })
			}
		})
	}
	if f.fail && !f.hang {
		time.AfterFunc(latency+f.delayed, func() { answer <- failure })
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return &storage.Error{Code: storage.MaybeDone, Op: op, Account: "fake", Object: row, Index: -1, Err: ctx.Err()}
	}
}

func (s *fakeServer) problem(code storage.Code, row string) error {
	return &storage.Error{Code: code, Op: "fake", Account: "fake", Object: row, Index: -1}
}

func (c *fakeClient) Name() string { return TableName }

func (c *fakeClient) Create(ctx context.Context) error {
	return c.do(ctx, "create", "", storage.Write{}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.exists = true
		return nil
	})
}

func (c *fakeClient) Drop(context.Context) error { return errors.ErrUnsupported }

// Transact is one write to faults and calls: that of its first row.
func (c *fakeClient) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	key := writes[0].Entity.Partition + "/" + writes[0].Entity.Row
	etags := make([]storage.ETag, len(writes))
	err := c.do(ctx, "write", key, writes[0], func() (err error) {
		c.mu.Lock()
		before, version := maps.Clone(c.rows), c.version
		c.mu.Unlock()
		for i, w := range writes {
			if etags[i], err = c.apply(w.Entity.Partition+"/"+w.Entity.Row, w); err != nil {
				c.mu.Lock()
				c.rows, c.version = before, version
				c.mu.Unlock()
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return etags, nil
}

func (c *fakeClient) Read(ctx context.Context, partition, row string) (e storage.Entity, err error) {
	key := partition + "/" + row
	var read storage.Entity
	err = c.do(ctx, "read", key, storage.Write{}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.exists {
			return c.problem(storage.Missing, key)
		}
		var ok bool
		if read, ok = c.rows[key]; !ok {
			return c.problem(storage.Gone, key)
		}
		read.Properties = maps.Clone(read.Properties)
		return nil
	})
	if err != nil {
		return storage.Entity{}, err
	}
	return read, nil
}

func (c *fakeClient) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	key := w.Entity.Partition + "/" + w.Entity.Row
	var etag storage.ETag
	err := c.do(ctx, "write", key, w, func() (err error) {
		etag, err = c.apply(key, w)
		return err
	})
	if err != nil {
		return "", err
	}
	return etag, nil
}

// apply is the server's side of a write.
func (s *fakeServer) apply(key string, w storage.Write) (storage.ETag, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exists {
		return "", s.problem(storage.Missing, key)
	}
	for name, v := range w.Entity.Properties {
		switch v := v.(type) {
		case string, int64, bool, float64, time.Time:
		case []byte:
			if len(v) > storage.MaxProperty {
				return "", s.problem(storage.TooLarge, key+" "+name)
			}
		default:
			return "", s.problem(storage.Invalid, fmt.Sprintf("%s %s is a %T", key, name, v))
		}
	}
	old, ok := s.rows[key]
	props := maps.Clone(w.Entity.Properties)
	switch w.Mode {
	case storage.Insert:
		if ok {
			return "", s.problem(storage.Exists, key)
		}
	case storage.Replace, storage.Merge:
		if !ok {
			return "", s.problem(storage.Gone, key)
		}
		if w.Entity.ETag == "" {
			return "", s.problem(storage.Invalid, key+": an unconditional write")
		}
		if old.ETag != w.Entity.ETag {
			return "", s.problem(storage.Precondition, key)
		}
		if w.Mode == storage.Merge {
			props = maps.Clone(old.Properties)
			maps.Copy(props, w.Entity.Properties)
		}
	case storage.Upsert:
	default:
		return "", s.problem(storage.Invalid, key)
	}
	s.version++
	e := storage.Entity{
		Partition: w.Entity.Partition, Row: w.Entity.Row, Properties: props,
		ETag: storage.ETag(fmt.Sprintf("W/%d", s.version)), Modified: time.Now().Add(s.offset).Round(0),
	}
	s.rows[key] = e
	s.history = append(s.history, e)
	return e.ETag, nil
}

// written is every version of every row so far. A write that its client has
// given up may still land meanwhile.
func (s *fakeServer) written() []storage.Entity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

func (c *fakeClient) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		var found []storage.Entity
		err := c.do(ctx, "query", q.Partition, storage.Write{}, func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, e := range c.rows {
				if e.Partition == q.Partition && e.Row >= q.From && (q.To == "" || e.Row < q.To) {
					found = append(found, e)
				}
			}
			return nil
		})
		if err != nil {
			yield(storage.Entity{}, err)
			return
		}
		slices.SortFunc(found, func(a, b storage.Entity) int { return strings.Compare(a.Row, b.Row) })
		for _, e := range found {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// skewed is the table as a machine sees it whose clock is wrong: what differs
// between two machines is how the server's times stand to their own.
type skewed struct {
	storage.Table
	by time.Duration
}

func (s skewed) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	e, err := s.Table.Read(ctx, partition, row)
	if err == nil {
		e.Modified = e.Modified.Add(s.by)
	}
	return e, err
}

// seededDraw is a Draw as P9 (pump/DESIGN.md) wants it.
func seededDraw(seed uint64, instance string) Draw {
	var mu sync.Mutex
	times := map[string]int{}
	return func(operation, object string) uint64 {
		mu.Lock()
		defer mu.Unlock()
		key := instance + "\x00" + operation + "\x00" + object
		times[key]++
		return hash(seed, key, times[key])
	}
}

func hash(seed uint64, key string, n int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\x00%s\x00%d", seed, key, n)
	x := h.Sum64() // FNV's high bits move too little on short inputs
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// only applies a fault to the n-th call of an operation on a row.
func only(op, row string, n int, f fault) func(call) fault {
	return func(c call) fault {
		if c.op == op && strings.HasSuffix(c.row, row) && c.n == n {
			return f
		}
		return fault{}
	}
}
