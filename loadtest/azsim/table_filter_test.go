package azsim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// filterRow is what the filters below are tried on.
var filterTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var filterRow = &entity{
	pk: "p1", rk: "row-5", ticks: toTicks(filterTime),
	properties: []property{
		{"Active", value{kind: edmBoolean, num: 1}},
		{"Age", value{kind: edmInt32, num: 30}},
		{"Big", value{kind: edmInt64, num: 9007199254740993}},
		{"Bytes", value{kind: edmBinary, text: "\x01\xff"}},
		{"Id", value{kind: edmGUID, text: "4185404a-5818-48c3-b9be-f217df0dba6f"}},
		{"Name", value{kind: edmString, text: "O'Brien"}},
		{"Price", value{kind: edmDouble, real: 1.5}},
		{"When", value{kind: edmDateTime, num: toTicks(time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC))}},
	},
}

func TestFilterMatches(t *testing.T) {
	for filter, want := range map[string]bool{
		"":                                       true,
		"PartitionKey eq 'p1'":                   true,
		"PartitionKey ne 'p1'":                   false,
		"'p1' eq PartitionKey":                   true,
		"RowKey ge 'row-' and RowKey lt 'row.'":  true, // prefix search
		"Name eq 'O''Brien'":                     true,
		"Age gt 29":                              true,
		"29 lt Age":                              true,
		"29 gt Age":                              false,
		"Age ge 30 and Age le 30":                true,
		"Age eq 30L":                             true,
		"Age eq 30.0":                            true,
		"Age eq '30'":                            false,
		"Age ne '30'":                            false, // another type never matches
		"Big eq 9007199254740993L":               true,
		"Big gt 9007199254740992L":               true, // no detour through floating point
		"Price gt 1":                             true,
		"Price eq 1.5":                           true,
		"Price lt 1.5e0":                         false,
		"Price eq 15e-1":                         true,
		"Active eq true":                         true,
		"Active":                                 true,
		"not Active":                             false,
		"not (Age gt 30 or Price gt 2)":          true,
		"true":                                   true,
		"false or Active":                        true,
		"Missing eq 1":                           false,
		"Missing ne 1":                           false,
		"not (Missing eq 1)":                     true,
		"When lt datetime'2025-06-01T00:00:01Z'": true,
		"When eq datetime'2025-06-01T00:00:00Z'": true,
		"Timestamp ge datetime'2026-01-02T03:04:05Z'":      true,
		"Id eq guid'4185404A-5818-48C3-B9BE-F217DF0DBA6F'": true,
		"Bytes eq X'01ff'":                                           true,
		"Bytes eq binary'01ff'":                                      true,
		"Bytes lt X'02'":                                             true,
		"Age eq 1 or Age eq 30 and Active eq false":                  false, // and binds tighter than or
		"(Age eq 1 or Age eq 30) and Active eq true":                 true,
		"not Active or Age eq 30":                                    true, // not binds tightest
		"Name eq '(and) not a ''word'''":                             false,
		"Age eq 30 and(Active)":                                      true,
		strings.Repeat("(", 60) + "Active" + strings.Repeat(")", 60): true,
	} {
		f, err := parseFilter(filter)
		if err != nil {
			t.Errorf("%q: %v", filter, err)
			continue
		}
		proof.Same(t, f == nil || f.match(filterRow.find), want, filter)
	}
}

func TestFilterRefused(t *testing.T) {
	clause := "Age eq 1"
	for _, filter := range []string{
		"startswith(Name,'O')", "substringof('O',Name)", "tolower(Name) eq 'o'", // functions (AZURE.md T41)
		"Age", // not a refusal of its own: see below
		"Age eq", "eq 5", "Age eq 5 and", "Age = 5", "Age eq 5 5", "(Age eq 5", "Age eq 5)", "'text'", "5", "Age EQ 5", "Age eq 5 AND Active",
		"Age eq Price", "1 eq 1", "Age eq null", "Age add 1 eq 2", "Age eq 5m", "Name eq 'open", "Name eq \"x\"",
		"When eq datetime'yesterday'", "Id eq guid'1'", "Bytes eq X'0'", "Age eq 99999999999999999999L", "Age eq 0x10", "Age eq 1_000", "a/b eq 1", "Age eq nan'5'",
		strings.Repeat("(", 100) + "Active" + strings.Repeat(")", 100), strings.Repeat("not ", 100) + "Active",
		clause + strings.Repeat(" or "+clause, 15), "Name eq '" + strings.Repeat("x", maxFilterBytes) + "'", "Name eq '\xff'",
	} {
		f, err := parseFilter(filter)
		if filter == "Age" { // a property alone is a condition; one that is no Boolean is just never true
			if err != nil || f.match(filterRow.find) {
				t.Errorf("%q: %v", filter, err)
			}
			continue
		}
		if err == nil || err.code != "InvalidInput" || err.status != 400 {
			t.Errorf("%.60q: %v, want 400 InvalidInput", filter, err)
		}
	}
	// "No more than 15 discrete comparisons are permitted within a $filter string."
	if _, err := parseFilter(clause + strings.Repeat(" or "+clause, 14)); err != nil {
		t.Errorf("15 comparisons: %v", err)
	}
}

