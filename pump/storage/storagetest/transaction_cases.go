package storagetest

import (
	"errors"
	"fmt"

	"github.com/queuepump/queuepump/pump/storage"
)

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
			_, err := t.Write(c.ctx, insert("p", row, map[string]any{"old": "1"}))
			c.must(err)
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
				_, err := t.Read(c.ctx, "p", w.Entity.Row)
				c.want(storage.Gone, err, "read of "+w.Entity.Row)
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
		etag, err := t.Write(c.ctx, insert("p", "held", map[string]any{"v": "1"}))
		c.must(err)
		_, err = t.Write(c.ctx, write(storage.Replace, "p", "held", etag, map[string]any{"v": "2"}))
		c.must(err)
		for _, f := range []struct {
			what  string
			write storage.Write
			code  storage.Code
		}{
			{"insert of a row that is there", insert("p", "held", nil), storage.Exists},
			{
				"replace at an older ETag", write(storage.Replace, "p", "held", etag, nil),
				storage.Precondition,
			},
			{"merge at an older ETag", write(storage.Merge, "p", "held", etag, nil), storage.Precondition},
			{"remove at an older ETag", write(storage.Remove, "p", "held", etag, nil), storage.Precondition},
			{
				"replace of a row that is not there", write(storage.Replace, "p", "nowhere", "", nil),
				storage.Gone,
			},
			{
				"merge of a row that is not there", write(storage.Merge, "p", "nowhere", "", nil), storage.Gone,
			},
			{
				"remove of a row that is not there", write(storage.Remove, "p", "nowhere", "", nil),
				storage.Gone,
			},
		} {
			for at := range 3 {
				writes := []storage.Write{insert("p", "a", nil), insert("p", "b", nil)}
				writes = append(writes[:at], append([]storage.Write{f.write}, writes[at:]...)...)
				_, err := t.Transact(c.ctx, writes)
				c.want(f.code, err, f.what)
				c.index(err, at, f.what)
			}
			_, err := t.Transact(c.ctx, []storage.Write{f.write})
			c.want(f.code, err, f.what+", alone")
			c.index(err, 0, f.what+", alone")
		}
		all, err := collect(t.Query(c.ctx, storage.Query{}))
		c.must(err)
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
		before := c.Wire.Requests()
		_, err := t.Transact(c.ctx, writes)
		c.want(storage.TooLarge, err, "101 writes")
		if n := c.Wire.Requests() - before; n != 0 {
			c.Errorf("%d requests were made for 101 writes", n)
		}
		etags, err := t.Transact(c.ctx, writes[:storage.MaxBatch])
		c.must(err)
		for i := range etags {
			writes[i].Mode, writes[i].Entity.ETag = storage.Remove, etags[i]
		}
		writes[99].Entity.ETag = etags[0] + "x"
		all, err := collect(t.Query(c.ctx, storage.Query{Partition: "p"}))
		c.must(err)
		if len(all) != storage.MaxBatch {
			c.Errorf("%d rows, want 100", len(all))
		}
	}},
	{name: "the hundredth write of a transaction can fail it", run: func(c *C) {
		t := c.table()
		_, err := t.Write(c.ctx, insert("p", "r099", nil))
		c.must(err)
		var writes []storage.Write
		for i := range storage.MaxBatch {
			writes = append(writes, insert("p", fmt.Sprintf("r%03d", i), nil))
		}
		_, err = t.Transact(c.ctx, writes)
		c.want(storage.Exists, err, "100 inserts, the last of a row that is there")
		c.index(err, 99, "100 inserts")
	}},
	{name: "a transaction that is none is Invalid and never sent", run: func(c *C) {
		t := c.table()
		before := c.Wire.Requests()
		_, err := t.Transact(c.ctx, nil)
		c.want(storage.Invalid, err, "no writes")
		_, err = t.Transact(c.ctx, []storage.Write{insert("p", "a", nil), insert("q", "b", nil)})
		c.want(storage.Invalid, err, "two partitions")
		c.index(err, 1, "two partitions")
		_, err = t.Transact(c.ctx,
			[]storage.Write{insert("p", "a", nil), write(storage.Remove, "p", "a", "", nil)})
		c.want(storage.Invalid, err, "one row twice")
		c.index(err, 1, "one row twice")
		_, err = t.Transact(c.ctx,
			[]storage.Write{write(storage.Replace, "p", "a", "x\r\nX-Evil: 1", nil)})
		c.want(storage.Invalid, err, "an ETag with a line end")
		if n := c.Wire.Requests() - before; n != 0 {
			c.Errorf("%d requests were made", n)
		}
	}},
	{name: "a transaction of more than 4 MiB is TooLarge", run: func(c *C) {
		t := c.table()
		var writes []storage.Write
		for i := range 60 { // 60 x 64 KiB in base64 are 5 MiB
			writes = append(writes, insert("p", fmt.Sprintf("r%03d", i),
				map[string]any{"b": make([]byte, storage.MaxProperty)}))
		}
		_, err := t.Transact(c.ctx, writes)
		c.want(storage.TooLarge, err, "5 MiB")
		all, err := collect(t.Query(c.ctx, storage.Query{Partition: "p"}))
		c.must(err)
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
		_, err := t.Transact(c.ctx, writes)
		c.must(err)
	}},
}
