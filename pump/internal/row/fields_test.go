package row_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// What no version of the program writes is damage: it is named, and nothing is taken from it.
func TestAPropertyThatNoVersionWritesIsDamage(t *testing.T) {
	run := testkit.RunID(3)
	for name, c := range map[string]struct {
		good, bad any
		read      func(f *row.Fields) any
	}{
		"text":     {"a", int64(1), func(f *row.Fields) any { return f.Line("x") }},
		"line":     {"a", strings.Repeat("a", 251), func(f *row.Fields) any { return f.Line("x") }},
		"flag":     {true, "true", func(f *row.Fields) any { return f.Flag("x") }},
		"moment":   {time.Unix(1, 0), "1", func(f *row.Fields) any { return f.Moment("x") }},
		"duration": {int64(5), int64(-5), func(f *row.Fields) any { return int64(f.Duration("x")) }},
		"up to 9":  {int64(9), int64(10), func(f *row.Fields) any { return int64(f.UpTo("x", 9)) }},
		"number":   {1.5, math.NaN(), func(f *row.Fields) any { return f.Number("x") }},
		"run":      {row.RunText(run), "run 3", func(f *row.Fields) any { return row.RunText(f.Run("x")) }},
		"no run":   {"", "-", func(f *row.Fields) any { return row.RunText(f.Run("x")) }},
	} {
		good, bad := row.Fields{Props: map[string]any{"x": c.good}}, row.Fields{Props: map[string]any{"x": c.bad}}
		if got := c.read(&good); got != c.good || good.Err != nil {
			t.Errorf("%s: %v, %v", name, got, good.Err)
		}
		if got := fmt.Sprint(c.read(&bad)); !errors.Is(bad.Err, row.ErrCorrupt) || got == fmt.Sprint(c.bad) && got != "" {
			t.Errorf("%s: %v, %v", name, got, bad.Err)
		}
	}
}

// A value of bytes comes back whole from as many columns as it takes.
func TestAValueOfManyColumnsComesBackWhole(t *testing.T) {
	for _, size := range []int{0, 1, 10, 11, 25} {
		value := bytes.Repeat([]byte("v"), size)
		f := row.Fields{Props: map[string]any{}}
		row.PutParts(f.Props, "X", 10, value)
		if got := f.Parts("X", 3); !bytes.Equal(got, value) || len(f.Props) != max(1, (size+9)/10) {
			t.Errorf("%d bytes: %q in %v", size, got, f.Props)
		}
	}
	proof.Alike(t, row.PartNames("X", 3), []string{"X", "X1", "X2"})
}

func TestWhatIsPackedIsReadBackWithinItsBound(t *testing.T) {
	long := strings.Repeat("a", 10_000)
	packed := row.Pack(long)
	var got string
	if err := row.Unpack(packed, 20_000, &got); err != nil || got != long || len(packed) > 200 {
		t.Errorf("%d bytes, %v", len(packed), err)
	}
	for _, wrong := range [][]byte{packed, packed[:20], nil, []byte("{}")} {
		proof.Same(t, row.Unpack(wrong, 5000, &got) == nil, false, wrong, "is read")
	}
}

func TestTextsForPeopleAreOneValidLine(t *testing.T) {
	for s, want := range map[string]string{
		"a\tb\n": "a b ", "\xff": "?", strings.Repeat("ä", 200): strings.Repeat("ä", 125),
	} {
		proof.Same(t, row.Clip(s), want, s)
	}
	for x, want := range map[float64]float64{-1: 0, 2: 2, 1e12: row.MaxDemand, math.Inf(1): row.MaxDemand} {
		if got := row.Finite(x); got != want || row.Finite(math.NaN()) != 0 {
			t.Errorf("%v: %v", x, got)
		}
	}
}

// P5.3: an owner is dead when its row stood still for lease and margin of unbroken reads.
func TestAnOwnerIsDeadWhenItsRowStoodStillLongEnough(t *testing.T) {
	times := row.Times{Beat: time.Second, Lease: 10 * time.Second, Margin: 2 * time.Second}
	proof.Must(t, times.Check())
	for name, wrong := range map[string]row.Times{
		"no beat": {0, 10, 2}, "a long lease": {1, 2 * time.Hour, 2}, "a large margin": {1, 10, 11}, "one beat": {6, 10, 2},
	} {
		proof.Same(t, wrong.Check() == nil, false, name, "is taken")
	}
	var w row.Watch
	at := time.Unix(1000, 0)
	look := func(after time.Duration, etag storage.ETag) bool {
		at = at.Add(after)
		return w.Look(etag, at, at, times)
	}
	look(0, "a")
	for i := range 11 {
		if !look(time.Second, "a") {
			t.Errorf("dead after %d s", i+1)
		}
	}
	if look(time.Second, "a") {
		t.Error("alive after lease and margin")
	}
	if !look(time.Second, "b") || !look(3*time.Second, "b") || w.Since != at {
		t.Error("a beat, or a gap between reads, does not begin anew")
	}
	if l := row.Longer(times, row.Times{Beat: 2 * time.Second}); l.Beat != 2*time.Second || l.Lease != times.Lease {
		t.Error(l)
	}
}

// Rows go that are as they were found; the others stay, and none of them is an error.
func TestOnlyRowsThatAreAsTheyWereFoundGo(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		var n waits.Counter
		table := row.Counted(testkit.OverTheWire(t, sim, "a"), &n)
		for _, key := range []string{"r1", "r2", "r3"} {
			_, err := table.Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: key}})
			proof.Must(t, err)
		}
		q := storage.Query{Partition: "p"}
		found, err := row.MustFind(t.Context(), table, q, 2)
		if err != nil || len(found) != 2 {
			t.Fatal(found, err)
		}
		_, err = table.Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: storage.Entity{Partition: "p", Row: "r2"}})
		proof.Must(t, err)
		proof.Must(t, row.RemoveFound(t.Context(), table, found))
		if left, err := row.MustFind(t.Context(), table, q, 9); err != nil || len(left) != 2 || left[0].Row != "r2" {
			t.Error(left, err)
		}
	})
}
