package handlers

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

// countOf folds bodies as a processor does, and gives what each key came to.
func countOf(t *testing.T, field, sum string, bodies ...string) map[string]string {
	t.Helper()
	r, s := counter(field, sum), counts{}
	for _, body := range bodies {
		c, err := r.Map(t.Context(), &pump.Task{Body: []byte(body)})
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		r.Fold(&s, c)
	}
	b, err := r.Encode(&s)
	must(t, err)
	if s, err = r.Decode(b); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, k := range s.keys {
		out[k.key] = fmt.Sprint(k.count, " ", k.sum)
	}
	return out
}

func TestCountsAndSumsAreExactAndKeysAreAsTheyAreWritten(t *testing.T) {
	for _, c := range []struct {
		name, field, sum string
		bodies           []string
		want             map[string]string
	}{
		{"decimals that floats cannot add", "k", "v", []string{`{"k":"a","v":0.1}`, `{"k":"a","v":0.2}`, `{"k":"b","v":1e2}`}, map[string]string{"a": "2 0.3", "b": "1 100"}},
		{"integers beyond those of a float", "k", "v", []string{`{"k":"a","v":9007199254740993}`, `{"k":"a","v":9223372036854775807}`}, map[string]string{"a": "2 9232379236109516800"}},
		{"numbers in texts, as of CSV", "k", "v", []string{`{"k":"a","v":"1.50"}`, `{"k":"a","v":"-0.25"}`}, map[string]string{"a": "2 1.25"}},
		{"far apart", "k", "v", []string{`{"k":"a","v":1e50}`, `{"k":"a","v":1e-50}`, `{"k":"a","v":-1e50}`}, map[string]string{"a": "3 0." + strings.Repeat("0", 49) + "1"}},
		{"zero of any exponent", "k", "v", []string{`{"k":"a","v":0e9999}`, `{"k":"a","v":-0}`, `{"k":"a","v":0.00}`}, map[string]string{"a": "3 0"}},
		{"nothing is summed", "k", "", []string{`{"k":"a","v":"x"}`, `{"k":"a"}`}, map[string]string{"a": "2 0"}},
		{"inside of objects", "a.b", "a.c", []string{`{"a":{"b":"x","c":7}}`}, map[string]string{"x": "1 7"}},
		{"the field itself", "v", "v", []string{`{"v":2}`, `{"v":2.0}`, `{"v":"2"}`}, map[string]string{"2": "2 4", "2.0": "1 2"}},
		{"texts, numbers, booleans", "k", "", []string{`{"k":true}`, `{"k":1}`, `{"k":"1"}`, `{"k":""}`, `{"k":"\u00e9\n"}`}, map[string]string{"true": "1 0", "1": "2 0", "": "1 0", "é\n": "1 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			proof.Same(t, cmp.Diff(c.want, countOf(t, c.field, c.sum, c.bodies...)), "")
		})
	}
}

