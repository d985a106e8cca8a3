package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

func decodeRow[T any](props map[string]any, decode func(*row.Fields) T) (T, error) {
	f := &row.Fields{Props: props}
	v := decode(f)
	return v, f.Err
}

func TestOwnersAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.SampledFrom([]int{1, 2, 64, 256, 512}).Draw(t, "segments")
		names := rapid.SliceOfN(rapid.StringMatching(`[A-Za-z0-9_.~-]{1,200}`), 1, 20).Draw(t, "names")
		owners := make([]Owner, count)
		for i := range owners {
			if rapid.Bool().Draw(t, "owned") {
				n := rapid.SampledFrom(names).Draw(t, "name")
				owners[i] = Owner{n, fmt.Sprintf("%016x", len(n)), rapid.Uint64Range(1, row.MaxEpoch).Draw(t, "epoch")}
			} else {
				owners[i].Epoch = rapid.Uint64Range(0, row.MaxEpoch).Draw(t, "epoch")
			}
		}
		got, err := decodeRow(encodeOwners(owners), func(f *row.Fields) []Owner { return decodeOwners(f, count) })
		if err != nil || !slices.Equal(got, owners) {
			t.Fatalf("%v\n%v\n%v", err, got, owners)
		}
	})
}

func TestOwnersOf512SegmentsFitAnEntityWhateverTheirNames(t *testing.T) {
	owners := make([]Owner, ownersPerRow)
	for i := range owners {
		owners[i] = Owner{fmt.Sprintf("%0200d", i), fmt.Sprintf("%032d", i), row.MaxEpoch}
	}
	props := encodeOwners(owners)
	total := 0
	for name, v := range props {
		size := len(v.([]byte))
		if total += size; size > storage.MaxProperty {
			t.Errorf("%s has %d bytes", name, size)
		}
	}
	t.Logf("512 different owners with names of 200 bytes: %d properties, %d bytes", len(props), total)
	if got, err := decodeRow(props, func(f *row.Fields) []Owner { return decodeOwners(f, ownersPerRow) }); err != nil || !slices.Equal(got, owners) {
		t.Error(err)
	}
	few := make([]Owner, ownersPerRow)
	for i := range few {
		few[i] = Owner{fmt.Sprintf("some-machine-name-%d-4711-0a1b2c3d", i%16), "0123456789abcdef", 3}
	}
	if size := len(encodeOwners(few)["Owners0"].([]byte)); size > 2048 {
		t.Errorf("16 usual owners take %d bytes", size)
	}
}

// FuzzOwners: whatever stands in the row, decoding is bounded and gives what
// encodeOwners gives back, or an error that says what is wrong.
func FuzzOwners(f *testing.F) {
	f.Add(encodeOwners([]Owner{{"a", "b", 1}, {"", "", 3}, {"c", "d", row.MaxEpoch}, {"a", "b", 2}})["Owners0"].([]byte))
	f.Add([]byte{0, 4, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, packed []byte) {
		got, err := decodeRow(map[string]any{"Owners0": packed}, func(f *row.Fields) []Owner { return decodeOwners(f, 4) })
		if err != nil {
			if !errors.Is(err, row.ErrCorrupt) || got != nil {
				t.Fatalf("%v with %v", err, got)
			}
			return
		}
		again, err := decodeRow(encodeOwners(got), func(f *row.Fields) []Owner { return decodeOwners(f, 4) })
		if err != nil || !slices.Equal(got, again) {
			t.Fatalf("%v: %v, then %v", err, got, again)
		}
	})
}