// outside reports whether a row lies before or after the bounds.
func (b keyBounds) outside(pk, rk string) bool {
	below := func(s keySpan, key string) bool {
		return s.low.set && (key < s.low.key || key == s.low.key && s.low.open)
	}
	return below(b.partition, pk) || b.partition.above(pk) || below(b.row, rk) || b.row.above(rk)
}

// FuzzFilter: whatever the text, parsing ends, and a filter that was accepted
// never matches a row outside its bounds.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		"PartitionKey eq 'p1' and RowKey ge 'a' and RowKey lt 'b'", "not (Age gt 30 or Price gt 2.5e3)", "Id eq guid'4185404a-5818-48c3-b9be-f217df0dba6f'",
		"When lt datetime'2025-06-01T00:00:01Z' or Bytes eq X'01ff'", "'p1' lt PartitionKey or Active", "Big eq 9007199254740993L", "((((((true))))))", "Name eq 'O''Brien'",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parsed, err := parseFilter(s)
		if err != nil || parsed == nil {
			return
		}
		b := parsed.bounds()
		for _, row := range []*entity{filterRow, {}, {pk: "a", rk: "b"}, {pk: "p1"}, {pk: "p1", rk: "zz"}} {
			if parsed.match(row.find) && b.outside(row.pk, row.rk) {
				t.Fatalf("%q matches %q %q outside of its bounds %+v", s, row.pk, row.rk, b)
			}
		}
	})
}

// Bounds are as tight as the filter allows, or queries of big tables scan.
func TestFilterBoundsAreTight(t *testing.T) {
	at := func(key string) bound { return bound{key: key, set: true} }
	beyond := func(key string) bound { return bound{key: key, set: true, open: true} }
	for filter, want := range map[string]keyBounds{
		"PartitionKey eq 'p' and RowKey ge 'a' and RowKey lt 'b'":              {keySpan{at("p"), at("p")}, keySpan{at("a"), beyond("b")}},
		"PartitionKey ge 'a' and PartitionKey ge 'c' and PartitionKey ge 'b'":  {partition: keySpan{low: at("c")}},
		"PartitionKey le 'c' and PartitionKey le 'a' and PartitionKey le 'b'":  {partition: keySpan{high: at("a")}},
		"PartitionKey ge 'a' and PartitionKey gt 'a' and PartitionKey ge 'a'":  {partition: keySpan{low: beyond("a")}},
		"PartitionKey le 'a' and PartitionKey lt 'a' and PartitionKey le 'a'":  {partition: keySpan{high: beyond("a")}},
		"PartitionKey eq 'b' or PartitionKey eq 'a' or PartitionKey eq 'c'":    {partition: keySpan{at("a"), at("c")}},
		"PartitionKey gt 'a' and PartitionKey lt 'c' or PartitionKey eq 'a'":   {partition: keySpan{at("a"), beyond("c")}},
		"PartitionKey eq 'a' or N eq 1":                                        {},
		"(PartitionKey eq 'a' and N eq 1) or (PartitionKey eq 'a' and N eq 2)": {partition: keySpan{at("a"), at("a")}},
	} {
		f, err := parseFilter(filter)
		granted(t, err)
		proof.Same(t, f.bounds(), want, filter, "bounds")
	}
}

// A query reads only what lies within the filter's bounds, so they must never
// exclude a row that matches; and where they are one key, they must be exactly
// that one.
func TestFilterBoundsHoldEveryMatch(t *testing.T) {
	keys := []string{"", "a", "ab", "b", "c"}
	clause := rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom([]string{"PartitionKey", "RowKey", "Other"}).Draw(t, "name")
		op := rapid.SampledFrom([]string{"eq", "ne", "gt", "ge", "lt", "le"}).Draw(t, "op")
		return fmt.Sprintf("%s %s '%s'", name, op, rapid.SampledFrom(keys).Draw(t, "key"))
	})
	rapid.Check(t, func(t *rapid.T) {
		text := clause.Draw(t, "clause")
		for range rapid.IntRange(0, 5).Draw(t, "more") {
			text = fmt.Sprintf(rapid.SampledFrom([]string{"(%s) and %s", "(%s) or %s", "not (%s) and %s"}).Draw(t, "join"), text, clause.Draw(t, "clause"))
		}
		f, err := parseFilter(text)
		granted(t, err)
		b := f.bounds()
		for _, pk := range keys {
			for _, rk := range keys {
				e := &entity{pk: pk, rk: rk, properties: []property{{"Other", value{text: "b"}}}}
				if f.match(e.find) && b.outside(pk, rk) {
					t.Fatalf("%s matches (%q, %q) outside of %+v", text, pk, rk, b)
				}
			}
		}
	})
}