func TestATaskWithoutFieldOrNumberIsRejectedWithACauseThatNamesTheField(t *testing.T) {
	for _, c := range []struct{ body, cause string }{
		{`{"v":1}`, `there is no field "city"`},
		{`{"city":null,"v":1}`, `field "city" is null`},
		{`{"city":{"a":1},"v":1}`, `field "city" is not a string`},
		{`{"city":"Oslo"}`, `there is no field "people"`},
		{`{"city":"Oslo","people":null}`, `field "people" is null`},
		{`{"city":"Oslo","people":true}`, `field "people" is "true", which is not a number`},
		{`{"city":"Oslo","people":""}`, `field "people" is "", which is not a number`},
		{`{"city":"Oslo","people":"1,000"}`, `field "people" is "1,000", which is not a number`},
		{`{"city":"Oslo","people":" 1"}`, `which is not a number`},
		{`{"city":"Oslo","people":"0x10"}`, `which is not a number`},
		{`{"city":"Oslo","people":"1_0"}`, `which is not a number`},
		{`{"city":"Oslo","people":"NaN"}`, `which is not a number`},
		{`{"city":"Oslo","people":"−1"}`, `which is not a number`},
		{`{"city":"Oslo","people":1e101}`, `beyond what is summed`},
		{`{"city":"Oslo","people":1e999999999}`, `beyond what is summed`},
		{`{"city":"Oslo","people":1e99999999999999999999}`, `beyond what is summed`},
		{`{"city":"Oslo","people":1e-101}`, `beyond what is summed`},
		{`{"city":"Oslo","people":"` + strings.Repeat("9", maxNumber+1) + `"}`, `beyond what is summed`},
		{`{"city":"` + strings.Repeat("x", maxCountKey+1) + `","people":1}`, `field "city" has 1025 bytes`},
		{`{"city":"Oslo"`, `no field "city" to count by: invalid JSON`},
		{`Oslo`, `no field "city" to count by: invalid JSON`},
		{``, `no field "city" to count by: invalid JSON`},
		{`["Oslo"]`, `there is no field "city"`},
	} {
		_, err := counter("city", "people").Map(t.Context(), &pump.Task{Body: []byte(c.body)})
		if word, _ := pump.OutcomeOf(err); word != "rejected" || !strings.Contains(err.Error(), c.cause) || len(err.Error()) > 400 {
			t.Errorf("%.80s: %v; want it rejected because %s", c.body, err, c.cause)
		}
	}
}

func TestWhatIsCountedKeepsNothingOfTheTask(t *testing.T) {
	body := []byte(`{"k":"abc","v":"12345678901234567890"}`)
	k, err := counter("k", "v").Map(t.Context(), &pump.Task{Body: body})
	must(t, err)
	clear(body) // the buffer is another task's
	proof.Same(t, k.key, "abc")
	proof.Same(t, k.sum.String(), "12345678901234567890")
}

func TestReducersThatCountBySomethingElseHaveOtherNames(t *testing.T) {
	cfg := pump.Config{Workload: "count", Accounts: []pump.Account{{ConnectionString: "UseDevelopmentStorage=true"}}}
	names := map[string][]string{}
	for _, fields := range [][]string{{"a", ""}, {"a", "b"}, {"b", "a"}, {`a" sum "b`, ""}, {"a\n", ""}, {"é", ""}, {"a", `"`}, {"a b", ""}, {"a b", "c d"}, {"a", "b sum c"}, {"", ""}, {"a.b", "c"}} {
		name := counter(fields[0], fields[1]).Name
		if other, is := names[name]; is {
			t.Errorf("%q and %q are both %s", fields, other, name)
		}
		names[name] = fields
		if sums, err := countsAndSums(name); err != nil || sums != (fields[1] != "") {
			t.Errorf("of %s it is said that it sums: %v, %v", name, sums, err)
		}
		proof.Is(t, proof.ErrOf(processor.New(cfg, CountBy(fields[0], fields[1]), processor.Options{})), nil, fields)
	}
	proof.Same(t, counter("city", "people").Name, "count/1 by city sum people", "the name of what is stored has become")
}

