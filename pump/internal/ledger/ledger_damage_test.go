package ledger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// populated is a table with a segment that has everything: several runs, quarantine, foreign
// messages, a state, and pages.
func populated(t testing.TB) *memTable {
	t.Helper()
	table := newMemTable()
	l := Open(row.Seeded(table, testkit.SeededDraw(1, "a")), ledgerWorkload(128), Options{Instance: "a", Record: true, State: bytesState{}})
	must(t, errOf(fenceAll(context.Background(), l, holdsOf(1, 7, 8))))
	es := []*Entry{
		{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: scattered(1, 0, 6), Contributions: []Contribution{{1, noise(1, 40_000)}}},
		{Segment: 7, Epoch: 1, Run: testkit.RunID(2), Done: ns(0, 70), Quarantined: ns(70, 80), Generation: 1},
		{Segment: 7, Epoch: 1, Run: testkit.RunID(3), Done: ns(5, 70), Quarantined: ns(90, 100)},
		{Segment: 7, Epoch: 1, Foreign: "q/1"},
		{Segment: 8, Epoch: 1, Run: testkit.RunID(2), Done: ns(0, 70)},
	}
	l.Commit(context.Background(), es)
	for _, e := range es {
		must(t, e.Err)
	}
	es = []*Entry{{Segment: 7, Epoch: 1, Run: testkit.RunID(4), Done: scattered(3, 0, 1)}}
	l.Commit(context.Background(), es)
	must(t, es[0].Err)
	return table
}

// damage is what may be wrong with a row, and which row that is.
type damage struct {
	row string
	do  func(m *memTable)
}

// damages are those of a head, and of a page of its segment.
func damages(head, page string) map[string]damage {
	set := func(key, property string, value any) func(m *memTable) {
		return func(m *memTable) {
			e := m.rows[key]
			e.Properties = maps.Clone(e.Properties)
			e.Properties[property] = value
			m.rows[key] = e
		}
	}
	cut := func(key, property string) func(m *memTable) {
		return func(m *memTable) {
			b := m.rows[key].Properties[property].([]byte)
			set(key, property, b[:len(b)-1])(m)
		}
	}
	return map[string]damage{
		"another format":        {head, set(head, row.FormatProperty, int64(2))},
		"no format":             {head, set(head, row.FormatProperty, "one")},
		"a negative epoch":      {head, set(head, epochProperty, int64(-1))},
		"an epoch beyond all":   {head, set(head, epochProperty, int64(row.MaxEpoch+1))},
		"an epoch of text":      {head, set(head, epochProperty, "7")},
		"an owner too long":     {head, set(head, ownerProperty, strings.Repeat("x", 1000))},
		"records cut":           {head, cut(head, recordsProperty)},
		"records of text":       {head, set(head, recordsProperty, "text")},
		"records of noise":      {head, set(head, recordsProperty, noise(1, 100))},
		"pages cut":             {head, cut(head, pagesProperty)},
		"pages of noise":        {head, set(head, pagesProperty, noise(1, 100))},
		"a page missing":        {page, func(m *memTable) { delete(m.rows, page) }},
		"a page cut":            {page, cut(page, recordsProperty)},
		"a page empty of sense": {page, set(page, recordsProperty, noise(1, 1000))},
		"a page of another":     {page, set(page, recordsProperty, appendBlock(nil, block{stateKey(900): {1}, foreignKey(1): {1}}))},
		"a chunk without run":   {head, set(head, recordsProperty, appendBlock(nil, block{chunkKey(testkit.RunID(77), 0): {1}}))},
		"a zero run":            {head, set(head, recordsProperty, appendBlock(nil, block{runKey(codec.RunID{}): {1}}))},
		"a floor beyond all":    {head, set(head, recordsProperty, appendBlock(nil, block{runKey(testkit.RunID(77)): bytes.Repeat([]byte{0xff}, 9)}))},
		"a state with a hole":   {head, set(head, recordsProperty, appendBlock(nil, block{stateKey(60): {statePlain, 1}}))},
	}
}

