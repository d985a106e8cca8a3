// This file fuzzes the rows that other packages keep: reading a row is bounded for any
// contents, and what is read is written as it was.

package testkit

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

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// Kind is one kind of row with something that it may hold.
type Kind struct {
	Name string
	Good map[string]any
	// Reread reads properties and gives what it would write for what it read.
	Reread func(props map[string]any) (map[string]any, error)
}

// KindOf is the kind of a row that holds a value.
func KindOf[T any](name string, r row.Row[T], value T) Kind {
	write := func(v T) map[string]any {
		return r.Prepare(row.Version[T]{}, v, "nonce").Entity.Properties
	}
	return Kind{name, write(value), func(props map[string]any) (map[string]any, error) {
		var v row.Version[T]
		if _, err := r.Parse(storage.Entity{ETag: "e", Properties: props}, &v); err != nil {
			return nil, err
		}
		return write(v.Value), nil
	}}
}

// altered changes a row's properties as data spells out: each step takes a property and a way to
// change it, the length of a value and the value.
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
		case 7: // a few bytes of the row
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

// Fuzz shows that reading a control row with any properties is bounded and gives [row.ErrCorrupt]
// or a value that is written and read again unchanged.
func Fuzz(f *testing.F, kinds []Kind) {
	for kind := range kinds {
		f.Add(byte(kind), []byte{})
		for how := range byte(10) {
			f.Add(byte(kind), []byte{byte(kind) + how, how, 4, 1, 0, 0, 128, 3, 7 + 10*how, 2, 255, 255})
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		k := kinds[int(kind)%len(kinds)]
		props := altered(k.Good, data)
		var first map[string]any
		var err error
		// The largest is a map: a thousand queues and three choices of 4,096 segments.
		proof.AtMost(t, 4<<20+16*len(data), func() { first, err = k.Reread(props) })
		if err != nil {
			if !errors.Is(err, row.ErrCorrupt) {
				t.Fatalf("%s: %v", k.Name, err)
			}
			return
		}
		second, err := k.Reread(first)
		if err != nil {
			t.Fatalf("%s: what was read is refused when it is written: %v", k.Name, err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("%s is not read as it is written:\n%s", k.Name, diff)
		}
	})
}
