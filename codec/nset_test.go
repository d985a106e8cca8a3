package codec

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// drawNSet draws a set, by single n and by ranges, and the same set as a map.
func drawNSet(t *rapid.T) (NSet, map[uint64]bool) {
	base := rapid.SampledFrom([]uint64{0, 1, 1 << 20, 1 << 40, math.MaxUint64 - 300}).Draw(t, "base")
	model := map[uint64]bool{}
	ns := rapid.SliceOfN(rapid.Uint64Range(base, base+200), 0, 30).Draw(t, "ns")
	for _, n := range ns {
		model[n] = true
	}
	set := MakeNSet(ns...)
	for range rapid.IntRange(0, 3).Draw(t, "ranges") {
		from := rapid.Uint64Range(base, base+200).Draw(t, "from")
		to := rapid.Uint64Range(base, base+200).Draw(t, "to")
		set.AddRange(from, to)
		for n := from; n < to; n++ {
			model[n] = true
		}
	}
	return set, model
}

func TestAnNSetIsASetOfN(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, model := drawNSet(t)
		want := slices.Sorted(maps.Keys(model))
		if got := slices.Collect(set.All()); !slices.Equal(got, want) {
			t.Fatalf("All gives %v, want %v", got, want)
		}
		if set.Len() != len(want) {
			t.Fatalf("Len is %d, want %d", set.Len(), len(want))
		}
		if !set.Equal(MakeNSet(want...)) {
			t.Fatalf("%v has another representation than its elements one by one", set)
		}
		probe := rapid.Uint64().Draw(t, "probe")
		if len(want) > 0 {
			probe = want[0] + probe%210 - 5
		}
		if set.Contains(probe) != model[probe] {
			t.Fatalf("Contains(%d) is %t in %v", probe, set.Contains(probe), set)
		}
		var last uint64
		spans := 0
		for from, to := range set.Spans() {
			if to <= from || spans > 0 && from <= last {
				t.Fatalf("span %d-%d after %d", from, to, last)
			}
			last = to
			spans++
		}
	})
}

func TestAnNSetReadsBackFromItsOnlyEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, model := drawNSet(t)
		wire := set.append(nil)
		if len(wire) != set.size() {
			t.Fatalf("size is %d, encoded %d", set.size(), len(wire))
		}
		f := fields{rest: wire}
		got := readNSet(&f, uint64(len(model)))
		if f.err != nil || len(f.rest) > 0 || !got.Equal(set) {
			t.Fatalf("%v read back as %v, rest %d, %v", set, got, len(f.rest), f.err)
		}
		if len(model) > 0 {
			f = fields{rest: wire}
			if readNSet(&f, uint64(len(model)-1)); !errors.Is(f.err, ErrCorrupt) {
				t.Fatalf("%d n where %d are allowed: %v", len(model), len(model)-1, f.err)
			}
		}
	})
}

func TestCopiesOfAnNSetAreIndependent(t *testing.T) {
	a := MakeNSet(1, 2, 3, 10)
	b, c := a, a
	b.AddRange(4, 10)
	c.AddRange(20, 30)
	if a.String() != "1-3,10" || b.String() != "1-10" || c.String() != "1-3,10,20-29" {
		t.Errorf("a %v, b %v, c %v", a, b, c)
	}
}

func TestAnNSetIsReadBoundedByWhatIsThere(t *testing.T) {
	uv := func(vs ...uint64) (b []byte) {
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	for name, wire := range map[string][]byte{
		"nothing":                       {},
		"more spans than bytes":         uv(1<<40, 0, 0),
		"a span of 2^64":                uv(1, 0, math.MaxUint64),
		"spans that add up beyond 2^64": uv(2, 0, math.MaxUint64-1, 0, math.MaxUint64-1),
		"first span beyond 2^64":        uv(1, math.MaxUint64, 0),
		"second span beyond 2^64":       uv(2, 5, 0, math.MaxUint64-5, 0),
		"gap missing":                   uv(2, 0, 0),
		"number not in its short form":  {1, 0x80, 0, 0},
	} {
		f := fields{rest: wire}
		if set := readNSet(&f, 1<<24); !errors.Is(f.err, ErrCorrupt) || set.Len() > 0 {
			t.Errorf("%s: read %v, %v", name, set, f.err)
		}
	}
}

func TestAnNSetTellsItsSizeAndText(t *testing.T) {
	var huge NSet
	huge.AddRange(0, math.MaxUint64)
	proof.Same(t, huge.Len(), math.MaxInt, "Len")
	huge = NSet{[]span{{0, math.MaxUint64 - 10}, {math.MaxUint64 - 5, math.MaxUint64}}}
	proof.Same(t, huge.Len(), math.MaxInt, "Len of two spans")
	proof.Same(t, (NSet{}).String(), "", "empty set")
	for range MakeNSet(1, 2, 3).All() {
		break
	}
	for range MakeNSet(1, 3).Spans() {
		break
	}
	defer func() {
		if recover() == nil {
			t.Error("2^64-1 was taken")
		}
	}()
	MakeNSet(math.MaxUint64)
}
