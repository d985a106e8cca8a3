package storagetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// acted are the faults after which the server has acted but the caller cannot know it.
var acted = map[string]Fault{
	"lost": LoseAnswer, "cut": CutAnswer, "garbled": GarbleAnswer, "500": Broken,
}

// maybe makes a call whose answer does not come through and checks its error.
func (c *C) maybe(fault Fault, what string, call func() error) {
	before := c.Wire.Requests()
	c.Wire.Break(fault, 1)
	err := call()
	c.want(storage.MaybeDone, err, what)
	if !storage.Ambiguous(err) {
		c.Errorf("%s: %v is not ambiguous", what, err)
	}
	if n := c.Wire.Requests() - before; n != 1 {
		c.Errorf("%s: %d requests, the driver must not retry", what, n)
	}
	if err != nil && strings.Contains(err.Error(), "not-for-the-log") {
		c.Errorf("%s: a signature is in the error: %v", what, err)
	}
}

// Cases about calls if the caller cannot know whether they were done: the windows of vulnerability
// in docs/protocols.md.
var ambiguityCases = []testCase{
	{name: "a put that is lost on the way leaves nothing", run: func(c *C) {
		q := c.queue()
		c.maybe(LoseRequest, "put", func() error { _, err := q.Put(c.ctx, []byte("x"), 0); return err })
		c.expect(q, 0, "%d messages")
	}},
	{name: "a put whose answer is lost leaves one message", run: func(c *C) {
		for how, fault := range acted {
			q := c.queue()
			c.maybe(fault, "put, answer "+how, func() error {
				return errOf(q.Put(c.ctx, []byte("x"), 0))
			})
			if n := c.visible(q); n != 1 {
				c.Errorf("answer %s: %d messages", how, n)
			}
		}
	}},
	{name: "a get whose answer is lost has hidden its messages and is not empty", run: func(c *C) {
		for how, fault := range acted {
			q := c.queue()
			for range 3 {
				c.put(q, "x")
			}
			c.maybe(fault, "get, answer "+how, func() error {
				return errOf(q.Get(c.ctx, 32, time.Hour))
			})
			if n := c.visible(q); n != 0 {
				c.Errorf("answer %s: %d messages are visible", how, n)
			}
			if n, err := q.Count(c.ctx); err != nil || n < 3 {
				c.Errorf("answer %s: count %d, %v", how, n, err)
			}
		}
	}},
	{
		name:  "the messages of a get whose answer was lost come back with the delivery counted",
		waits: true,
		run: func(c *C) {
			q := c.queue()
			c.put(q, "x")
			c.maybe(LoseAnswer, "get", func() error { _, err := q.Get(c.ctx, 32, time.Second); return err })
			c.await("the message to come back", func() bool { return c.visible(q) == 1 })
			if m := c.get(q, time.Hour); m.Dequeued != 2 {
				c.Errorf("dequeued %d, want 2", m.Dequeued)
			}
		},
	},
	{name: "a delete whose answer is lost is Gone when repeated", run: func(c *C) {
		for _, how := range []string{"lost", "500"} {
			q, m := c.taken("x")
			c.maybe(acted[how], "delete, answer "+how, func() error { return q.Delete(c.ctx, m.Receipt) })
			c.want(storage.Gone, q.Delete(c.ctx, m.Receipt), "the same delete again")
		}
	}},
	{name: "a delete that is lost on the way can be repeated", run: func(c *C) {
		q, m := c.taken("x")
		c.maybe(LoseRequest, "delete", func() error { return q.Delete(c.ctx, m.Receipt) })
		c.must(q.Delete(c.ctx, m.Receipt))
	}},
	{name: "a renewal whose answer is lost leaves no process with a live receipt", run: func(c *C) {
		for how, fault := range acted {
			if fault == CutAnswer {
				continue // its answer has no body
			}
			q, m := c.taken("x")
			c.maybe(fault, "renew, answer "+how, func() error {
				return errOf(q.Renew(c.ctx, m.Receipt, 2*time.Hour))
			})
			c.want(storage.Gone, q.Delete(c.ctx, m.Receipt), "delete with the old receipt")
			c.want(storage.Gone,
				errOf(q.Renew(c.ctx, m.Receipt, time.Hour)), "renew with the old receipt")
		}
	}},
	{
		name: "an insert whose answer is lost is Exists when repeated, and the row is its own",
		run: func(c *C) {
			t := c.table()
			for how, fault := range acted {
				if fault == CutAnswer {
					continue
				}
				w := insert("p", "row"+how, map[string]any{"nonce": how})
				c.maybe(fault, "insert, answer "+how, func() error { _, err := t.Write(c.ctx, w); return err })
				c.want(storage.Exists, errOf(t.Write(c.ctx, w)), "the same insert again")
				c.same("row", c.properties(t, "p", "row"+how), map[string]any{"nonce": how})
			}
		},
	},
	{
		name: "a conditional write whose answer is lost is Precondition when " +
			"repeated, and the row is its own",
		run: func(c *C) {
			t := c.table()
			for how, fault := range acted {
				if fault == CutAnswer {
					continue
				}
				etag := c.write(t, insert("p", "row"+how, nil))
				w := write(storage.Replace, "p", "row"+how, etag, map[string]any{"nonce": how})
				c.maybe(fault, "replace, answer "+how, func() error { _, err := t.Write(c.ctx, w); return err })
				c.want(storage.Precondition, errOf(t.Write(c.ctx, w)), "the same write again")
				c.same("row", c.properties(t, "p", "row"+how), map[string]any{"nonce": how})
			}
		},
	},
	{name: "a transaction whose answer is lost is done, whole", run: func(c *C) {
		t := c.table()
		for how, fault := range acted {
			writes := []storage.Write{insert(how, "a", nil), insert(how, "b", nil)}
			c.maybe(fault, "transact, answer "+how, func() error {
				return errOf(t.Transact(c.ctx, writes))
			})
			c.want(storage.Exists, errOf(t.Transact(c.ctx, writes)), "the same transaction again")
			all := c.rows(t, storage.Query{Partition: how})
			if len(all) != 2 {
				c.Errorf("answer %s: %d rows", how, len(all))
			}
		}
	}},
	{name: "a transaction that is lost on the way changed nothing", run: func(c *C) {
		t := c.table()
		writes := []storage.Write{insert("p", "a", nil), insert("p", "b", nil)}
		c.maybe(LoseRequest, "transact", func() error { _, err := t.Transact(c.ctx, writes); return err })
		c.must(errOf(t.Transact(c.ctx, writes)))
	}},
	{name: "a query that breaks yields its error and ends", run: func(c *C) {
		t := c.table()
		c.fill(t, "p", 5)
		for how, fault := range acted {
			c.Wire.Break(fault, 1)
			rows, failures := 0, 0
			for _, err := range t.Query(c.ctx, storage.Query{Partition: "p"}) {
				if err != nil {
					c.want(storage.MaybeDone, err, "query, answer "+how)
					failures++
				} else {
					rows++
				}
			}
			if failures != 1 || rows != 0 {
				c.Errorf("answer %s: %d rows, %d errors", how, rows, failures)
			}
		}
	}},
	{name: "a read whose answer does not come through is not Gone", run: func(c *C) {
		t := c.table()
		for how, fault := range acted {
			c.maybe(fault, "read, answer "+how, func() error {
				return errOf(t.Read(c.ctx, "p", "absent"))
			})
		}
	}},
	{
		name: "a server that is too busy is Throttled at once, with the pause it asks for",
		run: func(c *C) {
			q, t := c.queue(), c.table()
			for op, call := range map[string]func() error{
				"put":   func() error { _, err := q.Put(c.ctx, []byte("x"), 0); return err },
				"get":   func() error { _, err := q.Get(c.ctx, 1, time.Hour); return err },
				"count": func() error { _, err := q.Count(c.ctx); return err },
				"write": func() error { _, err := t.Write(c.ctx, insert("p", "r", nil)); return err },
				"transact": func() error {
					return errOf(t.Transact(c.ctx, []storage.Write{insert("p", "r", nil)}))
				},
			} {
				before := c.Wire.Requests()
				c.Wire.Break(Busy, 1)
				err := call()
				c.want(storage.Throttled, err, op)
				e, ok := errors.AsType[*storage.Error](err)
				if !ok || e.RetryAfter != 7*time.Second || e.Status != 503 || e.Service != "ServerBusy" {
					c.Errorf("%s: %+v does not say what the server said", op, e)
				}
				if n := c.Wire.Requests() - before; n != 1 {
					c.Errorf("%s: %d requests, a throttle must reach the budget", op, n)
				}
			}
			c.Wire.Break(TimedOut, 1)
			err := errOf(q.Put(c.ctx, []byte("x"), 0))
			c.want(storage.Throttled, err, "put that timed out in the server")
			if !storage.Ambiguous(err) || c.visible(q) != 1 {
				c.Errorf("a put that timed out in the server is in the queue: %v", err)
			}
		},
	},
	{name: "a server that hangs ends with the context, as maybe done", run: func(c *C) {
		q := c.queue()
		c.maybe(Hang, "put", func() error {
			ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second) // in which it must be sent
			defer cancel()
			_, err := q.Put(ctx, []byte("x"), 0)
			if !errors.Is(err, context.DeadlineExceeded) {
				c.Errorf("the cause is not the deadline: %v", err)
			}
			return err
		})
	}},
	{name: "a server that hangs ends without a deadline too", virtual: true, run: func(c *C) {
		q := c.queue()
		from := time.Now()
		c.maybe(Hang, "put", func() error { _, err := q.Put(c.ctx, []byte("x"), 0); return err })
		if d := time.Since(from); d > time.Minute {
			c.Errorf("it took %v", d)
		}
	}},
}