// TestSumsAreThoseOfRationalNumbers: any decimals, in any order, in any number of
// segments, stored and loaded in between, have the sum that rational arithmetic gives.
func TestSumsAreThoseOfRationalNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type task struct {
			key    string
			number string
		}
		tasks := rapid.SliceOf(rapid.Custom(func(t *rapid.T) task {
			return task{
				rapid.SampledFrom([]string{"", "a", "b", "ab", "\xff", "é"}).Draw(t, "key"),
				rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number"),
			}
		})).Draw(t, "tasks")
		segments := make([]counts, rapid.IntRange(1, 9).Draw(t, "segments"))
		want := map[string]*big.Rat{}
		times := map[string]uint64{}
		for i, task := range tasks {
			d, err := parseNumber([]byte(task.number))
			if errors.Is(err, errBigNumber) {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", task.number, err)
			}
			exact, ok := new(big.Rat).SetString(task.number)
			if !ok {
				t.Fatal(task.number)
			}
			if want[task.key] == nil {
				want[task.key] = new(big.Rat)
			}
			want[task.key].Add(want[task.key], exact)
			times[task.key]++
			s := &segments[rapid.IntRange(0, len(segments)-1).Draw(t, "segment")]
			s.add(keySums{task.key, 1, d})
			if i%3 == 0 {
				b, _ := s.encode()
				if *s, err = decodeCounts(b); err != nil {
					t.Fatal(err)
				}
			}
		}
		var runs countRuns
		for _, s := range segments {
			runs.add(s)
		}
		var keys []string
		for k := range runs.all() {
			keys = append(keys, k.key)
			got, ok := new(big.Rat).SetString(k.sum.String())
			if !ok || want[k.key] == nil || got.Cmp(want[k.key]) != 0 || k.count != times[k.key] {
				t.Fatalf("key %q: %d times %v, want %d times %v", k.key, k.count, k.sum, times[k.key], want[k.key])
			}
		}
		if len(keys) != len(want) || !slices.IsSorted(keys) {
			t.Fatalf("keys %q, want %d sorted ones", keys, len(want))
		}
	})
}

// TestCountsOfManySegmentsAreMergedInMemoryOfTheResult: the same thousand keys in every
// segment are held about as often as the stack has runs, not as there are segments.
func TestCountsOfManySegmentsAreMergedInMemoryOfTheResult(t *testing.T) {
	const segments, keys = 512, 1000
	rng := rand.New(rand.NewPCG(4, 4))
	var runs countRuns
	most, one := 0, 0
	for range segments {
		var c counts
		for _, k := range rng.Perm(keys) {
			c.add(keySums{key: fmt.Sprint("key ", k), count: 1})
		}
		runs.add(c)
		size := 0
		for _, r := range runs {
			size += len(r)
		}
		one = max(one, len(runs[0]))
		most = max(most, size)
	}
	if most > 2*one {
		t.Errorf("%d bytes were held, the result has %d", most, one)
	}
	n := 0
	for k := range runs.all() {
		if k.count != segments {
			t.Fatalf("key %q: %d, want %d", k.key, k.count, segments)
		}
		n++
	}
	proof.Same(t, n, keys, "keys")
}

func TestCountsAreStoredAsTheyAlwaysWere(t *testing.T) {
	var c counts
	for _, k := range []struct{ key, number string }{{"b", "1.5"}, {"a", "-300"}, {"b", "2e3"}} {
		d, err := parseNumber([]byte(k.number))
		must(t, err)
		c.add(keySums{k.key, 1, d})
	}
	got, _ := c.encode()
	// "b" twice: 20015 x 10^-1; "a" once: -300.
	want := []byte{1, 'b', 2, 1, 2 * 2, 0x4e, 0x2f, 1, 'a', 1, 0, 2*2 + 1, 0x01, 0x2c}
	if !bytes.Equal(got, want) {
		t.Errorf("% x\nwant % x", got, want)
	}
}

// FuzzDecodeCounts: bytes from outside are refused or are counts, and no panic.
func FuzzDecodeCounts(f *testing.F) {
	for _, seed := range [][]byte{nil, {0}, {1, 'b', 2, 1, 4, 0x4e, 0x2f, 1, 'a', 1, 0, 5, 1, 44}, {1, 'b', 2, 0, 0, 1, 'b', 2, 0, 0}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCounts(b)
		if err != nil {
			return
		}
		again, _ := c.encode()
		d, err := decodeCounts(again)
		if err != nil || len(d.keys) != len(c.keys) {
			t.Fatalf("% x: %v", again, err)
		}
		var runs countRuns
		runs.add(c)
		runs.add(d)
		for range runs.all() {
		}
	})
}
