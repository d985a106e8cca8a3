package storagetest

import (
	"errors"
	"fmt"

	"github.com/queuepump/queuepump/pump/storage"
)

// fails makes a transaction that must fail, by the write in place at.
func (c *C) fails(code storage.Code, t storage.Table, writes []storage.Write, at int, what string) {
	_, err := t.Transact(c.ctx, writes)
	c.want(code, err, what)
	c.index(err, at, what)
}

// index checks which write an error points at.
func (c *C) index(err error, want int, what string) {
	if e, ok := errors.AsType[*storage.Error](err); ok && e.Index != want {
		c.Errorf("%s: the error points at write %d, want %d: %v", what, e.Index, want, err)
	}
}

// Cases about entity group transactions.
var transactionCases = []testCase{
	{name: "a transaction does all its writes and gives their ETags in order", run: func(c *C) {
		t := c.table()
		for _, row := range []string{"replaced", "merged", "upserted", "removed", "any"} {
			c.write(t, insert("p", row, map[string]any{"old": "1"}))
		}
		merged, err := t.Read(c.ctx, "p", "merged")
		c.must(err)
		removed, err := t.Read(c.ctx, "p", "removed")
		c.must(err)
		v := map[string]any{"new": int64(1<<53 + 1)}
		writes := []storage.Write{
			insert("p", "inserted", v),
			write(storage.Replace, "p", "replaced", "", v),
			write(storage.Merge, "p", "merged", merged.ETag, v),
			write(storage.Remove, "p", "removed", removed.ETag, nil),
			write(storage.Upsert, "p", "upserted", "", v),
			write(storage.Upsert, "p", "added", "", v),
			write(storage.Remove, "p", "any", "", nil),
		}
		etags, err := t.Transact(c.ctx, writes)
		c.must(err)
		if len(etags) != len(writes) {
			c.Fatalf("%d ETags for %d writes", len(etags), len(writes))
		}
		for i, w := range writes {
			if w.Mode == storage.Remove {
				c.want(storage.Gone, errOf(t.Read(c.ctx, "p", w.Entity.Row)), "read of "+w.Entity.Row)
				continue
			}
			e, err := t.Read(c.ctx, "p", w.Entity.Row)
			c.must(err)
			if e.ETag != etags[i] || etags[i] == "" {
				c.Errorf("%s: ETag %s, the transaction said %s", w.Entity.Row, e.ETag, etags[i])
			}
			want := map[string]any{"new": int64(1<<53 + 1)}
			if w.Mode == storage.Merge {
				want["old"] = "1"
			}
			c.same(w.Entity.Row, e.Properties, want)
		}
		// The ETags are good for the next transaction, without a read between.
		_, err = t.Transact(c.ctx, []storage.Write{
			write(storage.Replace, "p", "inserted", etags[0], nil),
			write(storage.Merge, "p", "merged", etags[2], nil),
			write(storage.Remove, "p", "added", etags[5], nil),
		})
		c.must(err)
	}},
	{name: "a failed transaction changes nothing and names the write that failed", run: func(c *C) {
		t := c.table()
		etag := c.write(t, insert("p", "held", map[string]any{"v": "1"}))
		c.write(t, write(storage.Replace, "p", "held", etag, map[string]any{"v": "2"}))
		at := func(mode storage.Mode, row string, etag storage.ETag) storage.Write {
			return write(mode, "p", row, etag, nil)
		}
		for _, f := range []struct {
			what  string
			write storage.Write
			code  storage.Code
		}{
			{"insert of a row that is there", insert("p", "held", nil), storage.Exists},
			{"replace at an older ETag", at(storage.Replace, "held", etag), storage.Precondition},
			{"merge at an older ETag", at(storage.Merge, "held", etag), storage.Precondition},
			{"remove at an older ETag", at(storage.Remove, "held", etag), storage.Precondition},
			{"replace of a row that is not there", at(storage.Replace, "nowhere", ""), storage.Gone},
			{"merge of a row that is not there", at(storage.Merge, "nowhere", ""), storage.Gone},
			{"remove of a row that is not there", at(storage.Remove, "nowhere", ""), storage.Gone},
		} {
			for at := range 3 {
				writes := []storage.Write{insert("p", "a", nil), insert("p", "b", nil)}
				writes = append(writes[:at], append([]storage.Write{f.write}, writes[at:]...)...)
				c.fails(f.code, t, writes, at, f.what)
			}
			c.fails(f.code, t, []storage.Write{f.write}, 0, f.what+", alone")
		}
		all := c.rows(t, storage.Query{})
		if len(all) != 1 || all[0].Properties["v"] != "2" {
			c.Errorf("the failed transactions left %+v", all)
		}
	}},
	{name: "a transaction holds 100 writes", run: func(c *C) {
		t := c.table()
		var writes []storage.Write
		for i := range storage.MaxBatch + 1 {
			writes = append(writes, insert("p", fmt.Sprintf("r%03d", i), map[string]any{"i": int64(i)}))
		}
		sent := c.sending()
		c.want(storage.TooLarge, errOf(t.Transact(c.ctx, writes)), "101 writes")
		sent(0)
		etags, err := t.Transact(c.ctx, writes[:storage.MaxBatch])
		c.must(err)
		for i := range etags {
			writes[i].Mode, writes[i].Entity.ETag = storage.Remove, etags[i]
		}
		writes[99].Entity.ETag = etags[0] + "x"
		all := c.rows(t, storage.Query{Partition: "p"})
		if len(all) != storage.MaxBatch {
			c.Errorf("%d rows, want 100", len(all))
		}
	}},
	{name: "the hundredth write of a transaction can fail it", run: func(c *C) {
		t := c.table()
		c.write(t, insert("p", "r099", nil))
		var writes []storage.Write
		for i := range storage.MaxBatch {
			writes = append(writes, insert("p", fmt.Sprintf("r%03d", i), nil))
		}
		c.fails(storage.Exists, t, writes, 99, "100 inserts, the last of a row that is there")
	}},
	{name: "a transaction that is none is Invalid and never sent", run: func(c *C) {
		t := c.table()
		sent := c.sending()
		c.want(storage.Invalid, errOf(t.Transact(c.ctx, nil)), "no writes")
		first := insert("p", "a", nil)
		for what, second := range map[string]storage.Write{
			"two partitions": insert("q", "b", nil),
			"one row twice":  write(storage.Remove, "p", "a", "", nil),
		} {
			c.fails(storage.Invalid, t, []storage.Write{first, second}, 1, what)
		}
		evil := write(storage.Replace, "p", "a", "x\r\nX-Evil: 1", nil)
		c.want(storage.Invalid,
			errOf(t.Transact(c.ctx, []storage.Write{evil})), "an ETag with a line end")
		sent(0)
	}},
	{name: "a transaction of more than 4 MiB is TooLarge", run: func(c *C) {
		t := c.table()
		var writes []storage.Write
		for i := range 60 { // 60 x 64 KiB in base64 are 5 MiB
			writes = append(writes, insert("p", fmt.Sprintf("r%03d", i),
				map[string]any{"b": make([]byte, storage.MaxProperty)}))
		}
		c.want(storage.TooLarge, errOf(t.Transact(c.ctx, writes)), "5 MiB")
		all := c.rows(t, storage.Query{Partition: "p"})
		if len(all) != 0 {
			c.Errorf("%d rows were written", len(all))
		}
	}},
	{name: "a transaction of 3 MiB is done", run: func(c *C) {
		t := c.table()
		var writes []storage.Write
		for i := range 36 {
			writes = append(writes, insert("p", fmt.Sprintf("r%03d", i),
				map[string]any{"b": make([]byte, 60<<10)}))
		}
		c.must(errOf(t.Transact(c.ctx, writes)))
	}},
}
