// Package testkit has what tests below the engine share.
//
// Its table in memory is for tests of what stands on tables: as many machines reach
// it as a test names, each over a way of its own that may be slow, lose a request or its answer, or
// hang. It counts and keeps what was asked. Tests that must see how properties, stamps and failures
// really travel take the driver and a simulated account instead, see [OverTheWire].
package testkit

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

// fakeTable is the name of the table.
const fakeTable = "queuepump"

// Server is a table in memory, stricter than the service where that matters
// here: an ETag never comes again, values must be of the types of the contract.
type Server struct {
	Mu      sync.Mutex
	Exists  bool
	Rows    map[string]storage.Entity
	version int
	Offset  time.Duration // of the server's clock
	history []storage.Entity
}

// NewServer is a table without rows.
func NewServer() *Server {
	return &Server{Exists: true, Rows: map[string]storage.Entity{}}
}

// Client is one machine's way to the server.
type Client struct {
	*Server
	name string

	// Guarded by Server.Mu.
	latency func(Call) time.Duration // of a round trip; nil: 10 ms
	fault   func(Call) Fault         // nil: none
	calls   map[string]int
	log     []Call
}

// SetFault says what goes wrong with requests from now on; nil: nothing.
func (c *Client) SetFault(f func(Call) Fault) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.fault = f
}

// SetLatency says how long the round trip of a request takes; nil: 10 ms.
func (c *Client) SetLatency(f func(Call) time.Duration) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.latency = f
}

// Sent gives the requests made so far.
func (c *Client) Sent() []Call {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return slices.Clone(c.log)
}

// Client is a new way to the server.
func (s *Server) Client(name string) *Client {
	return &Client{Server: s, name: name, calls: map[string]int{}}
}

// Call is one request; n counts those of one client, operation and row from 1.
type Call struct {
	Client, Op, Row string
	N               int
	Write           storage.Write
}

// Fault is what happens to a request.
type Fault struct {
	Code    storage.Code  // with fail
	Fail    bool          // answer code
	Act     bool          // with fail: the request still acts
	late    time.Duration // with act: it acts this long after the answer
	Hang    bool          // no answer until the context ends; act says whether it acts
	Delayed time.Duration // the request is this much longer under way
}

// What may happen to a request on its way: its caller does not hear what it did, or it never
// arrives.
var (
	LostAnswer  = Fault{Fail: true, Act: true, Code: storage.MaybeDone}
	LostRequest = Fault{Fail: true, Code: storage.MaybeDone}
)

// LandsLate is a request that is given up and acts d later.
func LandsLate(d time.Duration) Fault {
	return Fault{Fail: true, Act: true, late: d, Code: storage.MaybeDone}
}

func (c *Client) do(ctx context.Context, op, row string, w storage.Write, act func() error) error {
	c.Mu.Lock()
	c.calls[op+row]++
	this := Call{c.name, op, row, c.calls[op+row], w}
	this.Write.Entity.Properties = maps.Clone(w.Entity.Properties)
	c.log = append(c.log, this)
	delays, faults := c.latency, c.fault
	c.Mu.Unlock()
	if ctx.Err() != nil {
		return storage.NotSent(ctx, op, "fake", row)
	}
	latency := 10 * time.Millisecond
	if delays != nil {
		latency = delays(this)
	}
	var f Fault
	if faults != nil {
		f = faults(this)
	}
	answer := make(chan error, 1)
	failure := &storage.Error{Code: f.Code, Op: op, Account: "fake", Object: row, Index: -1}
	// The request acts half way, whether or not its caller still waits for it.
	if !f.Fail && !f.Hang || f.Act {
		time.AfterFunc(latency/2+f.Delayed+f.late, func() {
			err := act()
			if !f.Fail && !f.Hang {
				time.AfterFunc(latency-latency/2, func() { answer <- err })
			}
		})
	}
	if f.Fail && !f.Hang {
		time.AfterFunc(latency+f.Delayed, func() { answer <- failure })
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return &storage.Error{
			Code: storage.MaybeDone, Op: op, Account: "fake", Object: row, Index: -1, Err: ctx.Err(),
		}
	}
}

func (s *Server) problem(code storage.Code, row string) error {
	return &storage.Error{Code: code, Op: "fake", Account: "fake", Object: row, Index: -1}
}

// Name implements [storage.Table], as the methods below do.
func (c *Client) Name() string { return fakeTable }

func (c *Client) Create(ctx context.Context) error {
	return c.do(ctx, "create", "", storage.Write{}, func() error {
		c.Mu.Lock()
		defer c.Mu.Unlock()
		c.Exists = true
		return nil
	})
}