func TestADamagedRowIsNamedNeverWrittenAndStopsNoOtherSegment(t *testing.T) {
	const head = "city.ledger.00/head.0007"
	page := ""
	for key := range populated(t).rows {
		if strings.Contains(key, "/page.0007.") {
			page = max(page, key)
		}
	}
	if page == "" {
		t.Fatal("there is no page")
	}
	cases := damages(head, page)
	for _, what := range slices.Sorted(maps.Keys(cases)) {
		t.Run(what, func(t *testing.T) {
			c := cases[what]
			table := populated(t)
			c.do(table)
			before := maps.Clone(table.rows)
			b := openBook(t, table, "b", withBytes)
			fenced, err := fenceAll(t.Context(), b, holdsOf(2, 7, 8))
			name := c.row
			if !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), name) || !slices.Equal(fenced, []uint32{8}) {
				t.Fatalf("fenced %v: %v", fenced, err)
			}
			b.mustCommit(Entry{Segment: 8, Epoch: 2, Run: testkit.RunID(2), Done: ns(70, 71)})
			if err := b.commit(Entry{Segment: 7, Epoch: 2, Run: testkit.RunID(2), Done: ns(70, 71)}); !errors.Is(err, ErrFenced) && !errors.Is(err, row.ErrCorrupt) {
				t.Errorf("a commit: %v", err)
			}
			for key, e := range before {
				if key != "city.ledger.00/head.0008" && !reflect.DeepEqual(recordsOf(e), recordsOf(table.rows[key])) {
					t.Errorf("row %s was written", key)
				}
			}
			var damagedOnes []uint32
			next := uint32(0)
			for r, err := range ReadRecord(t.Context(), table, "city", 128) {
				if err != nil {
					damagedOnes = append(damagedOnes, next)
					if !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), name) {
						t.Error(err)
					}
				} else if r.Segment != next {
					t.Errorf("segment %d, want %d", r.Segment, next)
				}
				next++
			}
			want(t, "damaged", damagedOnes, []uint32{7})
			want(t, "read", next, 128)
		})
	}
}

// recordsOf is what a row says but for whose it is: a fence comes before what is recorded is looked
// at.
func recordsOf(e storage.Entity) map[string]any {
	props := maps.Clone(e.Properties)
	for _, name := range []string{epochProperty, ownerProperty, fenceProperty} {
		delete(props, name)
	}
	return props
}

func TestAHeadThatIsDamagedWhileItIsHeldIsNotWrittenOver(t *testing.T) {
	table := populated(t)
	b := openBook(t, table, "b", withBytes)
	b.mustFence(2, 7, 8)
	key := "city.ledger.00/head.0007"
	e := table.rows[key]
	e.ETag, e.Properties = "W/other", maps.Clone(e.Properties)
	e.Properties[recordsProperty] = []byte{1, 2, 3}
	table.rows[key] = e
	es := []*Entry{{Segment: 7, Epoch: 2, Run: testkit.RunID(2), Done: ns(80, 90)}, {Segment: 8, Epoch: 2, Run: testkit.RunID(2), Done: ns(80, 90)}}
	b.Commit(t.Context(), es)
	if !errors.Is(es[0].Err, row.ErrCorrupt) || !strings.Contains(es[0].Err.Error(), key) || es[1].Err != nil {
		t.Error(es[0].Err, es[1].Err)
	}
	if !reflect.DeepEqual(table.rows[key], e) {
		t.Error("it was written over")
	}
}

func TestDamagedCountsHideNoOthers(t *testing.T) {
	table := populated(t)
	key := "city.ledger.00/head.0007"
	e := table.rows[key]
	e.Properties = maps.Clone(e.Properties)
	counts := e.Properties[countsProperty].([]byte)
	e.Properties[countsProperty] = counts[:len(counts)-1]
	table.rows[key] = e
	progress, err := ReadProgress(t.Context(), table, "city", 128, testkit.RunID(2))
	if !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), key) || progress[testkit.RunID(2)].Done[8] != 70 {
		t.Errorf("%v, %v", progress, err)
	}
}

func TestAPageThatVanishesUnderItsOwnerIsAnErrorAndNoEndlessLoop(t *testing.T) {
	table := populated(t)
	b := openBook(t, table, "b", withBytes)
	b.mustFence(2, 7)
	for key := range table.rows {
		if strings.Contains(key, "/page.0007.") {
			delete(table.rows, key)
		}
	}
	// It changes what stands in the pages, so they are to be replaced.
	err := b.commit(Entry{Segment: 7, Epoch: 2, Run: testkit.RunID(5), Done: scattered(2, 0, 12)})
	if !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), "/page.0007.") {
		t.Error(err)
	}
}

func TestAReaderNoticesPagesThatWereReplacedMeanwhile(t *testing.T) {
	table := populated(t)
	b := openBook(t, table, "b", withBytes)
	b.mustFence(2, 7)
	busy := &betweenReads{memTable: table, between: func(time int) {
		b.mustCommit(Entry{Segment: 7, Epoch: 2, Run: testkit.RunID(6), Done: scattered(uint64(time), 0, 12)})
	}, times: 3}
	n := 0
	for r, err := range ReadRecord(t.Context(), busy, "city", 64) {
		must(t, err)
		if r.Segment == 7 {
			for time := range uint64(3) {
				if !r.Done(testkit.RunID(6), time) {
					t.Errorf("%d is not done", time)
				}
			}
		}
		n++
	}
	if n != 64 || busy.times != 0 {
		t.Errorf("%d segments, %d commits were not made", n, busy.times)
	}
}

