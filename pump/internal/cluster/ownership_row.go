package cluster

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// ownersPerRow is how many segments stand in one owner row (P5.4): one write
	// claims a whole share, and 16,384 segments are 32 rows.
	ownersPerRow = 512
	// ownersPart is what one binary property holds; a property takes 64 KiB. 512
	// different owners with the longest names take a bit over 120 KiB.
	ownersPart  = 60 << 10
	ownersParts = 3

	maxInstance    = 200 // bytes of an instance's name
	maxIncarnation = 32
)

// Owner is what the cluster's rows say about a segment.
type Owner struct {
	// Instance and Incarnation are empty if no member owns the segment. A named owner may be dead; see
	// [View.OwnerOf].
	Instance, Incarnation string
	// Epoch is one more with each claim and stays when the segment is given up.
	Epoch uint64
}

// Instances are parts of row keys and of log lines.
var validInstance = regexp.MustCompile(`^[A-Za-z0-9_.~-]{1,200}$`)

// CheckInstance says why a name cannot be an instance's: it is 1 to 200 of
// letters, digits and _ . ~ -, because it is part of a row's key.
func CheckInstance(name string) error {
	if !validInstance.MatchString(name) {
		return fmt.Errorf("instance name %q: use 1 to %d of letters, digits and _ . ~ -", name,
			maxInstance)
	}
	return nil
}

// ownerRowOf is the row of the segments from first on, for a workload of so many segments.
func ownerRowOf(
	t storage.Table, workload string, first, segments int, timeout time.Duration,
) row.Row[[]Owner] {
	count := min(ownersPerRow, segments-first)
	return row.Row[[]Owner]{
		Table: t, Partition: workload, Key: ownerKey(first), Timeout: timeout,
		Encode: encodeOwners,
		Decode: func(f *row.Fields) []Owner { return decodeOwners(f, count) },
	}
}

func ownerKey(first int) string     { return ownerPrefix + SegmentKey(uint32(first)) }
func ownersName(part int) string    { return fmt.Sprintf("Owners%d", part) }
func ownerRows(segments int) int    { return (segments + ownersPerRow - 1) / ownersPerRow }
func ownerRowIndex(segment int) int { return segment / ownersPerRow }
func ownerRowFirst(index int) int   { return index * ownersPerRow }

// encodeOwners packs the owners: a table of the names, then for each segment
// the number of its owner's name (0: none) and its epoch, all as varints.
func encodeOwners(owners []Owner) map[string]any {
	type name struct{ instance, incarnation string }
	index := map[name]uint64{}
	var names, entries []byte
	for _, o := range owners {
		var at uint64
		if o.Instance != "" {
			n := name{o.Instance, o.Incarnation}
			if at = index[n]; at == 0 {
				at = uint64(len(index) + 1)
				index[n] = at
				names = appendText(appendText(names, n.instance), n.incarnation)
			}
		}
		entries = binary.AppendUvarint(binary.AppendUvarint(entries, at), o.Epoch)
	}
	packed := append(binary.AppendUvarint(nil, uint64(len(index))), names...)
	packed = append(binary.AppendUvarint(packed, uint64(len(owners))), entries...)
	props := map[string]any{}
	for i := 0; len(packed) > 0; i++ {
		part := packed[:min(len(packed), ownersPart)]
		props[ownersName(i)] = part
		packed = packed[len(part):]
	}
	return props
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeOwners takes exactly what encodeOwners makes of count owners.
func decodeOwners(f *row.Fields, count int) []Owner {
	var packed []byte
	for i := range ownersParts {
		packed = append(packed, f.Binary(ownersName(i))...)
	}
	if f.Err != nil {
		return nil
	}
	d := unpacker{rest: packed}
	names := make([]Owner, 1, 8) // 0 is none
	for range d.upTo(count, "owners") {
		n := Owner{Instance: d.text(maxInstance), Incarnation: d.text(maxIncarnation)}
		if d.problem == "" && (!validInstance.MatchString(n.Instance) ||
			!validInstance.MatchString(n.Incarnation)) {
			d.problem = fmt.Sprintf("has an owner %q, incarnation %q", n.Instance, n.Incarnation)
		}
		names = append(names, n)
	}
	if n := d.upTo(count, "segments"); d.problem == "" && n != count {
		d.problem = fmt.Sprintf("has %d segments, not %d", n, count)
	}
	if d.problem != "" {
		f.Fail(ownersName(0), d.problem)
		return nil
	}
	owners := make([]Owner, count)
	for i := range owners {
		owners[i] = names[d.upTo(len(names)-1, "owners")]
		owners[i].Epoch = d.uvarint()
		if e := owners[i].Epoch; d.problem == "" &&
			(e > row.MaxEpoch || e == 0 && owners[i].Instance != "") {
			d.problem = fmt.Sprintf("has an owner with epoch %d, at %d", e, i)
		}
	}
	if d.problem == "" && len(d.rest) > 0 {
		d.problem = fmt.Sprintf("goes on for %d bytes too many", len(d.rest))
	}
	if d.problem != "" {
		f.Fail(ownersName(0), d.problem)
		return nil
	}
	return owners
}

// unpacker reads packed values; after the first problem all is zero.
type unpacker struct {
	rest    []byte
	problem string
}

func (d *unpacker) uvarint() uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.problem == "" && size <= 0 {
		d.problem = "ends too early, or has a number that is too large"
	}
	if d.problem != "" {
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *unpacker) upTo(most int, what string) int {
	n := d.uvarint()
	if d.problem == "" && n > uint64(most) {
		d.problem = fmt.Sprintf("says %d %s, of at most %d", n, what, most)
	}
	if d.problem != "" {
		return 0
	}
	return int(n)
}

func (d *unpacker) text(most int) string {
	n := d.upTo(most, "bytes of a name")
	if d.problem == "" && n > len(d.rest) {
		d.problem = "ends within a name"
	}
	if d.problem != "" {
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// SegmentKey is a segment as a part of keys. Keys from 10,000 on have a letter before the digits,
// so that the order of keys is that of segments: queries over several rely on it.
func SegmentKey(segment uint32) string {
	if segment >= 10_000 {
		return fmt.Sprintf("x%d", segment)
	}
	return fmt.Sprintf("%04d", segment)
}
