package operations

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/pump/prices"
)

func TestCountsAreReadAsTheyWerePacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want Counts
		for k := range want {
			want[k] = rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, most)).Draw(t, "n")
		}
		behind := rapid.SliceOf(rapid.Byte()).Draw(t, "behind")
		got, rest, ok := Take(append(want.Append(nil), behind...))
		if !ok || got != want || string(rest) != string(behind) {
			t.Fatalf("%v, %v, %v, want %v and %v", got, rest, ok, want, behind)
		}
	})
}

// A program of later may count kinds that this one does not know. What it says of the others stays
// known.
func TestKindsOfANewerProgramArePassedOver(t *testing.T) {
	packed := []byte{0b1000_0010, 0b0001_0000 | 0b1000_0000, 0b1, 7, 8, 9} // kinds 1, 11 and 14
	got, rest, ok := Take(append(packed, 42))
	if want := (Counts{Get: 7}); !ok || got != want || len(rest) != 1 || rest[0] != 42 {
		t.Errorf("%v, %v, %v", got, rest, ok)
	}
}

func TestDamagedCountsAreRefused(t *testing.T) {
	good := Counts{Put: 300, Peek: 1}.Append(nil)
	for name, packed := range map[string][]byte{
		"nothing": {}, "cut": good[:len(good)-1], "endless": {255, 255},
		"too many": {1, 255, 255, 255, 255, 255, 255, 255, 255, 1},
	} {
		if got, rest, ok := Take(packed); ok || got != (Counts{}) || rest != nil {
			t.Errorf("%s: %v, %v", name, got, rest)
		}
	}
}

// Requests are counted by kind and paid for by service: both must say the same.
func TestAKindIsOfTheServiceThatItIsPaidFor(t *testing.T) {
	l := prices.List{Queue: 10_000, Table: 20_000}
	for k := range Kinds {
		if want := map[string]float64{Queue: 1, Table: 2}[k.Service()]; l.Of(k.String()) != want {
			t.Errorf("a %s is of the service %s and costs %v", k, k.Service(), l.Of(k.String()))
		}
	}
	all := Counts{}
	for k := range all {
		all[k] = 1
	}
	if all.Of(Queue) != 8 || all.Of(Table) != 3 {
		t.Errorf("%d to queues, %d to tables", all.Of(Queue), all.Of(Table))
	}
}
