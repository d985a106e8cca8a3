package storagetest

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

func sprint(v any) string { return fmt.Sprint(v) }

// keeps writes a row "r" and reads it.
func (c *C) keeps(t storage.Table, properties map[string]any) {
	c.write(t, insert("p", "r", properties))
	c.same("read", c.properties(t, "p", "r"), properties)
}

// Cases about the values in a row.
var propertyCases = []testCase{
	{name: "integers are exact", run: func(c *C) {
		t := c.table()
		want := map[string]any{}
		for i, n := range []int64{
			0, 1, -1, 1<<31 - 1, 1 << 31, 1<<53 - 1, 1<<53 + 1, -(1<<53 + 1), 1234567890123456789,
			math.MaxInt64, math.MinInt64,
		} {
			want[fmt.Sprintf("n%d", i)] = n
		}
		c.keeps(t, want)
		all := c.rows(t, storage.Query{Partition: "p"})
		if len(all) != 1 {
			c.Fatalf("queried %d rows", len(all))
		}
		c.same("query", all[0].Properties, want)
		again := write(storage.Replace, "p", "r", all[0].ETag, want)
		c.must(errOf(t.Transact(c.ctx, []storage.Write{again})))
		c.same("after a transaction", c.properties(t, "p", "r"), want)
	}},
	{name: "fractions are exact", run: func(c *C) {
		t := c.table()
		want := map[string]any{
			"tenth": 0.1, "pi": math.Pi, "big": 1e300, "small": 5e-324, "max": math.MaxFloat64,
			"negative": -2.5,
		}
		c.keeps(t, want)
	}},
	{name: "a fraction that happens to be whole stays a fraction", run: func(c *C) {
		t := c.table()
		want := map[string]any{"three": 3.0, "zero": 0.0}
		c.keeps(t, want)
	}},
	{name: "infinities and NaN are kept", run: func(c *C) {
		t := c.table()
		want := map[string]any{"inf": math.Inf(1), "minus": math.Inf(-1), "nan": math.NaN()}
		c.keeps(t, want)
	}},
	{name: "strings, bytes, booleans and times come back as they were written", run: func(c *C) {
		t := c.table()
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		want := map[string]any{
			"empty": "", "quotes": `' " \ / < > & {}`, "lines": "a\r\nb\tc", "far": "é 漢字 😀 \u2028",
			"number":        "9007199254740993",
			"looksLikeTime": "2022-04-13T19:29:04.2283077Z", "yes": true, "no": false, "bytes": all,
			"noBytes": []byte{}, "_under9": "x",
			"time":  time.Date(2024, 2, 29, 23, 59, 59, 123456700, time.UTC),
			"early": time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC),
			"whole": time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC),
		}
		c.keeps(t, want)
		c.must(errOf(t.Transact(c.ctx, []storage.Write{insert("p", "s", want)})))
		c.same("after a transaction", c.properties(t, "p", "s"), want)
	}},
	{name: "control characters in strings are kept", run: func(c *C) {
		t := c.table()
		want := map[string]any{"s": "\x00\x01\x1f\x7f\u0085"}
		c.keeps(t, want)
	}},
	{name: "names and values that a row cannot have are Invalid and never sent", run: func(c *C) {
		t := c.table()
		sent := c.sending()
		for _, p := range []map[string]any{
			{"": "x"},
			{"9a": "x"},
			{"a b": "x"},
			{"a@odata.type": "Edm.Int64"},
			{"odata.etag": "x"},
			{"a-b": "x"},
			{strings.Repeat("n", 256): "x"},
			{"PartitionKey": "x"},
			{"RowKey": "x"},
			{"Timestamp": "x"},
			{"v": nil},
			{"v": 1},
			{"v": uint64(1)},
			{"v": int32(1)},
			{"v": []string{"x"}},
			{"v": map[string]any{}},
			{"v": "\xff"},
			{"v": time.Date(1600, 12, 31, 0, 0, 0, 0, time.UTC)},
			{"v": time.Time{}},
		} {
			c.want(storage.Invalid, errOf(t.Write(c.ctx, insert("p", "r", p))), fmt.Sprint(p))
			writes := []storage.Write{insert("p", "q", nil), insert("p", "r", p)}
			c.fails(storage.Invalid, t, writes, 1, fmt.Sprint(p))
		}
		sent(0)
	}},
	{name: "a binary property holds 64 KiB", run: func(c *C) {
		t := c.table()
		want := map[string]any{"b": bytes.Repeat([]byte{0xAB}, storage.MaxProperty)}
		c.keeps(t, want)
		more := map[string]any{"b": make([]byte, storage.MaxProperty+1)}
		c.want(storage.TooLarge, errOf(t.Write(c.ctx, insert("p", "bytes", more))), "65,537 bytes")
	}},
	{name: "a string property holds 32 Ki characters of UTF-16", run: func(c *C) {
		t := c.table()
		want := map[string]any{
			"s":     strings.Repeat("é", storage.MaxProperty/2),
			"emoji": strings.Repeat("😀", storage.MaxProperty/4),
		}
		c.keeps(t, want)
		more := map[string]any{"s": strings.Repeat("a", storage.MaxProperty/2+1)}
		c.want(storage.TooLarge, errOf(t.Write(c.ctx, insert("p", "more", more))), "32,769 characters")
	}},
	{name: "a row of more than 1 MiB is TooLarge", run: func(c *C) {
		t := c.table()
		p := map[string]any{}
		for i := range 17 {
			p[fmt.Sprintf("b%d", i)] = make([]byte, storage.MaxProperty)
		}
		c.want(storage.TooLarge, errOf(t.Write(c.ctx, insert("p", "r", p))), "a row of 1.06 MiB")
	}},
	{name: "a row has 252 properties and not one more", run: func(c *C) {
		t := c.table()
		p := map[string]any{}
		for i := range 252 {
			p[fmt.Sprintf("n%d", i)] = int64(i)
		}
		c.keeps(t, p)
		p["more"] = "x"
		c.want(storage.TooLarge, errOf(t.Write(c.ctx, insert("p", "s", p))), "253 properties")
	}},
}
