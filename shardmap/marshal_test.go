package shardmap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

var compareMaps = cmp.AllowUnexported(Map{})

func mustMarshal(t testing.TB, m *Map) []byte {
	t.Helper()
	b, err := m.MarshalBinary()
	must(t, err)
	return b
}

func TestAMapIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := New(drawSegments(t), drawShards(t, "first"))
		must(t, err)
		if m, err = m.Change(drawShards(t, "next")); err != nil {
			t.Fatal(err)
		}
		b, err := m.MarshalBinary()
		must(t, err)
		var read Map
		must(t, read.UnmarshalBinary(b))
		if diff := cmp.Diff(*m, read, compareMaps); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestAHundredShardsOf4096SegmentsFit60KiB(t *testing.T) {
	usual := len(mustMarshal(t, mustNew(t, 4096, equalShards(100))))
	shards := make([]Shard, 100)
	for i := range shards { // the longest names, no two alike
		shards[i] = Shard{Account: fmt.Sprintf("a%062d", i), Queue: fmt.Sprintf("q%062d", i), Weight: 999.999999}
	}
	worst := len(mustMarshal(t, mustNew(t, 4096, shards)))
	t.Logf("100 shards at S = 4096: %d bytes with usual names, %d with the longest; most is %d", usual, worst, MaxBytes)
	if usual > 8<<10 || worst > MaxBytes {
		t.Error("too large")
	}
}

// resum is a map's bytes changed by hand, with a right checksum again.
func resum(b []byte, change func([]byte) []byte) []byte {
	b = change(slices.Clone(b[:len(b)-8]))
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
}

func TestADamagedMapIsRefused(t *testing.T) {
	m := mustNew(t, 4, []Shard{{Account: "a", Queue: "q"}, {Account: "b", Queue: "q", State: Draining}})
	good := mustMarshal(t, m)
	// format 1 | version 1 | log2 S 2 | 2 accounts: 1 a 1 b | 1 queue: 1 q | 2 shards: 0 0 1000000
	// active, 1 0 1000000 draining | homes
	const version, logS, accounts, queue, shards = 1, 2, 3, 8, 11
	set := func(at int, to ...byte) []byte {
		return resum(good, func(b []byte) []byte { return append(append(b[:at:at], to...), b[at+len(to):]...) })
	}
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"empty":                   {nil, ErrCorrupt},
		"only a format":           {good[:1], ErrCorrupt},
		"a newer format":          {set(0, fourthFormat+1), ErrFormat},
		"too long":                {make([]byte, MaxBytes+1), ErrTooLarge},
		"one bit off":             {append(good[:len(good)-1:len(good)-1], good[len(good)-1]^1), ErrCorrupt},
		"no segments":             {set(logS, 64), ErrCorrupt},
		"too many segments":       {set(logS, 15), ErrCorrupt},
		"more homes than written": {set(logS, 12), ErrCorrupt},
		"fewer homes":             {set(logS, 1), ErrCorrupt},
		"too many names":          {set(accounts, 0xff), ErrCorrupt},
		"a name past the end":     {set(queue+1, 200), ErrCorrupt},
		"an empty name":           {set(accounts, 2, 0, 2, 'a', 'b'), ErrCorrupt},
		"a name with a slash":     {set(queue+2, '/'), ErrCorrupt},
		"no shards":               {set(shards, 0), ErrCorrupt},
		"an account not named":    {set(shards+1, 7), ErrCorrupt},
		"a queue not named":       {set(shards+2, 1), ErrCorrupt},
		"no weight":               {set(shards+3, 0x80, 0x80, 0), ErrCorrupt},
		"a huge weight":           {set(shards+3, 0xff, 0xff, 0xff, 0xff, 0x7f), ErrCorrupt},
		"an unknown state":        {set(shards+6, 2), ErrCorrupt},
		"a shard twice":           {set(shards+7, 0), ErrCorrupt},
		"none active":             {set(shards+6, 1), ErrCorrupt},
		"home on no shard":        {set(len(good)-9, 2), ErrCorrupt},
		"home on a draining one":  {set(len(good)-9, 1), ErrCorrupt},
		"bytes after the end":     {resum(good, func(b []byte) []byte { return append(b, 0) }), ErrCorrupt},
		"an unended number":       {resum(good, func(b []byte) []byte { return append(b[:1:1], bytes.Repeat([]byte{0xff}, 12)...) }), ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			into := Map{Version: 42}
			err := into.UnmarshalBinary(c.data)
			proof.Is(t, err, c.want)
			proof.Same(t, into.Version, 42, "the receiver was changed")
		})
	}
	for n := range good { // cut anywhere
		proof.Is(t, new(Map).UnmarshalBinary(good[:n]), ErrCorrupt, "the first", n, "of", len(good), "bytes")
		if n < len(good)-8 {
			cut := resum(good, func(b []byte) []byte { return b[:n] })
			if err := new(Map).UnmarshalBinary(cut); err == nil {
				t.Errorf("the first %d of %d bytes with a right checksum were accepted", n, len(good))
			}
		}
	}
	must(t, new(Map).UnmarshalBinary(good))
	proof.Is(t, new(Map).UnmarshalBinary(set(version, 9)), nil, "another version number")
}

