package results

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
)

var one, two = codec.RunID{1}, codec.RunID{2}

func lineOf(run codec.RunID, segment, n int) []byte {
	return fmt.Appendf(nil, `{"run":"%s","segment":%d,"n":%d,"key":"k","result":1}`+"\n", run, segment, n)
}

// An object gives back its chains and lines, noted ones first, and names its runs.
func TestAnObjectIsReadAsItWasMade(t *testing.T) {
	var o Object
	before := Ref{"account1", 7, 41}
	o.Add(two, Link(5), before, lineOf(two, 5, 0))
	o.Add(one, Noted, Ref{}, lineOf(one, 5, 3), lineOf(one, 6, 4))
	var head *Header
	var got []string
	must := func(err error) {
		t.Helper()
		proof.Must(t, err)
	}
	must(Read(o.Body(time.Unix(9, 0)), func(h *Header) error { head = h; return nil },
		func(line []byte, noted bool) error {
			for _, run := range []codec.RunID{one, two} {
				if segment, n, ok := Identify(line, LinesOf(run)); ok {
					got = append(got, fmt.Sprint(run[0], segment, n, noted))
				}
			}
			return nil
		}))
	proof.Alike(t, got, []string{"1 5 3 true", "1 6 4 true", "2 5 0 false"})
	if head.Chains[two]["5"] != before || head.Chains[one][Noted] != (Ref{}) || !head.At.Equal(time.Unix(9, 0)) {
		t.Errorf("%+v", head)
	}
	if runs, ok := RunsOf(o.Metadata()); !ok || !slices.Equal(runs, []codec.RunID{one, two}) {
		t.Errorf("%v, %v", runs, ok)
	}
	if packed, err := Unpack(before.Pack()); err != nil || packed != before {
		t.Errorf("%v, %v", packed, err)
	}
}

// What is cut off, spoilt, empty or too large is an error, and takes bounded memory.
func TestADamagedObjectIsAnError(t *testing.T) {
	var o Object
	o.Add(one, Link(1), Ref{}, lineOf(one, 1, 1))
	whole := o.Body(time.Unix(9, 0))
	spoilt := bytes.Clone(whole)
	spoilt[len(spoilt)/2] ^= 0x55
	var large [][]byte
	for range 40 {
		large = append(large, append(bytes.Repeat([]byte("x"), 1<<20), '\n'))
	}
	for name, body := range map[string][]byte{
		"cut": whole[:len(whole)-9], "spoilt": spoilt, "empty": nil, "no object": packLines(map[string]int{"a": 1}),
		"newer": packLines(Header{Format: 2}), "no line end": packLines(Header{Format: 1}, [][]byte{[]byte("x")}),
		"too large": packLines(Header{Format: 1}, large),
	} {
		if err := Read(body, func(*Header) error { return nil }, func([]byte, bool) error { return nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, text := range []string{"a", "a/b/c", "/0000000000000007/1", "a/0000000000000007/0", "a/07/1"} {
		var r Ref
		if err := r.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, r)
		}
	}
	for _, packed := range []string{"short", "12345678\x00a", "12345678\x01"} {
		if r, err := Unpack(packed); err == nil {
			t.Errorf("%q is %v", packed, r)
		}
	}
}

func FuzzRead(f *testing.F) {
	var o Object
	o.Add(one, Link(1), Ref{"a", 1, 1}, lineOf(one, 1, 1))
	f.Add(o.Body(time.Unix(9, 0)))
	f.Fuzz(func(t *testing.T, body []byte) {
		_ = Read(body, func(*Header) error { return nil }, func(line []byte, _ bool) error {
			Identify(line, LinesOf(one))
			return nil
		})
	})
}