func TestDamagedOwnersAreRefused(t *testing.T) {
	good := encodeOwners([]Owner{{"a", "i", 1}, {}, {"b", "j", 2}, {}})["Owners0"].([]byte)
	for name, packed := range map[string][]byte{
		"empty":                      {},
		"cut":                        good[:len(good)-1],
		"too long":                   append(slices.Clone(good), 0),
		"more owners than segments":  {5},
		"a name that is no key":      {1, 1, '/', 1, 'i', 4, 0, 0, 0, 0, 0, 0, 0, 0},
		"no incarnation":             {1, 1, 'a', 0, 4, 0, 0, 0, 0, 0, 0, 0, 0},
		"a name longer than the row": {1, 100, 'a'},
		"an owner not in the names":  {0, 4, 1, 1, 0, 0, 0, 0, 0, 0},
		"an owner without an epoch":  {1, 1, 'a', 1, 'i', 4, 1, 0, 0, 0, 0, 0, 0, 0},
		"three segments":             {0, 3, 0, 0, 0, 0, 0, 0},
		"an epoch out of bounds":     encodeOwners([]Owner{{"a", "i", row.MaxEpoch + 1}, {}, {}, {}})["Owners0"].([]byte),
		"an epoch that cannot grow":  append([]byte{0, 4, 0}, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0),
	} {
		if got, err := decodeRow(map[string]any{"Owners0": packed}, func(f *row.Fields) []Owner { return decodeOwners(f, 4) }); !errors.Is(err, row.ErrCorrupt) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func someMember() memberRow {
	return memberRow{
		Member: Member{
			Instance: "a", Incarnation: "0123", Host: "h", Version: "v1", Role: RoleProcessor,
			Started: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Holds: SegmentSet{}.with(7).with(4095),
			Report: Report{
				Admin: "h:80", Waiting: "g", Draining: true, Accounts: []string{"north", "south"}, Reads: 2,
				Demand: map[string]float64{"north": 1.5, "south": 1e-9}, Tasks: 1 << 60, Rate: 12.5, Seconds: 0.25, Throttled: 3, Queues: 8, Trouble: "üble Sache",
				Samples: true, Held: map[string]float64{"north": 3}, Later: map[string]float64{"south": 4}, Deletes: 5,
			},
		},
		Times: row.Times{Beat: 5 * time.Second, Lease: 20 * time.Second, Margin: 3 * time.Second}, beats: 9,
	}
}

func TestAMemberIsReadAsItWasWritten(t *testing.T) {
	m := someMember()
	got, err := decodeRow(encodeMember(m), func(f *row.Fields) memberRow { return decodeMember(f, "a") })
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%v\n%+v\n%+v", err, got, m)
	}
	if !slices.Equal(slices.Collect(got.Holds.All()), []uint32{7, 4095}) || got.Holds.Len() != 2 || !got.Holds.Has(7) || got.Holds.Has(8) || got.Holds.Has(5000) {
		t.Error("the set of segments is another")
	}
}

func TestWhateverAMemberSaysOfItselfItsRowIsSmallAndCanBeRead(t *testing.T) {
	m := someMember()
	m.Started = time.Time{}
	m.Host, m.Version, m.Trouble, m.Admin, m.Waiting = strings.Repeat("ü", 5000), "\xff\n", strings.Repeat("x\n", 5000), strings.Repeat("a", 5000), strings.Repeat("b", 5000)
	m.Rate, m.Seconds, m.Tasks = math.NaN(), math.Inf(1), math.MaxUint64
	m.Accounts, m.Demand = nil, map[string]float64{"nan": math.NaN(), "inf": math.Inf(1), "minus": -1, `qu"ote`: 1, "zero": 0}
	for i := range 5000 {
		name := fmt.Sprintf("%063d", i)
		m.Accounts, m.Demand[name] = append(m.Accounts, name), float64(i)/7
	}
	for i := range uint32(shardmap.MaxSegments) {
		m.Holds = m.Holds.with(i)
	}
	props := encodeMember(m)
	for name, v := range props {
		if s, ok := v.(string); ok && 2*len(s) > storage.MaxProperty {
			t.Errorf("%s has %d bytes", name, len(s))
		}
	}
	got, err := decodeRow(props, func(f *row.Fields) memberRow { return decodeMember(f, "a") })
	must(t, err)
	if got.Holds.Len() != shardmap.MaxSegments || len(got.Accounts) < 300 || len(got.Demand) < 200 || got.Demand["minus"] != 0 || got.Rate != 0 || got.Tasks != math.MaxInt64 || !got.Started.IsZero() {
		t.Errorf("holds %d, accounts %d, demand %d, %+v", got.Holds.Len(), len(got.Accounts), len(got.Demand), got.Rate)
	}
}

// The cost of a day at the rate of the last minutes is not known at once, which is not the same as
// 0.
func TestARateThatIsNotKnownIsNotZero(t *testing.T) {
	for _, rate := range []*float64{nil, new(0.0), new(2.0)} {
		m := someMember()
		m.Day = &Day{Number: 20_000, Cost: 1, Rate: rate}
		got, err := decodeRow(encodeMember(m), func(f *row.Fields) memberRow { return decodeMember(f, "a") })
		if err != nil || got.Day == nil || (got.Day.Rate == nil) != (rate == nil) {
			t.Fatalf("%+v, %v", got.Day, err)
		}
		if per := got.Day.PerDay(); (per == nil) != (rate == nil) || rate != nil && *per != *rate*86400 {
			t.Errorf("%v a second are %v a day", rate, per)
		}
	}
}

func TestADamagedMemberIsRefused(t *testing.T) {
	for property, value := range map[string]any{
		"Instance": "b", "Incarnation": "", "Role": "king", "Lease": int64(48 * time.Hour), "Margin": int64(-1), "Beat": int64(0),
		"Holds": make([]byte, shardmap.MaxSegments/8+1), "Accounts": strings.Repeat("a ", 1025), "Demand": "{", "Rate": math.NaN(), "Seconds": -1.0,
		"Tasks": int64(-1), "Queues": int64(1 << 40), "Reads": "one", "Host": strings.Repeat("h", 300), "Draining": "yes",
	} {
		props := maps.Clone(encodeMember(someMember()))
		props[property] = value
		if _, err := decodeRow(props, func(f *row.Fields) memberRow { return decodeMember(f, "a") }); !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), property) && property != "Margin" && property != "Beat" {
			t.Errorf("%s: %v", property, err)
		}
	}
	for _, demand := range []string{`{"a":-1}`, `{"a":1e300}`, `{"a":"b"}`, `[1]`} {
		props := maps.Clone(encodeMember(someMember()))
		props["Demand"] = demand
		if _, err := decodeRow(props, func(f *row.Fields) memberRow { return decodeMember(f, "a") }); !errors.Is(err, row.ErrCorrupt) {
			t.Errorf("%s: %v", demand, err)
		}
	}
}
