package azsim

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// fill stores rows of n partitions with m rows each, P000 R0000 and so on,
// without the wire.
func (b *tableBench) fill(name string, partitions, each int) *aztables.Client {
	b.Helper()
	c := b.table(name)
	tab := b.sim.accounts["acct"].stores.Load().tables.(*tableStore).find(name)
	for p := range partitions {
		for r := range each {
			write := &change{
				verb: verbInsert, key: rowKey{fmt.Sprintf("P%03d", p), fmt.Sprintf("R%05d", r)},
				payload: &payload{properties: []property{{"N", value{kind: edmInt32, num: int64(r)}}}},
			}
			if _, err := tab.write([]*change{write}, time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	}
	return c
}

// keysOf are the keys of rows in their order.
func keysOf(pages [][]map[string]any) []string {
	var keys []string
	for _, page := range pages {
		for _, row := range page {
			keys = append(keys, row["PartitionKey"].(string)+row["RowKey"].(string))
		}
	}
	return keys
}

func sizes(pages [][]map[string]any) []int {
	var n []int
	for _, page := range pages {
		n = append(n, len(page))
	}
	return n
}

// AZURE.md T40 and A4: pages of 1,000; $top is the size of a page and not of
// the whole; rows come sorted by partition key and row key.
func TestQueriesComeInPages(t *testing.T) {
	b := newTableBench(t, TableOptions{})
	c := b.fill("tbl", 3, 500)
	all := b.pages(c, nil)
	if !slices.Equal(sizes(all), []int{1000, 500}) || !slices.IsSorted(keysOf(all)) {
		t.Errorf("pages of %v rows", sizes(all))
	}
	if got := b.pages(c, &aztables.ListEntitiesOptions{Top: ptr[int32](400)}); !slices.Equal(sizes(got), []int{400, 400, 400, 300}) || !slices.Equal(keysOf(got), keysOf(all)) {
		t.Errorf("$top=400 gives pages of %v rows", sizes(got))
	}
	got := b.pages(c, &aztables.ListEntitiesOptions{
		Filter: ptr("PartitionKey ge 'P001' and N lt 150"), Select: ptr("PartitionKey,RowKey"), Top: ptr[int32](150),
	})
	if n := sizes(got); len(keysOf(got)) != 300 || n[0] != 150 || len(got[0][0]) != 3 { // the two and odata.etag
		t.Errorf("filtered pages of %v rows, first %v", n, got[0][0])
	}
	// A page that ends with the last row of the answer has no token.
	proof.Alike(t, sizes(b.pages(c, &aztables.ListEntitiesOptions{Filter: ptr("PartitionKey eq 'P001'"), Top: ptr[int32](250)})), []int{250, 250}, "rows of pages")
}

// The form of a token as recorded: the next row's keys, each "1!", a length,
// "!", base64 with - for = (AZURE.md A4, Query).
func TestContinuationTokensAsRecorded(t *testing.T) {
	b := newTable(t)
	for r := range 2 {
		b.want(b.do("POST", "/tbl", fmt.Sprintf(`{"PartitionKey":"contToken","RowKey":"%d"}`, r)), 201, "")
	}
	a := b.do("GET", "/tbl()?$top=1", "")
	if pk, rk := a.header.Get("x-ms-continuation-NextPartitionKey"), a.header.Get("x-ms-continuation-NextRowKey"); pk != "1!12!Y29udFRva2Vu" || rk != "1!4!MQ--" {
		t.Errorf("tokens %q %q", pk, rk)
	}
	next := "/tbl()?$top=1&NextPartitionKey=1!12!Y29udFRva2Vu&NextRowKey=1!4!MQ--"
	if a := b.do("GET", next, ""); a.status != 200 || !strings.Contains(a.body, `"RowKey":"1"`) || a.header.Get("x-ms-continuation-NextPartitionKey") != "" {
		t.Errorf("next page: %v %s", a.header, a.body)
	}
	// A token is a place and not a row: it survives the row's deletion.
	b.want(b.do("DELETE", "/tbl(PartitionKey='contToken',RowKey='1')", "", "If-Match: *"), 204, "")
	if a := b.do("GET", next, ""); a.status != 200 || strings.Contains(a.body, "RowKey") {
		t.Errorf("next page without its row: %s", a.body)
	}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.String().Draw(t, "key")
		text := pageToken(key)
		if got, err := readToken(text); err != nil || got != key {
			t.Fatalf("%q came back as %q: %v", text, got, err)
		}
		if key != "" && !regexp.MustCompile(`^1!\d+![A-Za-z0-9_*-]+$`).MatchString(text) {
			t.Fatalf("token %q needs escaping", text)
		}
	})
}

