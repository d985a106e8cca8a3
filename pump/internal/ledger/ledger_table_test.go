package ledger

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// memTable is a table in memory that answers at once: for properties and benchmarks, where
// the driver and the simulated service would take most of the time. It is as strict as the service.
type memTable struct {
	mu           sync.Mutex
	rows         map[string]storage.Entity
	version      int
	transactions int
	largest      int // transaction, in bytes of its binary properties as they travel
	// hold, if set, is called with a transaction before it acts.
	hold func(writes []storage.Write)
}

func newMemTable() *memTable { return &memTable{rows: map[string]storage.Entity{}} }

func (m *memTable) Name() string                 { return row.TableName }
func (m *memTable) Create(context.Context) error { return nil }
func (m *memTable) Drop(context.Context) error   { return nil }

func problem(code storage.Code, index int, what string) error {
	return &storage.Error{Code: code, Op: "mem", Account: "mem", Object: what, Index: index}
}

func (m *memTable) Read(_ context.Context, partition, row string) (storage.Entity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, is := m.rows[partition+"/"+row]
	if !is {
		return e, problem(storage.Gone, -1, row)
	}
	return e, nil
}

func (m *memTable) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	etags, err := m.Transact(ctx, []storage.Write{w})
	if err != nil {
		return "", err
	}
	return etags[0], nil
}

func (m *memTable) Transact(_ context.Context, writes []storage.Write) ([]storage.ETag, error) {
	if m.hold != nil {
		m.hold(writes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(writes) == 0 || len(writes) > storage.MaxBatch {
		return nil, problem(storage.TooLarge, -1, fmt.Sprint(len(writes), " writes"))
	}
	after := map[string]storage.Entity{}
	etags := make([]storage.ETag, len(writes))
	size := 0
	for i, w := range writes {
		key := w.Entity.Partition + "/" + w.Entity.Row
		if _, twice := after[key]; twice || w.Entity.Partition != writes[0].Entity.Partition {
			return nil, problem(storage.Invalid, i, key)
		}
		old, is := m.rows[key]
		switch {
		case w.Mode == storage.Insert && is:
			return nil, problem(storage.Exists, i, key)
		case (w.Mode == storage.Replace || w.Mode == storage.Merge || w.Mode == storage.Remove) && !is:
			return nil, problem(storage.Gone, i, key)
		case w.Mode != storage.Insert && w.Mode != storage.Upsert && w.Entity.ETag != "" && w.Entity.ETag != old.ETag:
			return nil, problem(storage.Precondition, i, key)
		}
		size += 1000
		props := maps.Clone(w.Entity.Properties)
		for name, value := range w.Entity.Properties {
			if b, is := value.([]byte); is {
				if len(b) > storage.MaxProperty {
					return nil, problem(storage.TooLarge, i, key+" "+name)
				}
				size += base64.StdEncoding.EncodedLen(len(b))
				props[name] = slices.Clone(b)
			}
		}
		if w.Mode == storage.Merge {
			merged := maps.Clone(old.Properties)
			maps.Copy(merged, props)
			props = merged
		}
		m.version++
		etags[i] = storage.ETag(fmt.Sprint("W/", m.version))
		e := storage.Entity{Partition: w.Entity.Partition, Row: w.Entity.Row, ETag: etags[i], Properties: props}
		if w.Mode == storage.Remove {
			e, etags[i] = storage.Entity{}, ""
		}
		after[key] = e
	}
	if size > 4<<20 {
		return nil, problem(storage.TooLarge, -1, fmt.Sprint(size, " bytes"))
	}
	m.largest = max(m.largest, size)
	m.transactions++
	for key, e := range after {
		if e.Row == "" {
			delete(m.rows, key)
		} else {
			m.rows[key] = e
		}
	}
	return etags, nil
}

func (m *memTable) Query(_ context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		if err := testkit.CheckKeys(q); err != nil {
			yield(storage.Entity{}, err)
			return
		}
		m.mu.Lock()
		var found []storage.Entity
		for _, e := range m.rows {
			if e.Partition == q.Partition && e.Row >= q.From && (q.To == "" || e.Row < q.To) {
				found = append(found, e)
			}
		}
		m.mu.Unlock()
		slices.SortFunc(found, func(a, b storage.Entity) int { return strings.Compare(a.Row, b.Row) })
		for _, e := range found {
			if !yield(e, nil) {
				return
			}
		}
	}
}
