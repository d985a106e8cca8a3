package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Cases about queues as things that are made, named, listed and dropped.
var queueCases = []testCase{
	{name: "creating a queue that exists is success", run: func(c *C) {
		q := c.queue()
		c.must(q.Create(c.ctx))
		c.put(q, "kept")
		c.must(q.Create(c.ctx))
		c.expect(q, 1, "%d messages after creating again, want 1")
	}},
	{name: "every request of a queue that is not there is Missing", run: func(c *C) {
		q := c.Account.Queue(c.name())
		r := storage.Receipt{
			ID: "f7bff1d3-3b0b-4b38-9e1c-5e2e8a1f0f00", PopReceipt: "AgAAAAMAAAAAAAAAMhKHpEdo1QE=",
		}
		for op, call := range map[string]func() error{
			"drop":    func() error { return q.Drop(c.ctx) },
			"put":     func() error { _, err := q.Put(c.ctx, []byte("x"), 0); return err },
			"get":     func() error { _, err := q.Get(c.ctx, 1, time.Second); return err },
			"peek":    func() error { _, err := q.Peek(c.ctx, 1); return err },
			"renew":   func() error { _, err := q.Renew(c.ctx, r, time.Second); return err },
			"replace": func() error { _, err := q.Replace(c.ctx, r, []byte("x"), 0); return err },
			"delete":  func() error { return q.Delete(c.ctx, r) },
			"count":   func() error { _, err := q.Count(c.ctx); return err },
			"clear":   func() error { return q.Clear(c.ctx) },
		} {
			c.want(storage.Missing, call(), op)
		}
	}},
	{name: "a dropped queue is gone with all it held", run: func(c *C) {
		q := c.queue()
		c.put(q, "lost")
		c.must(q.Drop(c.ctx))
		c.want(storage.Missing, errOf(q.Peek(c.ctx, 1)), "peek after drop")
		c.want(storage.Missing, q.Drop(c.ctx), "second drop")
	}},
	{name: "creating a queue while the older one is being deleted is Missing", run: func(c *C) {
		q := c.queue()
		c.must(q.Drop(c.ctx))
		c.want(storage.Missing, q.Create(c.ctx), "create right after drop")
	}},
	{
		name: "a queue can be created again once the older one is deleted", virtual: true,
		run: func(c *C) {
			q := c.queue()
			c.put(q, "old")
			c.must(q.Drop(c.ctx))
			c.await("the queue to be deleted", func() bool { return q.Create(c.ctx) == nil })
			c.expect(q, 0, "the new queue holds %d messages of the old one")
		},
	},
	{name: "a name that no queue can have is Invalid", run: func(c *C) {
		for _, name := range []string{
			"", "ab", "UPPER", "under_score", "../other", "a?b", "dot.dot", "two--dashes", "-dash", "dash-",
			string(make([]byte, 64)),
		} {
			c.want(storage.Invalid, c.Account.Queue(name).Create(c.ctx), name)
		}
	}},
	{name: "queues are listed by prefix and in order", run: func(c *C) {
		prefix := c.name()
		var want []string
		for _, suffix := range []string{"b", "a", "c-9", "c-10"} {
			q := c.Account.Queue(prefix + suffix)
			c.must(q.Create(c.ctx))
			c.later(q.Drop)
			want = append(want, prefix+suffix)
		}
		slices.Sort(want)
		got, err := c.Account.Queues(c.ctx, prefix)
		c.must(err)
		if !slices.Equal(got, want) {
			c.Errorf("listed %v, want %v", got, want)
		}
		if got, err = c.Account.Queues(c.ctx, prefix+"zzz"); err != nil || len(got) != 0 {
			c.Errorf("listed %v, %v under a prefix that no queue has", got, err)
		}
	}},
	{name: "the approximate count includes invisible messages and is never too low", run: func(c *C) {
		q := c.queue()
		for range 5 {
			c.put(q, "x")
		}
		if _, err := q.Get(c.ctx, 3, time.Hour); err != nil {
			c.Fatalf("%v", err)
		}
		n, err := q.Count(c.ctx)
		c.must(err)
		if n < 5 {
			c.Errorf("count %d with 2 visible and 3 invisible messages", n)
		}
	}},
	{name: "clear deletes visible and invisible messages", run: func(c *C) {
		q, held := c.taken("hidden")
		c.put(q, "visible")
		c.must(q.Clear(c.ctx))
		c.expect(q, 0, "%d messages are visible after clear")
		c.want(storage.Gone, q.Delete(c.ctx, held.Receipt), "deleting a message that was cleared")
	}},
	{name: "a call whose context has ended is Canceled and makes no request", run: func(c *C) {
		q, t := c.queue(), c.table()
		r := c.put(q, "kept")
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		sent := c.sending()
		for op, call := range map[string]func() error{
			"create": func() error { return q.Create(ended) },
			"put":    func() error { _, err := q.Put(ended, []byte("x"), 0); return err },
			"get":    func() error { _, err := q.Get(ended, 1, time.Second); return err },
			"delete": func() error { return q.Delete(ended, r) },
			"list":   func() error { _, err := c.Account.Queues(ended, "q"); return err },
			"read":   func() error { _, err := t.Read(ended, "p", "r"); return err },
			"write":  func() error { _, err := t.Write(ended, insert("p", "r", nil)); return err },
			"transact": func() error {
				return errOf(t.Transact(ended, []storage.Write{insert("p", "r", nil)}))
			},
			"query": func() error {
				for _, err := range t.Query(ended, storage.Query{Partition: "p"}) {
					return err
				}
				return nil
			},
		} {
			c.want(storage.Canceled, call(), op)
		}
		sent(0)
		c.expect(q, 1, "%d messages, want the one that was there")
	}},
	{name: "each call is one request", run: func(c *C) {
		q, t := c.queue(), c.table()
		one := func(op string, call func() error) {
			before := c.Wire.Requests()
			c.must(call())
			if n := c.Wire.Requests() - before; n != 1 {
				c.Errorf("%s made %d requests", op, n)
			}
		}
		var r storage.Receipt
		var ms []storage.Message
		one("put", func() (err error) { r, err = q.Put(c.ctx, []byte("x"), 0); return })
		one("get", func() (err error) { ms, err = q.Get(c.ctx, 32, time.Hour); return })
		if len(ms) != 1 {
			c.Fatalf("got %d messages", len(ms))
		}
		one("renew", func() (err error) { r, err = q.Renew(c.ctx, ms[0].Receipt, time.Hour); return })
		one("replace", func() (err error) {
			r, err = q.Replace(c.ctx, r, []byte("y"), time.Hour)
			return
		})
		one("delete", func() error { return q.Delete(c.ctx, r) })
		one("count", func() error { _, err := q.Count(c.ctx); return err })
		one("write", func() error { _, err := t.Write(c.ctx, insert("p", "r", nil)); return err })
		one("read", func() error { _, err := t.Read(c.ctx, "p", "r"); return err })
		one("transact", func() error {
			return errOf(t.Transact(c.ctx, []storage.Write{insert("p", "s", nil)}))
		})
		one("query", func() error {
			return errOf(collect(t.Query(c.ctx, storage.Query{Partition: "p"})))
		})
	}},
}
