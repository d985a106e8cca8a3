package ledger

import (
	"bytes"
	"encoding/binary"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// drawKey draws keys of all kinds, some of them often the same.
func drawKey(t *rapid.T) string {
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return foreignKey(rapid.Uint32Range(0, 3).Draw(t, "bucket"))
	case 1:
		return stateKey(rapid.IntRange(0, 40).Draw(t, "part"))
	case 2:
		return runKey(testkit.RunID(rapid.ByteRange(1, 200).Draw(t, "run")))
	}
	return chunkKey(testkit.RunID(rapid.ByteRange(1, 4).Draw(t, "run")), rapid.Uint64Range(0, 400).Draw(t, "chunk"))
}

func TestPagesHoldWhatAMapHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := block{}
		l := &layout{}
		stored := map[uint64]block{} // the rows of pages
		seen := map[uint64]bool{}
		largest := rapid.SampledFrom([]int{30, 300, 8 << 10, maxRecord}).Draw(t, "largest")
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			changes := block{}
			for range rapid.IntRange(1, 60).Draw(t, "changes") {
				key := drawKey(t)
				if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
					changes[key] = nil
					continue
				}
				changes[key] = bytes.Repeat([]byte{byte(step)}, rapid.IntRange(1, largest).Draw(t, "size"))
			}
			next, added, removed, fits := l.with(changes)
			if !fits {
				// As full as it may be, whatever comes next must be refused until there is less.
				if size := next.all().size(); size < pageMost*maxPages/2 {
					t.Fatalf("%d bytes of records do not fit", size)
				}
				continue
			}
			for key, value := range changes {
				if model[key] = value; value == nil {
					delete(model, key)
				}
			}
			for _, p := range removed {
				if _, is := stored[p.id]; !is {
					t.Fatalf("page %d is removed and is not there", p.id)
				}
				delete(stored, p.id)
			}
			for _, p := range added {
				if seen[p.id] || p.id >= next.next {
					t.Fatalf("page %d came before, or the next is %d", p.id, next.next)
				}
				seen[p.id] = true
				b := appendBlock(nil, p.block)
				if len(b) > pageMost {
					t.Fatalf("a page of %d bytes", len(b))
				}
				read, err := readBlock(b)
				must(t, err)
				stored[p.id] = read
			}
			if n := len(added) + len(removed) + 1; n > 2*maxPages+1 {
				t.Fatalf("%d rows to be written", n)
			}
			l = readAgain(t, next, stored)
			if all := l.all(); !maps.EqualFunc(all, model, bytes.Equal) {
				t.Fatalf("%d records, want %d, or others", len(all), len(model))
			}
			for range 10 {
				key := drawKey(t)
				if !bytes.Equal(l.get(key), model[key]) {
					t.Fatalf("%q: %d bytes, want %d", key, len(l.get(key)), len(model[key]))
				}
			}
		}
	})
}

// readAgain reads a layout as a process does: the head's own records, the directory, and the rows of
// the pages.
func readAgain(t *rapid.T, written *layout, stored map[uint64]block) *layout {
	t.Helper()
	hot := appendBlock(nil, written.hot)
	if len(hot) > hotMost || len(written.pages) > maxPages {
		t.Fatalf("%d bytes in the head, %d pages", len(hot), len(written.pages))
	}
	l := &layout{}
	var err error
	l.hot, err = readBlock(hot)
	must(t, err)
	l.next, l.pages, err = readDirectory(appendDirectory(nil, written.next, written.pages))
	must(t, err)
	if len(l.pages) != len(stored) {
		t.Fatalf("%d pages are named, %d there", len(l.pages), len(stored))
	}
	for i, p := range l.pages {
		if p.block = stored[p.id]; len(p.block) == 0 {
			t.Fatalf("page %d is empty or not there", p.id)
		}
		for key := range p.block {
			if l.pageOf(key) != i {
				t.Fatalf("%q stands in another page than in its own", key)
			}
		}
	}
	return l
}

func TestPagesOfNothingButClosedRunsGo(t *testing.T) {
	l := &layout{}
	many, none := block{}, block{}
	for i := range uint64(4000) {
		many[chunkKey(testkit.RunID(1), i)] = make([]byte, 40)
		none[chunkKey(testkit.RunID(1), i)] = nil
	}
	many[runKey(testkit.RunID(2))] = []byte{1}
	l, _, _, _ = l.with(many)
	if len(l.pages) < 2 {
		t.Fatalf("%d pages", len(l.pages))
	}
	before := len(l.pages)
	l, added, removed, _ := l.with(none)
	if len(l.pages) > 1 || len(removed) < before-1 || len(added) > 1 {
		t.Errorf("%d pages, %d added, %d removed", len(l.pages), len(added), len(removed))
	}
	if all := l.all(); len(all) != 1 || all[runKey(testkit.RunID(2))] == nil {
		t.Errorf("%d records", len(all))
	}
}