func (c *Client) Drop(context.Context) error { return errors.ErrUnsupported }

// Transact is one write to faults and calls: that of its first row.
func (c *Client) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	key := writes[0].Entity.Partition + "/" + writes[0].Entity.Row
	etags := make([]storage.ETag, len(writes))
	err := c.do(ctx, "write", key, writes[0], func() (err error) {
		c.Mu.Lock()
		before, version := maps.Clone(c.Rows), c.version
		c.Mu.Unlock()
		for i, w := range writes {
			if etags[i], err = c.Apply(w.Entity.Partition+"/"+w.Entity.Row, w); err != nil {
				c.Mu.Lock()
				c.Rows, c.version = before, version
				c.Mu.Unlock()
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

func (c *Client) Read(ctx context.Context, partition, row string) (e storage.Entity, err error) {
	key := partition + "/" + row
	var read storage.Entity
	err = c.do(ctx, "read", key, storage.Write{}, func() error {
		c.Mu.Lock()
		defer c.Mu.Unlock()
		if !c.Exists {
			return c.problem(storage.Missing, key)
		}
		var ok bool
		if read, ok = c.Rows[key]; !ok {
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

func (c *Client) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	key := w.Entity.Partition + "/" + w.Entity.Row
	var etag storage.ETag
	err := c.do(ctx, "write", key, w, func() (err error) {
		etag, err = c.Apply(key, w)
		return err
	})
	if err != nil {
		return "", err
	}
	return etag, nil
}

// Apply is the server's side of a write.
func (s *Server) Apply(key string, w storage.Write) (storage.ETag, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if !s.Exists {
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
	old, ok := s.Rows[key]
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
		ETag: storage.ETag(fmt.Sprintf("W/%d", s.version)), Modified: time.Now().Add(s.Offset).Round(0),
	}
	s.Rows[key] = e
	s.history = append(s.history, e)
	return e.ETag, nil
}

// Written is every version of every row so far. A write that its client gave up may still land.
func (s *Server) Written() []storage.Entity {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.Clone(s.history)
}

func (c *Client) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		if err := CheckKeys(q); err != nil {
			yield(storage.Entity{}, err)
			return
		}
		var found []storage.Entity
		err := c.do(ctx, "query", q.Partition, storage.Write{}, func() error {
			c.Mu.Lock()
			defer c.Mu.Unlock()
			for _, e := range c.Rows {
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

// CheckKeys refuses a query as a driver does: its keys have a character that keys have not.
func CheckKeys(q storage.Query) error {
	strange := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && !(r >= '0' && r <= '9') && !strings.ContainsRune("-.~_", r)
	}
	for _, key := range []string{q.Partition, q.From, q.To} {
		if strings.ContainsFunc(key, strange) {
			return &storage.Error{Code: storage.Invalid, Op: "query", Object: key, Index: -1}
		}
	}
	return nil
}

// Dies makes a machine disappear: its beats reach no row and it hears nothing.
func (c *Client) Dies() { c.SetFault(func(Call) Fault { return Fault{Hang: true} }) }

// Writes counts a client's writes of a row.
func (c *Client) Writes(row string) (n int) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.calls["write"+row]
}

// Skewed is the table for a machine whose clock is wrong: the server's times differ from the
// machine's own.
type Skewed struct {
	storage.Table
	By time.Duration
}

func (s Skewed) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	e, err := s.Table.Read(ctx, partition, row)
	if err == nil {
		e.Modified = e.Modified.Add(s.By)
	}
	return e, err
}

// SeededDraw draws as P9 (docs/protocols.md) wants it.
func SeededDraw(seed uint64, instance string) func(operation, object string) uint64 {
	var mu sync.Mutex
	times := map[string]int{}
	return func(operation, object string) uint64 {
		mu.Lock()
		defer mu.Unlock()
		key := instance + "\x00" + operation + "\x00" + object
		times[key]++
		return Hash(seed, key, times[key])
	}
}

// Hash is where the chance of tests comes from.
func Hash(seed uint64, key string, n int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\x00%s\x00%d", seed, key, n)
	x := h.Sum64() // FNV's high bits move too little on short inputs
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// FaultOn applies a fault to the n-th call of an operation on a row.
func FaultOn(op, row string, n int, f Fault) func(Call) Fault {
	return func(c Call) Fault {
		if c.Op == op && strings.HasSuffix(c.Row, row) && c.N == n {
			return f
		}
		return Fault{}
	}
}