func FuzzUnmarshalBinary(f *testing.F) {
	for _, shards := range [][]Shard{equalShards(1), equalShards(3), drained(equalShards(5), 2), {{Account: "a", Queue: strings.Repeat("q", 63), Weight: 1000}}} {
		b := mustMarshal(f, mustNew(f, 16, shards))
		f.Add(b[:len(b)-8])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum is put on here, or the fuzzer would never get past it.
		data := binary.BigEndian.AppendUint64(slices.Clone(body), xxhash.Sum64(body))
		var m Map
		if m.UnmarshalBinary(data) != nil {
			return
		}
		for s := range m.Segments {
			if m.Shards[m.Home(uint32(s))].State != Active {
				t.Fatal("a home drains")
			}
			m.Choices(uint32(s))
		}
		again, err := m.MarshalBinary()
		if errors.Is(err, ErrTooLarge) {
			return // names in order of first use may need longer numbers than the order that was read
		}
		must(t, err)
		var twice Map
		must(t, twice.UnmarshalBinary(again))
		if diff := cmp.Diff(m, twice, compareMaps); diff != "" {
			t.Fatal(diff)
		}
		if len(m.Shards) > 16 || m.Version == 1<<64-1 {
			return // placing a thousand shards takes a second
		}
		must(t, proof.ErrOf(m.Change(m.Shards)))
	})
}

// Foreign shards are read and never put into: no segment has its home there, and a program that
// does not know them refuses the map.
func TestForeignShardsAreNoHomes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := drawShards(t, "own")
		before, err := New(drawSegments(t), own)
		must(t, err)
		foreign := []Shard{{Account: "other", Queue: "orders", State: Foreign}, {Account: before.Shards[0].Account, Queue: "orders", State: Foreign}}
		with, err := before.Change(append(foreign, own...))
		must(t, err)
		loads := with.Loads()
		for i, s := range with.Shards {
			if s.State == Foreign && loads[i] > 0 {
				t.Fatalf("%v is the home of %d segments", s, loads[i])
			}
		}
		for s := range uint32(with.Segments) {
			if a, b := before.Shards[before.Home(s)], with.Shards[with.Home(s)]; compareNames(a, b) != 0 {
				t.Fatalf("segment %d moved from %v to %v", s, a, b)
			}
			for _, i := range with.Choices(s) {
				if with.Shards[i].State != Active {
					t.Fatalf("%v is a choice", with.Shards[i])
				}
			}
		}
		b, err := with.MarshalBinary()
		format := byte(thirdFormat)
		if !powerOfTwo(with.Segments) {
			format = fourthFormat
		}
		if err != nil || b[0] != format {
			t.Fatalf("format %d, want %d, %v", b[0], format, err)
		}
		var read Map
		must(t, read.UnmarshalBinary(b))
		if diff := cmp.Diff(*with, read, compareMaps); diff != "" {
			t.Fatal(diff)
		}
	})
	proof.Is(t, proof.ErrOf(New(64, []Shard{{Account: "a", Queue: "orders", State: Foreign}})), ErrNoActive)
}