func TestWhatWasNotChangedLatelyIsNotWrittenAgain(t *testing.T) {
	l := &layout{}
	old := block{}
	for i := range uint64(3000) {
		old[chunkKey(testkit.RunID(1), i)] = make([]byte, 40)
	}
	l, _, _, _ = l.with(old)
	written := 0
	for i := range uint64(100) {
		var added []*ledgerPage
		l, added, _, _ = l.with(block{chunkKey(testkit.RunID(2), 0): make([]byte, 4000), runKey(testkit.RunID(2)): binary.AppendUvarint(nil, i)})
		written += len(added)
		if size := l.hot.size(); size > hotMost {
			t.Fatalf("%d bytes in the head", size)
		}
	}
	if written > 1 {
		t.Errorf("%d pages were written", written)
	}
}

func TestDamagedRecordsAreErrors(t *testing.T) {
	good := appendBlock(nil, block{runKey(testkit.RunID(1)): {1}, runKey(testkit.RunID(2)): {2}, chunkKey(testkit.RunID(2), 7): {3, 4}, stateKey(0): nil})
	must(t, errOf(readBlock(good)))
	for i := range good {
		if i == 0 {
			continue
		}
		if _, err := readBlock(good[:i]); err == nil && !boundary(good, i) {
			t.Errorf("cut after %d bytes it is read", i)
		}
	}
	a, b := appendBlock(nil, block{runKey(testkit.RunID(1)): {1}}), appendBlock(nil, block{runKey(testkit.RunID(2)): {1}})
	for what, bad := range map[string][]byte{
		"twice the same key":   append(bytes.Clone(a), a...),
		"out of order":         append(bytes.Clone(b), a...),
		"unknown kind":         {0, 3, 'x', 0, 0, 1},
		"longer than there is": {0, 3, 's', 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"more than the last":   {1, 3, 's', 0, 0, 1},
	} {
		if _, err := readBlock(bad); err == nil {
			t.Errorf("%s: it is read", what)
		}
	}
}

// boundary reports whether a block may end at i: there are that many whole records.
func boundary(b []byte, i int) bool {
	records, err := readBlock(b[:i])
	return err == nil && bytes.Equal(appendBlock(nil, records), b[:i])
}

func TestDamagedDirectoriesAndCountsAreErrors(t *testing.T) {
	pages := []*ledgerPage{{id: 3}, {id: 7, first: runKey(testkit.RunID(5))}, {id: 4, first: stateKey(2)}}
	good := appendDirectory(nil, 8, pages)
	if _, _, err := readDirectory(good); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(good); i++ {
		if _, _, err := readDirectory(good[:i]); err == nil {
			t.Errorf("a directory cut after %d bytes is read", i)
		}
	}
	bad := func(what string, next uint64, change func(p []*ledgerPage)) {
		p := []*ledgerPage{{id: 3}, {id: 7, first: runKey(testkit.RunID(5))}, {id: 4, first: stateKey(2)}}
		change(p)
		if _, _, err := readDirectory(appendDirectory(nil, next, p)); err == nil {
			t.Errorf("%s: it is read", what)
		}
	}
	bad("a number that comes later", 7, func([]*ledgerPage) {})
	bad("a number twice", 8, func(p []*ledgerPage) { p[2].id = 3 })
	bad("no first page", 8, func(p []*ledgerPage) { p[0].first = foreignKey(0) })
	bad("out of order", 8, func(p []*ledgerPage) { p[1].first, p[2].first = p[2].first, p[1].first })
	bad("no key", 8, func(p []*ledgerPage) { p[2].first = "t" })
	if _, _, err := readDirectory(appendDirectory(nil, 1000, make([]*ledgerPage, 0))); err != nil {
		t.Error(err)
	}

	runs := map[string]uint64{}
	counts := []byte{}
	for i := range uint64(3) {
		id := testkit.RunID(byte(i + 1))
		counts = binary.AppendUvarint(binary.AppendUvarint(append(counts, id[:]...), i), 1<<40)
		runs[id.String()] = i
	}
	read := map[string]uint64{}
	if err := readRunCounts(counts, func(id codec.RunID, done, _ uint64) { read[id.String()] = done }); err != nil || !maps.Equal(read, runs) {
		t.Errorf("%v, %v", read, err)
	}
	for i := 1; i < len(counts); i++ {
		n := 0
		if err := readRunCounts(counts[:i], func(codec.RunID, uint64, uint64) { n++ }); err == nil && len(counts[:i])%(len(counts)/3) == 1 {
			t.Errorf("counts cut after %d bytes are read", i)
		}
	}
	if err := readRunCounts(append(bytes.Clone(counts), counts...), func(codec.RunID, uint64, uint64) {}); err == nil {
		t.Error("counts of a run twice are read")
	}
}
