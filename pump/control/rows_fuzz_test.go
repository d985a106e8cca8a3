package control

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/allocation"
	"github.com/queuepump/queuepump/pump/internal/faketable"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// fuzzedRow is one kind of row with something that it may hold.
type fuzzedRow struct {
	name string
	good map[string]any
	// reread reads properties and gives what it would write for what it read.
	reread func(props map[string]any) (map[string]any, error)
}

func fuzzed[T any](name string, r row[T], value T) fuzzedRow {
	write := func(v T) map[string]any { return r.prepare(version[T]{}, v, "nonce").Entity.Properties }
	return fuzzedRow{name, write(value), func(props map[string]any) (map[string]any, error) {
		var v version[T]
		if _, err := r.parse(storage.Entity{ETag: "e", Properties: props}, &v); err != nil {
			return nil, err
		}
		return write(v.value), nil
	}}
}

// fuzzedRows are the rows that are read by fields, but for the ledger's.
func fuzzedRows(t testing.TB) []fuzzedRow {
	table := faketable.NewServer().Client("a")
	id := codec.RunID{1, 2, 3}
	runs := NewRuns(table, "work")
	started := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	m, err := shardmap.New(64, []shardmap.Shard{{Account: "alpha", Queue: "work-00", Weight: 1}, {Account: "beta", Queue: "work-00", Weight: 2}})
	if err != nil {
		t.Fatal(err)
	}
	owners := make([]Owner, 64)
	owners[3], owners[4] = Owner{"a-1", "0a", 7}, Owner{"b-1", "0b", maxEpoch}
	tally := Tally{1, 2, 3, 4, 5, 6, 7, time.Minute}
	tallied := map[string]any{formatProperty: int64(format), "Instance": "a-1"}
	for _, p := range tally.properties() {
		tallied[p.name] = int64(*p.count)
	}
	tallied["Hides"] = int64(tally.Hides)
	return []fuzzedRow{
		fuzzed("member", memberRowOf(table, "work", "a-1", time.Second), memberRow{
			Member: Member{
				Instance: "a-1", Incarnation: "0a", Host: "host", Version: "v1", Role: RoleProcessor, Started: started, Holds: SegmentSet{1, 0, 2},
				Report: Report{
					Admin: "host:1", Accounts: []string{"alpha", "beta"}, Reads: 1, Demand: map[string]float64{"alpha": 1.5}, Tasks: 7, Rate: 1, Seconds: 0.5,
					Throttled: 3, Throttles: map[string]uint64{"beta": 3}, Queues: 2, Trouble: "none",
					Unread: 1.5, UnreadQueue: "alpha/work-00",
				},
			},
			times: times{beat: 5 * time.Second, lease: 20 * time.Second, margin: time.Second}, beats: 9,
		}),
		fuzzed("owners", ownerRowOf(table, "work", 0, 64, time.Second), owners),
		fuzzed("election", electionRowOf(table, "work", time.Second), electionRow{
			leader: "a-1#1", epoch: 3, beats: 4, phase: Running, run: id, checkpoint: bytes.Repeat([]byte{7}, 100), every: time.Minute, beat: time.Second, lease: 4 * time.Second, margin: time.Second,
		}),
		fuzzed("claim", claimRowAt(table, "work.claims.0", "00"), claimRow{key: "Oslo", bytes: 4, task: "t", owner: "a-1#1", took: time.Second, interval: time.Hour}),
		fuzzed("run", runs.row(id), Run{ID: id, Workload: "work", Mode: "once", Fingerprint: "f", State: RunSealed, Sealed: []uint64{1, 0, 2}, Tasks: 3, Started: started, Ended: started, Instance: "a-1"}),
		fuzzed("workload", workloadRowOf(table, "work"), workloadRow{shards: m, delivery: DeliverOnce, changes: []string{"c1", "c2"}}),
		fuzzed("spill", spillRowOf(table, "work", 64, time.Second), make([]uint8, 64)),
		fuzzed("gate", gateRowOf(table, "work", "morning"), gateRow{true, "somebody"}),
		fuzzed("ids", idRowOf(table, "work", "numbers"), uint64(1001)),
		{"tally", tallied, func(props map[string]any) (map[string]any, error) {
			const first = "0102."
			instance, tally, err := decodeTally(storage.Entity{Row: first + "a-1", Properties: props}, first)
			if err != nil {
				return nil, err
			}
			out := map[string]any{formatProperty: int64(format), "Instance": instance}
			for _, p := range tally.properties() {
				out[p.name] = int64(*p.count)
			}
			return out, nil
		}},
	}
}

// altered does to a row's properties what data spells out: each step takes a
// property and a way to change it, the length of a value and the value.
func altered(props map[string]any, data []byte) map[string]any {
	props = maps.Clone(props)
	names := slices.Sorted(maps.Keys(props))
	names = append(names, "Sealed", "Started", "Checkpoint1", "Owners1", "Unknown")
	for len(data) >= 3 {
		name, how := names[int(data[0])%len(names)], data[1]
		n := min(int(data[2]), len(data)-3)
		value := data[3 : 3+n]
		data = data[3+n:]
		var number [8]byte
		copy(number[:], value)
		bits := binary.LittleEndian.Uint64(number[:])
		switch how % 10 {
		case 0:
			delete(props, name)
		case 1:
			props[name] = string(value)
		case 2:
			props[name] = int64(bits)
		case 3:
			props[name] = len(value)%2 == 1
		case 4:
			props[name] = bytes.Clone(value)
		case 5:
			props[name] = math.Float64frombits(bits)
		case 6:
			props[name] = time.Unix(int64(bits>>24), int64(bits&0xffffff)).UTC()
		case 7: // a few bytes of what is there
			if b, ok := props[name].([]byte); ok && len(b) > 0 {
				b = bytes.Clone(b)
				copy(b[int(how/10)*len(b)/26:], value)
				props[name] = b
			}
		case 8:
			if b, ok := props[name].([]byte); ok {
				props[name] = slices.Concat(b[:int(how/10)*len(b)/26], value)
			}
		case 9:
			if s, ok := props[name].(string); ok {
				props[name] = s[:int(how/10)*len(s)/26] + string(value)
			}
		}
	}
	return props
}

// FuzzRow: whatever the properties of a control row are, reading it is bounded
// and gives ErrCorrupt or a value that is written and read again as it is.
func FuzzRow(f *testing.F) {
	kinds := fuzzedRows(f)
	for kind := range kinds {
		f.Add(byte(kind), []byte{})
		for how := range byte(10) {
			f.Add(byte(kind), []byte{byte(kind) + how, how, 4, 1, 0, 0, 128, 3, 7 + 10*how, 2, 255, 255})
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		k := kinds[int(kind)%len(kinds)]
		props := altered(k.good, data)
		var first map[string]any
		var err error
		// The largest is a map: a thousand queues and three choices of 4,096 segments.
		allocation.AtMost(t, 4<<20+16*len(data), func() { first, err = k.reread(props) })
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s: %v", k.name, err)
			}
			return
		}
		second, err := k.reread(first)
		if err != nil {
			t.Fatalf("%s: what was read is refused when it is written: %v", k.name, err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("%s is not read as it is written:\n%s", k.name, diff)
		}
	})
}
