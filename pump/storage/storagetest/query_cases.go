package storagetest

import (
	"fmt"
	"slices"

	"github.com/queuepump/queuepump/pump/storage"
)

func rowKeys(all []storage.Entity) []string {
	keys := make([]string, len(all))
	for i, e := range all {
		keys[i] = e.Row
	}
	return keys
}

// fill inserts rows r0000, r0001, ... of a partition.
func (c *C) fill(t storage.Table, partition string, n int) {
	for i := 0; i < n; {
		var writes []storage.Write
		for ; i < n && len(writes) < storage.MaxBatch; i++ {
			writes = append(writes, insert(partition, fmt.Sprintf("r%04d", i),
				map[string]any{"i": int64(i), "text": "x"}))
		}
		c.must(errOf(t.Transact(c.ctx, writes)))
	}
}

// Cases about queries.
var queryCases = []testCase{
	{name: "a query of 1,500 rows yields each once and in order, page after page", run: func(c *C) {
		t := c.table()
		c.fill(t, "p", 1500)
		c.fill(t, "other", 3)
		before := c.Wire.Requests()
		all := c.rows(t, storage.Query{Partition: "p"})
		if len(all) != 1500 {
			c.Fatalf("%d rows, want 1,500", len(all))
		}
		for i, e := range all {
			if e.Row != fmt.Sprintf("r%04d", i) || e.Partition != "p" || e.Properties["i"] != int64(i) ||
				e.ETag == "" {
				c.Fatalf("row %d is %+v", i, e)
			}
		}
		if n := c.Wire.Requests() - before; n < 2 {
			c.Errorf("%d requests for 1,500 rows, of which a page holds 1,000", n)
		}
	}},
	{name: "a query has a first row key and an end that is not in it", run: func(c *C) {
		t := c.table()
		c.fill(t, "p", 20)
		for _, q := range []struct {
			from, to string
			want     []string
		}{
			{"r0005", "r0008", []string{"r0005", "r0006", "r0007"}},
			{"r0018", "", []string{"r0018", "r0019"}},
			{"", "r0002", []string{"r0000", "r0001"}},
			{"r0005x", "r0006x", []string{"r0006"}},
			{"r0008", "r0005", nil},
			{"s", "", nil},
		} {
			all := c.rows(t, storage.Query{Partition: "p", From: q.from, To: q.to})
			if got := rowKeys(all); !slices.Equal(got, q.want) && len(got)+len(q.want) > 0 {
				c.Errorf("from %q to %q: %v, want %v", q.from, q.to, got, q.want)
			}
		}
	}},
	{name: "a query without a partition is of the whole table", run: func(c *C) {
		t := c.table()
		for _, p := range []string{"a", "b", "c"} {
			c.fill(t, p, 2)
		}
		all := c.rows(t, storage.Query{})
		var got []string
		for _, e := range all {
			got = append(got, e.Partition+e.Row)
		}
		want := []string{"ar0000", "ar0001", "br0000", "br0001", "cr0000", "cr0001"}
		if slices.Sort(got); !slices.Equal(got, want) {
			c.Errorf("got %v", got)
		}
	}},
	{name: "a query of a partition without rows yields nothing", run: func(c *C) {
		t := c.table()
		c.fill(t, "p", 2)
		if all, err := collect(t.Query(c.ctx, storage.Query{Partition: "q"})); err != nil ||
			len(all) != 0 {
			c.Errorf("got %v, %v", all, err)
		}
	}},
	{name: "a query fetches the named properties only, with keys and ETag", run: func(c *C) {
		t := c.table()
		etag := c.write(t, insert("p", "r", map[string]any{"a": "1", "b": int64(2), "c": []byte("3")}))
		all,
			err := collect(t.Query(c.ctx, storage.Query{Partition: "p", Select: []string{"b", "absent"}}))
		c.must(err)
		if len(all) != 1 || all[0].Partition != "p" || all[0].Row != "r" || all[0].ETag != etag {
			c.Fatalf("got %+v", all)
		}
		c.same("selected", all[0].Properties, map[string]any{"b": int64(2)})
	}},
	{name: "a query can be left early", run: func(c *C) {
		t := c.table()
		c.fill(t, "p", 10)
		n := 0
		for _, err := range t.Query(c.ctx, storage.Query{Partition: "p"}) {
			c.must(err)
			if n++; n == 3 {
				break
			}
		}
		if n != 3 {
			c.Errorf("left after %d rows", n)
		}
	}},
	{name: "a query sees what was written before it", run: func(c *C) {
		t := c.table()
		for i := range 20 {
			c.write(t, insert("p", fmt.Sprintf("r%02d", i), nil))
			all := c.rows(t, storage.Query{Partition: "p"})
			if len(all) != i+1 {
				c.Fatalf("%d rows after %d inserts", len(all), i+1)
			}
		}
	}},
}