// betweenReads is a table that changes between the read of a head and that of its pages.
type betweenReads struct {
	*memTable
	between func(time int)
	times   int
}

func (b *betweenReads) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	if strings.HasPrefix(q.From, pagePrefix) && b.times > 0 {
		b.times--
		b.between(b.times)
	}
	return b.memTable.Query(ctx, q)
}

// FuzzLedgerRow reads heads and pages that anybody may have written: bytes that are no
// records are an error, and what is read is written and read again as the same.
func FuzzLedgerRow(f *testing.F) {
	// Small ones: bytes are changed one by one.
	book := func(finish func(b *runBook)) block {
		b := (*runBook)(nil).draft()
		finish(b)
		records := block{runKey(testkit.RunID(1)): binary.AppendUvarint(nil, b.floor)}
		for index, c := range b.chunks {
			records[chunkKey(testkit.RunID(1), index)] = c.append(nil)
		}
		return records
	}
	directory := appendDirectory(nil, 9, []*ledgerPage{{id: 3}, {id: 8, first: runKey(testkit.RunID(2))}})
	counts := appendRunCounts(nil, map[codec.RunID]*runBook{testkit.RunID(1): {done: 70, quarantined: 3}, testkit.RunID(2): {}})
	for _, records := range []block{
		book(func(b *runBook) { b.finish(ns(0, 10), 0) }),
		book(func(b *runBook) {
			b.finish(ns(5, 10), 0)
			b.finish(codec.MakeNSet(12, 14, 17, chunkSize+3), 0)
			b.condemn(ns(20, 24), 0)
			b.condemn(ns(30, 31), 2)
		}),
		{foreignKey(7): noise(1, 2*foreignHash), foreignKey(8): noise(2, foreignHash), runKey(testkit.RunID(3)): nil},
		{stateKey(0): packState([]byte(strings.Repeat("state", 40)))},
		{stateKey(0): {statePlain, 1, 2}},
	} {
		f.Add(appendBlock(nil, records), directory, counts)
	}
	f.Fuzz(func(t *testing.T, records, pages, counts []byte) {
		if len(records)+len(pages)+len(counts) > 200_000 {
			return
		}
		_ = readRunCounts(counts, func(codec.RunID, uint64, uint64) {})
		e := storage.Entity{Partition: "p", Row: "head.0007", ETag: "x", Properties: map[string]any{
			row.FormatProperty: int64(row.Format), recordsProperty: records, pagesProperty: pages, countsProperty: counts,
		}}
		_, pageErr := pageOf(newMemTable(), e)
		h, err := headOf(newMemTable(), e)
		if err != nil {
			return
		}
		if pageErr == nil && slices.ContainsFunc(slices.Collect(maps.Values(h.layout.hot)), func(v []byte) bool { return v == nil }) {
			t.Fatal("a page says that a record is gone")
		}
		h.layout.pages = nil
		m, err := newImage(h)
		if err != nil {
			return
		}
		// Whatever it says, it can be worked with.
		l := Open(newMemTable(), ledgerWorkload(1), Options{Record: true, State: bytesState{}})
		entries := []*Entry{{Foreign: "of this test only", Contributions: []Contribution{{0, []byte("state")}}}}
		for _, id := range sortedRuns(m.runs) {
			b := m.runs[id]
			b.divide(ns(b.floor, b.floor+100), 1)
			entries = append(entries, &Entry{Run: id, Generation: 1, Done: ns(b.floor, b.floor+5), Quarantined: ns(b.floor+7, b.floor+9)})
			if len(entries) > 20 {
				break
			}
		}
		d, err := l.draft(0, m, entries, nil)
		if err != nil {
			if !errors.Is(err, ErrLedgerFull) {
				t.Fatal(err)
			}
			return
		}
		d.landed("y")
		again, err := newImage(&ledgerHead{layout: layout{hot: m.layout.all()}})
		if err != nil {
			t.Fatalf("what was recorded cannot be read: %v", err)
		}
		requireSame(t, again, m)
		if !bytes.Equal(again.raw, []byte("state")) {
			t.Fatalf("state %q", again.raw)
		}
	})
}

// requireSame checks that what was read is what was written.
func requireSame(t *testing.T, read, written *image) {
	t.Helper()
	for _, id := range sortedRuns(written.runs) {
		a, b := written.runs[id], read.runs[id]
		if b == nil || a.floor != b.floor || a.done != b.done || a.quarantined != b.quarantined {
			t.Fatalf("run %s is %+v after it was written, and was %+v", id, b, a)
		}
	}
	proof.Same(t, fmt.Sprint(read.foreign.known), fmt.Sprint(written.foreign.known), "foreign")
}
