package storagetest

import (
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// write makes a write.
func write(
	mode storage.Mode, partition, row string, etag storage.ETag, properties map[string]any,
) storage.Write {
	return storage.Write{
		Mode:   mode,
		Entity: storage.Entity{Partition: partition, Row: row, ETag: etag, Properties: properties},
	}
}

func insert(partition, row string, properties map[string]any) storage.Write {
	return write(storage.Insert, partition, row, "", properties)
}

// collect reads a query to its end.
func collect(rows iter.Seq2[storage.Entity, error]) ([]storage.Entity, error) {
	var all []storage.Entity
	for e, err := range rows {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// properties reads a row's properties.
func (c *C) properties(t storage.Table, partition, row string) map[string]any {
	e, err := t.Read(c.ctx, partition, row)
	c.must(err)
	return e.Properties
}

func (c *C) same(what string, got, want map[string]any) {
	if len(got) == 0 && len(want) == 0 {
		return
	}
	for name, v := range want {
		g, ok := got[name]
		if wt, isTime := v.(time.Time); isTime {
			if gt, isTime := g.(time.Time); isTime && gt.Equal(wt) {
				continue
			}
		}
		if f, isFloat := v.(float64); isFloat && f != f {
			if gf, isFloat := g.(float64); isFloat && gf != gf {
				continue
			}
		}
		if !ok || !reflect.DeepEqual(g, v) {
			c.Errorf("%s: %s is %T %.60q, want %T %.60q", what, name, g, sprint(g), v, sprint(v))
		}
	}
	for name, g := range got {
		if _, ok := want[name]; !ok {
			c.Errorf("%s: there is also %s = %T %.60q", what, name, g, sprint(g))
		}
	}
}

// Cases about tables and single rows.
var tableCases = []testCase{
	{name: "creating a table that exists is success", run: func(c *C) {
		t := c.table()
		c.write(t, insert("p", "r", nil))
		c.must(t.Create(c.ctx))
		c.must(errOf(t.Read(c.ctx, "p", "r")))
	}},
	{name: "every request of a table that is not there is Missing", run: func(c *C) {
		t := c.Account.Table(c.name())
		c.want(storage.Missing, errOf(t.Read(c.ctx, "p", "r")), "read")
		for mode := storage.Insert; mode <= storage.Remove; mode++ {
			c.want(storage.Missing,
				errOf(t.Write(c.ctx, write(mode, "p", "r", "", nil))), "write "+modeNames[mode])
		}
		c.want(storage.Missing,
			errOf(t.Transact(c.ctx, []storage.Write{insert("p", "r", nil)})), "transact")
		c.want(storage.Missing, errOf(collect(t.Query(c.ctx, storage.Query{Partition: "p"}))), "query")
		c.want(storage.Missing, t.Drop(c.ctx), "drop")
	}},
	{name: "creating a table while the older one is being deleted is Missing", run: func(c *C) {
		t := c.table()
		c.must(t.Drop(c.ctx))
		c.want(storage.Missing, t.Create(c.ctx), "create right after drop")
	}},
	{name: "a name that no table can have is Invalid", run: func(c *C) {
		for _, name := range []string{
			"", "ab", "9digit", "with-dash", "../x", "t()", strings.Repeat("a", 64),
		} {
			c.want(storage.Invalid, c.Account.Table(name).Create(c.ctx), name)
		}
	}},
	{name: "a row that is not there is Gone", run: func(c *C) {
		t := c.table()
		c.want(storage.Gone, errOf(t.Read(c.ctx, "p", "r")), "read")
		for _, mode := range []storage.Mode{storage.Replace, storage.Merge, storage.Remove} {
			for _, etag := range []storage.ETag{"", `W/"datetime'2022-04-13T19%3A29%3A04.2283077Z'"`} {
				c.want(storage.Gone,
					errOf(t.Write(c.ctx, write(mode, "p", "r", etag, nil))),
					modeNames[mode]+" at "+string(etag))
			}
		}
		if all, err := collect(t.Query(c.ctx, storage.Query{})); err != nil || len(all) != 0 {
			c.Errorf("the failed writes left %v, %v", all, err)
		}
	}},
	{name: "an insert of a row that is there is Exists and changes nothing", run: func(c *C) {
		t := c.table()
		etag := c.write(t, insert("p", "r", map[string]any{"v": "first"}))
		c.want(storage.Exists,
			errOf(t.Write(c.ctx, insert("p", "r", map[string]any{"v": "second"}))), "second insert")
		e, err := t.Read(c.ctx, "p", "r")
		c.must(err)
		if e.ETag != etag || e.Properties["v"] != "first" {
			c.Errorf("read %+v, want ETag %s", e, etag)
		}
	}},
	{name: "a write succeeds at the row's ETag and fails at an older one", run: func(c *C) {
		t := c.table()
		for _, mode := range []storage.Mode{storage.Replace, storage.Merge, storage.Remove} {
			row := modeNames[mode]
			first := c.write(t, insert("p", row, map[string]any{"v": int64(1)}))
			second := c.write(t, write(storage.Replace, "p", row, first, map[string]any{"v": int64(2)}))
			if second == first || second == "" {
				c.Errorf("a write left the ETag %s at %s", first, second)
			}
			c.want(storage.Precondition,
				errOf(t.Write(c.ctx, write(mode, "p", row, first, map[string]any{"v": int64(3)}))),
				row+" at the older ETag")
			c.same("after a write that failed", c.properties(t, "p", row), map[string]any{"v": int64(2)})
			c.write(t, write(mode, "p", row, second, map[string]any{"v": int64(4)}))
		}
		c.want(storage.Gone, errOf(t.Read(c.ctx, "p", modeNames[storage.Remove])), "read after remove")
	}},
	{name: "a write without an ETag takes the row at any version", run: func(c *C) {
		t := c.table()
		c.write(t, insert("p", "r", map[string]any{"v": int64(1)}))
		for _, mode := range []storage.Mode{storage.Replace, storage.Merge, storage.Remove} {
			c.write(t, write(mode, "p", "r", "", map[string]any{"v": int64(2)}))
		}
		c.want(storage.Gone, errOf(t.Read(c.ctx, "p", "r")), "read after remove")
	}},
	{name: "replace drops the properties not named and merge keeps them", run: func(c *C) {
		t := c.table()
		c.write(t, insert("p", "r", map[string]any{"a": "1", "b": "1"}))
		c.write(t, write(storage.Merge, "p", "r", "", map[string]any{"b": "2", "c": "2"}))
		c.same("after merge", c.properties(t, "p", "r"), map[string]any{"a": "1", "b": "2", "c": "2"})
		c.write(t, write(storage.Replace, "p", "r", "", map[string]any{"c": "3"}))
		c.same("after replace", c.properties(t, "p", "r"), map[string]any{"c": "3"})
	}},
	{name: "upsert inserts or replaces, whatever is there", run: func(c *C) {
		t := c.table()
		first := c.write(t, write(storage.Upsert, "p", "r", "", map[string]any{"a": "1"}))
		c.write(t, write(storage.Upsert, "p", "r", "", map[string]any{"b": "2"}))
		// the ETag is ignored
		c.write(t, write(storage.Upsert, "p", "r", first, map[string]any{"c": "3"}))
		c.same("after three upserts", c.properties(t, "p", "r"), map[string]any{"c": "3"})
	}},
	{name: "write, read and query agree on the ETag", run: func(c *C) {
		t := c.table()
		etag := c.write(t, insert("p", "r", map[string]any{"v": "1"}))
		for range 3 {
			e, err := t.Read(c.ctx, "p", "r")
			c.must(err)
			all := c.rows(t, storage.Query{Partition: "p", Select: []string{"v"}})
			if e.ETag != etag || len(all) != 1 || all[0].ETag != etag || e.Modified.IsZero() {
				c.Errorf("written %s, read %s of %v, queried %+v", etag, e.ETag, e.Modified, all)
			}
			etag = c.write(t, write(storage.Merge, "p", "r", all[0].ETag, map[string]any{"v": "2"}))
		}
	}},
	{
		name: "rows differ by partition and row key together, by case, and by every allowed character",
		run: func(c *C) {
			t := c.table()
			keys := []string{
				"a", "A", "0", "_", ".", "~", "-", "a.b", "a~b", "..", "~.-_", strings.Repeat("k", 512),
			}
			for _, p := range keys {
				c.write(t, insert(p, "x", map[string]any{"v": p}))
				c.write(t, insert("x", p, map[string]any{"v": "row " + p}))
			}
			for _, p := range keys {
				c.same("partition "+p, c.properties(t, p, "x"), map[string]any{"v": p})
				c.same("row "+p, c.properties(t, "x", p), map[string]any{"v": "row " + p})
			}
		},
	},
	{name: "any other key is Invalid and never sent", run: func(c *C) {
		t := c.table()
		sent := c.sending()
		for _, key := range []string{
			"", "it's", "a/b", `a\b`, "a#b", "a?b", "a b", "a%b", "é", "\x00", "a+b", "a'",
			strings.Repeat("k", 513),
		} {
			for _, k := range [][2]string{{key, "ok"}, {"ok", key}} {
				c.want(storage.Invalid, errOf(t.Read(c.ctx, k[0], k[1])), "read")
				for mode := storage.Insert; mode <= storage.Remove; mode++ {
					c.want(storage.Invalid,
						errOf(t.Write(c.ctx, write(mode, k[0], k[1], "", nil))), "write")
				}
				c.want(storage.Invalid,
					errOf(t.Transact(c.ctx, []storage.Write{write(storage.Upsert, k[0], k[1], "", nil)})),
					"transact")
			}
			if key != "" {
				c.want(storage.Invalid,
					errOf(collect(t.Query(c.ctx, storage.Query{Partition: key}))),
					"query of a partition")
				c.want(storage.Invalid,
					errOf(collect(t.Query(c.ctx, storage.Query{Partition: "p", From: key}))),
					"query from")
				c.want(storage.Invalid,
					errOf(collect(t.Query(c.ctx, storage.Query{Partition: "p", To: key}))), "query to")
			}
		}
		sent(0)
	}},
}

var modeNames = map[storage.Mode]string{
	storage.Insert: "insert", storage.Replace: "replace", storage.Merge: "merge",
	storage.Upsert: "upsert", storage.Remove: "remove",
}
