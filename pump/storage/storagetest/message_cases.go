package storagetest

import (
	"bytes"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// texts are message texts that XML makes difficult. Every one must come back as it is.
var texts = []string{
	"plain",
	"<QueueMessage><MessageText>&amp;&#65;]]></MessageText>",
	`quotes " and ' and & and < and >`,
	"tab\tnewline\nend",
	"carriage\r\nreturn\r",
	"\u0085\u00a0\u2028\u2029 separators",
	"é ß 漢字 😀 \U0010FFFD \uFFFD \uE000",
	"   leading and trailing   ",
	strings.Repeat("QUJD+/==", 1000),
}

// largest puts a text that just fits, by Put and by Replace, and one byte more.
func (c *C) largest(text []byte) {
	q := c.queue()
	r, err := q.Put(c.ctx, text, 0)
	c.must(err)
	r, err = q.Replace(c.ctx, r, text, 0)
	c.must(err)
	m := c.get(q, time.Hour)
	if !bytes.Equal(m.Text, text) {
		c.Errorf("put %d bytes of %.2q, got %d of %.8q", len(text), text, len(m.Text), m.Text)
	}
	c.want(storage.TooLarge, errOf(q.Put(c.ctx, append(text, 'A'), 0)), "put of 65,537 bytes")
	c.want(storage.TooLarge,
		errOf(q.Replace(c.ctx, r, append(text, 'A'), 0)), "replace by 65,537 bytes")
}

// Cases about putting, getting and ending messages.
var messageCases = []testCase{
	{name: "text comes back as it was put, byte for byte", run: func(c *C) {
		q := c.queue()
		for _, text := range texts {
			c.put(q, text)
			m := c.get(q, time.Hour)
			if string(m.Text) != text {
				c.Errorf("put %.80q, got %.80q", text, m.Text)
			}
			c.must(q.Delete(c.ctx, m.Receipt))
		}
	}},
	{name: "peek and replace keep text byte for byte", run: func(c *C) {
		q := c.queue()
		r := c.put(q, "first")
		for _, text := range texts {
			var err error
			r, err = q.Replace(c.ctx, r, []byte(text), 0)
			c.must(err)
			ms, err := q.Peek(c.ctx, 1)
			c.must(err)
			if len(ms) != 1 || string(ms[0].Text) != text {
				c.Errorf("replaced by %.80q, peeked %.80v", text, ms)
			}
		}
	}},
	{name: "an empty text is a message", run: func(c *C) {
		if _, m := c.taken(""); len(m.Text) != 0 {
			c.Errorf("put nothing, got %q", m.Text)
		}
	}},
	{name: "text of white space only comes back as it was put", run: func(c *C) {
		if _, m := c.taken(" \n\t "); string(m.Text) != " \n\t " {
			c.Errorf("put white space, got %q", m.Text)
		}
	}},
	{name: "text that XML cannot hold is Invalid and never sent", run: func(c *C) {
		q := c.queue()
		r := c.put(q, "kept")
		sent := c.sending()
		for _, text := range []string{
			"\x00", "a\x01b", "\x1f\x8b\x08 gzip", "\xff\xfe", "\xed\xa0\x80", "\uFFFE", "\uFFFF",
			strings.Repeat("a", 1000) + "\x0b",
		} {
			c.want(storage.Invalid, errOf(q.Put(c.ctx, []byte(text), 0)), "put")
			c.want(storage.Invalid, errOf(q.Replace(c.ctx, r, []byte(text), 0)), "replace")
		}
		sent(0)
	}},
	{name: "a message holds 65,536 bytes of text and not one more", run: func(c *C) {
		c.largest(bytes.Repeat([]byte("A"), storage.MaxText))
	}},
	{name: "the size of a text is counted before it is escaped", run: func(c *C) {
		c.largest(bytes.Repeat([]byte("<"), storage.MaxText)) // 262 KB when escaped
	}},
	{name: "the size of a text is counted in bytes of UTF-8", run: func(c *C) {
		c.largest(bytes.Repeat([]byte("é"), storage.MaxText/2))
	}},
	{
		name: "the receipt of a put deletes the message until another process has got it",
		run: func(c *C) {
			q := c.queue()
			c.must(q.Delete(c.ctx, c.put(q, "x")))
			c.expect(q, 0, "%d messages left")
		},
	},
	{name: "the receipt of a put is Gone once somebody has got the message", run: func(c *C) {
		q := c.queue()
		r := c.put(q, "x")
		c.get(q, time.Hour)
		c.want(storage.Gone, q.Delete(c.ctx, r), "delete")
		c.want(storage.Gone, errOf(q.Renew(c.ctx, r, time.Hour)), "renew")
	}},
	{name: "no visible message is an empty slice and no error", run: func(c *C) {
		q := c.queue()
		if ms, err := q.Get(c.ctx, 32, time.Second); err != nil || len(ms) != 0 {
			c.Errorf("got %v, %v of an empty queue", ms, err)
		}
		if ms, err := q.Peek(c.ctx, 32); err != nil || len(ms) != 0 {
			c.Errorf("peeked %v, %v of an empty queue", ms, err)
		}
	}},
	{name: "a get takes at most what was asked for, 32 at once", run: func(c *C) {
		q := c.queue()
		for range 40 {
			c.put(q, "x")
		}
		for _, n := range []int{1, 7, 32} {
			ms, err := q.Get(c.ctx, n, time.Hour)
			c.must(err)
			if len(ms) > n || len(ms) == 0 {
				c.Errorf("asked for %d, got %d", n, len(ms))
			}
		}
		for _, n := range []int{-1, 0, 33} {
			c.want(storage.Invalid, errOf(q.Get(c.ctx, n, time.Hour)), "get")
			c.want(storage.Invalid, errOf(q.Peek(c.ctx, n)), "peek")
		}
	}},
	{name: "the messages of one get are settled one by one", run: func(c *C) {
		q := c.queue()
		for range 8 {
			c.put(q, "x")
		}
		ms, err := q.Get(c.ctx, 32, time.Hour)
		c.must(err)
		if len(ms) != 8 {
			c.Fatalf("got %d messages, want 8", len(ms))
		}
		seen := map[storage.Receipt]bool{}
		for _, m := range ms {
			r := m.Receipt
			r.NextVisible = time.Time{}
			if seen[r] || r.ID == "" || r.PopReceipt == "" {
				c.Errorf("delivery %v is not named by id and receipt", r)
			}
			seen[r] = true
		}
		c.must(q.Delete(c.ctx, ms[3].Receipt))
		for i, m := range ms {
			if i != 3 {
				c.must(errOf(q.Renew(c.ctx, m.Receipt, time.Hour)))
			}
		}
	}},
	{name: "the texts of one get do not share memory", run: func(c *C) {
		q := c.queue()
		for range 4 {
			c.put(q, "untouched")
		}
		ms, err := q.Get(c.ctx, 32, time.Hour)
		c.must(err)
		if len(ms) != 4 {
			c.Fatalf("got %d messages, want 4", len(ms))
		}
		for i := range ms[0].Text {
			ms[0].Text[i] = '!'
		}
		ms[0].Text = append(ms[0].Text, bytes.Repeat([]byte("!"), 100)...)
		for _, m := range ms[1:] {
			if string(m.Text) != "untouched" {
				c.Errorf("writing into one text made another %q", m.Text)
			}
		}
	}},
	{name: "a peek takes nothing, counts nothing and gives no receipt", run: func(c *C) {
		q := c.queue()
		c.put(q, "x")
		for range 3 {
			ms, err := q.Peek(c.ctx, 32)
			c.must(err)
			if len(ms) != 1 || ms[0].PopReceipt != "" || ms[0].Dequeued != 0 || ms[0].ID == "" ||
				string(ms[0].Text) != "x" {
				c.Errorf("peeked %+v", ms)
			}
		}
		if m := c.get(q, time.Hour); m.Dequeued != 1 {
			c.Errorf("dequeued %d after three peeks and a get", m.Dequeued)
		}
	}},
	{name: "each get of a message counts one delivery", run: func(c *C) {
		q := c.queue()
		c.put(q, "x")
		for i := range int64(4) {
			m := c.get(q, time.Hour)
			if m.Dequeued != i+1 {
				c.Errorf("delivery %d says %d", i+1, m.Dequeued)
			}
			c.must(errOf(q.Renew(c.ctx, m.Receipt, 0)))
		}
	}},
	{name: "deleting twice is Gone", run: func(c *C) {
		q, m := c.taken("x")
		c.must(q.Delete(c.ctx, m.Receipt))
		c.want(storage.Gone, q.Delete(c.ctx, m.Receipt), "second delete")
		c.want(storage.Gone, errOf(q.Renew(c.ctx, m.Receipt, time.Hour)), "renew of a deleted message")
		c.want(storage.Gone,
			errOf(q.Replace(c.ctx, m.Receipt, []byte("y"), time.Hour)), "replace of a deleted message")
	}},
	{name: "an id that the queue does not hold is Gone", run: func(c *C) {
		q := c.queue()
		c.put(q, "x")
		r := c.get(q, time.Hour).Receipt
		r.ID = "00000000-0000-0000-0000-000000000000"
		c.want(storage.Gone, q.Delete(c.ctx, r), "delete")
	}},
	{name: "a receipt that is not a receipt is Invalid", run: func(c *C) {
		q := c.queue()
		r := c.put(q, "x")
		r.PopReceipt = "no receipt"
		c.want(storage.Invalid, q.Delete(c.ctx, r), "delete with garbage")
	}},
	{name: "a receipt that cannot address a message is Invalid and never sent", run: func(c *C) {
		q := c.queue()
		r := c.put(q, "x")
		sent := c.sending()
		for _, bad := range []storage.Receipt{
			{},
			{ID: r.ID},
			{PopReceipt: r.PopReceipt},
			{ID: "../../other/messages/" + r.ID, PopReceipt: r.PopReceipt},
			{ID: r.ID + "?x", PopReceipt: r.PopReceipt},
		} {
			c.want(storage.Invalid, q.Delete(c.ctx, bad), "delete")
			c.want(storage.Invalid, errOf(q.Renew(c.ctx, bad, time.Hour)), "renew")
		}
		sent(0)
	}},
	{name: "a renewal keeps the text and kills the old receipt", run: func(c *C) {
		q := c.queue()
		text := strings.Repeat("kept ", 5000)
		c.put(q, text)
		m := c.get(q, time.Hour)
		r, err := q.Renew(c.ctx, m.Receipt, time.Hour)
		c.must(err)
		if r.PopReceipt == m.PopReceipt || r.ID != m.ID {
			c.Errorf("renewed %v into %v", m.Receipt, r)
		}
		c.want(storage.Gone, q.Delete(c.ctx, m.Receipt), "delete with the old receipt")
		c.want(storage.Gone, errOf(q.Renew(c.ctx, m.Receipt, time.Hour)), "renew with the old receipt")
		r, err = q.Renew(c.ctx, r, 0)
		c.must(err)
		if got := c.get(q, time.Hour); string(got.Text) != text {
			c.Errorf("after two renewals the text is %d bytes, %.20q", len(got.Text), got.Text)
		}
		c.want(storage.Gone, q.Delete(c.ctx, r), "delete after somebody else got the message")
	}},
	{name: "a replacement changes the text and kills the old receipt", run: func(c *C) {
		q, m := c.taken("old")
		r, err := q.Replace(c.ctx, m.Receipt, []byte("new"), 0)
		c.must(err)
		c.want(storage.Gone, q.Delete(c.ctx, m.Receipt), "delete with the old receipt")
		got := c.get(q, time.Hour)
		if string(got.Text) != "new" || got.ID != m.ID {
			c.Errorf("replaced into %q of %s", got.Text, got.ID)
		}
		c.want(storage.Gone, q.Delete(c.ctx, r), "delete after another get")
		c.must(q.Delete(c.ctx, got.Receipt))
	}},
	{name: "messages carry the service's times", run: func(c *C) {
		q := c.queue()
		p := c.put(q, "x")
		m := c.get(q, time.Hour)
		r, err := q.Renew(c.ctx, m.Receipt, 2*time.Hour)
		c.must(err)
		// Whole seconds, and a slow machine between the requests: only the
		// differences that visibility makes are looked at.
		if m.Inserted.IsZero() || p.NextVisible.Before(m.Inserted.Add(-time.Second)) {
			c.Errorf("inserted %v, visible from %v", m.Inserted, p.NextVisible)
		}
		if d := m.NextVisible.Sub(m.Inserted); d < time.Hour-time.Second || d > time.Hour+slowest {
			c.Errorf("a get for 1 h: visible again %v after the insertion", d)
		}
		if d := r.NextVisible.Sub(m.Inserted); d < 2*time.Hour-time.Second || d > 2*time.Hour+slowest {
			c.Errorf("a renewal for 2 h: visible again %v after the insertion", d)
		}
	}},
}
