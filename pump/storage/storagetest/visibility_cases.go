package storagetest

import (
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Cases about when a message can be seen. Where time is real nothing is
// asserted that a slow machine could break: what must be hidden is hidden for
// an hour, what must come back is waited for.
var visibilityCases = []testCase{
	{name: "a put with a delay is invisible until it ends", waits: true, run: func(c *C) {
		q := c.queue()
		r, err := q.Put(c.ctx, []byte("later"), time.Hour)
		c.must(err)
		c.expect(q, 0, "%d messages are visible")
		if ms, err := q.Get(c.ctx, 32, time.Hour); err != nil || len(ms) != 0 {
			c.Errorf("got %v, %v", ms, err)
		}
		c.must(errOf(q.Renew(c.ctx, r, 0)))
		c.expect(q, 1, "%d messages are visible after the delay was ended")
		c.must(errOf(q.Put(c.ctx, []byte("soon"), time.Second)))
		c.await("the delay to end", func() bool { return c.visible(q) == 2 })
	}},
	{
		name: "a get hides its messages and they come back when the visibility ends", waits: true,
		run: func(c *C) {
			q, held := c.taken("x")
			c.expect(q, 0, "%d messages are visible while one is held")
			c.must(errOf(q.Renew(c.ctx, held.Receipt, time.Second)))
			c.await("the message to come back", func() bool { return c.visible(q) == 1 })
			if again := c.get(q, time.Hour); again.Dequeued != 2 || again.ID != held.ID ||
				again.PopReceipt == held.PopReceipt {
				c.Errorf("came back as %+v after %+v", again, held)
			}
		},
	},
	{
		name:  "a receipt whose visibility has run out deletes until another process has got the message",
		waits: true,
		run: func(c *C) {
			q := c.queue()
			held := c.lapsed(q)
			c.must(q.Delete(c.ctx, held.Receipt))
			c.expect(q, 0, "%d messages left")
		},
	},
	{
		name:  "a receipt whose visibility has run out renews until another process has got the message",
		waits: true,
		run: func(c *C) {
			q := c.queue()
			held := c.lapsed(q)
			c.must(errOf(q.Renew(c.ctx, held.Receipt, time.Hour)))
			c.expect(q, 0, "%d messages are visible after the renewal")
		},
	},
	{
		name: "the older holder's receipt is Gone once another has got the message", waits: true,
		run: func(c *C) {
			q := c.queue()
			first := c.lapsed(q)
			second := c.get(q, time.Hour)
			c.want(storage.Gone, q.Delete(c.ctx, first.Receipt), "the first holder's delete")
			c.want(storage.Gone,
				errOf(q.Renew(c.ctx, first.Receipt, time.Hour)), "the first holder's renewal")
			c.want(storage.Gone,
				errOf(q.Replace(c.ctx, first.Receipt, []byte("stolen"), 0)),
				"the first holder's replacement")
			c.must(q.Delete(c.ctx, second.Receipt))
		},
	},
	{name: "a renewal to 0 makes the message visible now", run: func(c *C) {
		q, m := c.taken("x")
		c.must(errOf(q.Renew(c.ctx, m.Receipt, 0)))
		c.expect(q, 1, "%d messages are visible")
	}},
	{name: "visibility is 1 s to 7 days for a get and 0 to 7 days otherwise", run: func(c *C) {
		q := c.queue()
		r, err := q.Put(c.ctx, []byte("x"), storage.MaxVisibility)
		c.must(err)
		r, err = q.Renew(c.ctx, r, storage.MaxVisibility)
		c.must(err)
		c.must(errOf(q.Renew(c.ctx, r, 0)))
		m := c.get(q, storage.MaxVisibility)
		for _, d := range []time.Duration{
			-time.Second, storage.MaxVisibility + 1, storage.MaxVisibility * 1000,
		} {
			c.want(storage.Invalid, errOf(q.Put(c.ctx, []byte("x"), d)), "put")
			c.want(storage.Invalid, errOf(q.Get(c.ctx, 1, d)), "get")
			c.want(storage.Invalid, errOf(q.Renew(c.ctx, m.Receipt, d)), "renew")
			c.want(storage.Invalid, errOf(q.Replace(c.ctx, m.Receipt, []byte("x"), d)), "replace")
		}
		c.want(storage.Invalid, errOf(q.Get(c.ctx, 1, 0)), "get for no time")
	}},
	{name: "visibility ends when it should, to the second", virtual: true, run: func(c *C) {
		q := c.queue()
		check := func(what string, after time.Duration, want int) {
			time.Sleep(after)
			if n := c.visible(q); n != want {
				c.Errorf("%s: %d messages are visible, want %d", what, n, want)
			}
		}
		c.must(errOf(q.Put(c.ctx, []byte("x"), 90*time.Second)))
		check("89 s into a delay of 90 s", 89*time.Second, 0)
		check("after the delay", 2*time.Second, 1)
		m := c.get(q, 30*time.Second)
		check("29 s into a visibility of 30 s", 29*time.Second, 0)
		check("after the visibility", 2*time.Second, 1)
		r, err := q.Renew(c.ctx, m.Receipt, time.Hour)
		c.must(err)
		check("59 min into a renewal of 1 h", 59*time.Minute, 0)
		c.must(errOf(q.Renew(c.ctx, r, 10*time.Second)))
		check("9 s into a renewal of 10 s", 9*time.Second, 0)
		check("after the renewal", 2*time.Second, 1)
	}},
	{name: "a part of a second of visibility counts as a whole one", virtual: true, run: func(c *C) {
		q := c.queue()
		c.put(q, "x")
		c.get(q, 1200*time.Millisecond)
		time.Sleep(1500 * time.Millisecond)
		c.expect(q, 0, "a get for 1.2 s was over after 1.5 s")
		time.Sleep(1600 * time.Millisecond)
		c.expect(q, 1, "a get for 1.2 s was not over after 3.1 s")
	}},
	{name: "a message never expires", virtual: true, run: func(c *C) {
		q := c.queue()
		c.put(q, "for ever")
		time.Sleep(400 * 24 * time.Hour)
		if m := c.get(q, time.Second); string(m.Text) != "for ever" || m.Dequeued != 1 {
			c.Errorf("after 400 days: %+v", m)
		}
	}},
}
