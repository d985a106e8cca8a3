package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// Bounds of the muster's row.
const (
	// musterKey stands before ownerPrefix, outside of what a look at the whole cluster reads.
	musterKey = "muster"
	// 14 properties of 60 KiB stay below the service's 1 MiB for an entity. A member takes some 150
	// bytes of them, or a few hundred more if it names hundreds of accounts.
	musterPart  = 60 << 10
	musterParts = 14
	// maxMuster bounds what a row may unpack to: 3 KiB for each of the rows that a view may have.
	maxMuster = 3 << 10 * maxViewRows
)

// muster is the cluster as a watcher has read it, for members that do not read it themselves: the
// rows of the owners and of the members as they were, and only the version of the spill marks.
type muster struct {
	// Members are the member rows, in key order.
	Members []musterMember
	// Owners are the owner rows by their number, without a version if the row is missing; Spill is the
	// version of the marks.
	Owners []rowCopy
	Spill  storage.ETag
	// Took is how long the watcher read: the owner rows, which come first, are that much older
	// than the member rows at most.
	Took time.Duration
	// Incarnation is the workload's.
	Incarnation string
}

// musterMember is a member row.
type musterMember struct {
	Instance string
	rowCopy
}

// rowCopy is a row. Its properties are kept by type and not by meaning, so that each reader
// judges for itself which rows it can read.
type rowCopy struct {
	ETag     storage.ETag
	Modified time.Time
	Texts    map[string]string    `json:",omitempty"`
	Bytes    map[string][]byte    `json:",omitempty"`
	Ints     map[string]int64     `json:",omitempty"`
	Numbers  map[string]float64   `json:",omitempty"`
	Flags    map[string]bool      `json:",omitempty"`
	Moments  map[string]time.Time `json:",omitempty"`
}

// musterOf makes the muster of what a query gave.
func musterOf(v *View, rows []storage.Entity) *muster {
	m := &muster{
		Spill: v.spill.ETag, Took: v.received.Sub(v.Read), Incarnation: v.Workload.Incarnation,
	}
	for i := range v.owners {
		e, _ := find(rows, ownerKey(ownerRowFirst(i)))
		m.Owners = append(m.Owners, copyOf(e))
	}
	for _, e := range rows {
		if instance, ok := strings.CutPrefix(e.Row, memberPrefix); ok {
			as := copyOf(e)
			for _, text := range illTexts {
				delete(as.Texts, text)
			}
			m.Members = append(m.Members, musterMember{instance, as})
		}
	}
	return m
}

func copyOf(e storage.Entity) rowCopy {
	m := rowCopy{
		ETag: e.ETag, Modified: e.Modified, Texts: map[string]string{}, Bytes: map[string][]byte{},
		Ints: map[string]int64{}, Numbers: map[string]float64{}, Flags: map[string]bool{},
		Moments: map[string]time.Time{},
	}
	for name, value := range e.Properties {
		switch x := value.(type) {
		case string:
			m.Texts[name] = x
		case []byte:
			m.Bytes[name] = x
		case int64:
			m.Ints[name] = x
		case float64:
			m.Numbers[name] = x
		case bool:
			m.Flags[name] = x
		case time.Time:
			m.Moments[name] = x
		}
	}
	return m
}

// entity is the row again.
func (m *rowCopy) entity(partition, key string) storage.Entity {
	props := map[string]any{}
	put(props, m.Texts)
	put(props, m.Bytes)
	put(props, m.Ints)
	put(props, m.Numbers)
	put(props, m.Flags)
	put(props, m.Moments)
	return storage.Entity{
		Partition: partition, Row: key, ETag: m.ETag, Modified: m.Modified, Properties: props,
	}
}

func put[T any](props map[string]any, of map[string]T) {
	for name, value := range of {
		props[name] = value
	}
}

// musterRowOf is for reading only; see writeMuster.
func musterRowOf(t storage.Table, workload string, timeout time.Duration) row.Row[*muster] {
	return row.Row[*muster]{
		Table: t, Partition: workload, Key: musterKey, Timeout: timeout, Decode: decodeMuster,
	}
}

// encodeMuster is nil for a cluster that is too large for a row. The members' counts by account and
// kind are left out before that: they are worth less than a muster.
func encodeMuster(m *muster) map[string]any {
	if props := encodeWhole(m); props != nil {
		return props
	}
	less := *m
	less.Members = slices.Clone(m.Members)
	for i := range less.Members {
		of := &less.Members[i]
		if packed, is := of.Bytes["Operations"]; is {
			of.Bytes = maps.Clone(of.Bytes)
			of.Bytes["Operations"] = withoutAccounts(packed)
		}
	}
	return encodeWhole(&less)
}

// encodeWhole leaves nothing out.
func encodeWhole(m *muster) map[string]any {
	var packed bytes.Buffer
	z, _ := flate.NewWriter(&packed, flate.BestSpeed) // fails for a wrong level only
	if json.NewEncoder(z).Encode(m) != nil || z.Close() != nil ||
		packed.Len() > musterPart*musterParts {
		return nil
	}
	props := map[string]any{row.FormatProperty: int64(row.Format)}
	row.PutParts(props, "Muster", musterPart, packed.Bytes())
	return props
}

func decodeMuster(f *row.Fields) *muster {
	packed := f.Parts("Muster", musterParts)
	if f.Err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxMuster))
	m := &muster{}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		f.Fail("Muster", err.Error())
		return nil
	}
	return m
}

// check takes only what a query can have given: member rows in key order.
func (m *muster) check() error {
	before := ""
	for i := range m.Members {
		now := &m.Members[i]
		if now.Instance <= before || now.ETag == "" {
			return fmt.Errorf("has %q, version %q, after %q",
				row.Clip(now.Instance), row.Clip(string(now.ETag)), row.Clip(before))
		}
		before = now.Instance
	}
	return nil
}