// Empty pages with a token, and pages that end at partitions with a token
// that has no row key: a client that stops early, or that takes an empty page
// for the end, loses rows here (window 28).
func TestAwkwardPages(t *testing.T) {
	b := newTableBench(t, TableOptions{EmptyPages: true, PartitionPages: true})
	c := b.fill("tbl", 3, 2)
	a := b.do("GET", "/tbl()?NextPartitionKey="+pageToken("P000"), "")
	if pk, rk := a.header.Get("x-ms-continuation-NextPartitionKey"), a.header.Values("x-ms-continuation-NextRowKey"); pk != pageToken("P001") || len(rk) != 0 {
		t.Errorf("token at a partition's end: %q %q", pk, rk)
	}
	lone := b.fill("lone", 3, 1)
	for _, q := range []struct {
		of     *aztables.Client
		filter string
		want   []int // rows of each page
	}{
		{c, "", []int{0, 2, 2, 2}},
		{c, "N eq 1", []int{0, 1, 1, 1}},
		{c, "PartitionKey eq 'P001'", []int{2}},
		{lone, "", []int{0, 1, 1, 1}},
		{c, "PartitionKey gt 'P002'", []int{0}},
	} {
		proof.Alike(t, sizes(b.pages(q.of, &aztables.ListEntitiesOptions{Filter: &q.filter})), q.want,
			q.filter, "pages of … rows")
	}
}

// A query that finds little in much ends its pages by what it has looked at.
func TestAScanEndsItsPageAtTheLimit(t *testing.T) {
	b := newTableBench(t, TableOptions{ScanLimit: 100})
	c := b.fill("tbl", 1, 250)
	got := b.pages(c, &aztables.ListEntitiesOptions{Filter: ptr("N eq 0 or N eq 249")})
	proof.Alike(t, sizes(got), []int{1, 0, 1}, "pages of … rows")
}

// Whatever the filter, the page size and the awkwardness, the pages together
// are the rows that match, in order, each once.
func TestPagesTogetherAreTheAnswer(t *testing.T) {
	keys := []string{"", "a", "b", "c", "d"}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		s := newTableStore("acct", 0, TableOptions{
			EmptyPages: rapid.Bool().Draw(t, "empty"), PartitionPages: rapid.Bool().Draw(t, "partition"), ScanLimit: rapid.IntRange(1, 8).Draw(t, "scan"),
		})
		granted(t, s.create("tbl", now))
		tab := s.find("tbl")
		var stored []rowKey
		for _, pk := range keys {
			for _, rk := range keys {
				if k := (rowKey{pk, rk}); rapid.Bool().Draw(t, "stored") {
					stored = append(stored, k)
					if _, err := tab.write([]*change{{verb: verbInsert, key: k, payload: &payload{}}}, now); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		text := ""
		for i := range rapid.IntRange(0, 3).Draw(t, "clauses") {
			if i > 0 {
				text += rapid.SampledFrom([]string{" and ", " or "}).Draw(t, "join")
			}
			text += fmt.Sprintf("%s %s '%s'", rapid.SampledFrom([]string{"PartitionKey", "RowKey"}).Draw(t, "name"),
				rapid.SampledFrom([]string{"eq", "ne", "gt", "ge", "lt", "le"}).Draw(t, "op"), rapid.SampledFrom(keys).Draw(t, "key"))
		}
		f, err := parseFilter(text)
		granted(t, err)
		var sas keyRange
		if rapid.Bool().Draw(t, "shared") {
			sas = keyRange{startPK: "a", startRK: "b", endPK: rapid.SampledFrom(keys[1:]).Draw(t, "end"), endRK: "c"}
		}
		var want []rowKey
		for _, k := range stored {
			if (f == nil || f.match((&entity{pk: k.pk, rk: k.rk}).find)) && sas.holds(k.pk, k.rk) {
				want = append(want, k)
			}
		}
		var got []rowKey
		values := url.Values{}
		for range 200 {
			p := pager{query: entityQuery{filter: f, top: rapid.IntRange(1, 5).Draw(t, "top")}, options: s.options, sas: sas}
			granted(t, p.begin(&request{query: values}))
			granted(t, p.read(tab))
			for _, e := range p.page {
				got = append(got, rowKey{e.pk, e.rk})
			}
			if p.next == nil {
				break
			}
			values = url.Values{"NextPartitionKey": {pageToken(p.next.pk)}}
			if !p.boundary {
				values.Set("NextRowKey", pageToken(p.next.rk))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q over %v gave %v, want %v", text, stored, got, want)
		}
	})
}
