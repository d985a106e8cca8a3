package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// foreignEntries are entries of messages from <= n < to.
func foreignEntries(segment uint32, epoch uint64, from, to int) (entries []Entry) {
	for n := from; n < to; n++ {
		entries = append(entries, Entry{Segment: segment, Epoch: epoch, Foreign: fmt.Sprint("q/", n)})
	}
	return entries
}

func (b book) foreign(segment uint32, epoch uint64, n int) (recorded bool, err error) {
	recorded, inHand, err := b.BeginForeign(segment, epoch, fmt.Sprint("q/", n), false)
	if err == nil && !recorded && !inHand {
		b.EndForeign(segment, epoch, fmt.Sprint("q/", n))
	}
	return recorded, err
}

func (b book) mustKnow(epoch uint64, from, to int, known bool) {
	b.t.Helper()
	for n := from; n < to; n++ {
		if recorded, err := b.foreign(7, epoch, n); recorded != known || err != nil {
			b.t.Fatalf("message %d: recorded %v, %v", n, recorded, err)
		}
	}
}

func namesOf(t *testing.T, l book) int {
	t.Helper()
	return len(recordOf(t, l.table, 7).image.foreign.known)
}

// A14: a name goes when the delete of its message is acknowledged, with the next commit, and not by
// its age.
func TestANameIsForgottenWhenItsMessageIsDeletedAndNotBefore(t *testing.T) {
	a := openBook(t, newMemTable(), "a")
	a.mustFence(1, 7)
	a.mustCommit(foreignEntries(7, 1, 0, 5)...)
	for n := 5; n < 12000; n += 400 { // each deleted after its commit
		a.mustCommit(foreignEntries(7, 1, n, n+400)...)
		for k := n; k < n+400; k++ {
			a.DeletedForeign(7, fmt.Sprint("q/", k))
		}
	}
	a.mustKnow(1, 0, 5, true)
	a.mustKnow(1, 11700, 11705, true) // with the next commit only
	a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 1)})
	a.mustKnow(1, 11700, 11705, false)
	proof.Same(t, namesOf(t, a), 5, "names are stored")
	b := openBook(t, a.table, "b")
	b.mustFence(2, 7)
	b.mustKnow(2, 0, 5, true)
}

// At the bound further ones wait, what is known is recognised, and both ways of forgetting let it
// go on.
func TestAtTheBoundFurtherForeignMessagesWaitUntilDeletesAreAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := openBook(t, newMemTable(), "a")
		a.mustFence(1, 7)
		for n := 0; n < maxForeign; n += 1024 {
			a.mustCommit(foreignEntries(7, 1, n, n+1024)...)
			time.Sleep(time.Second)
		}
		full := func() {
			t.Helper()
			if _, err := a.foreign(7, 1, -5); !errors.Is(err, ErrTooManyForeign) || !errors.Is(err, ErrLedgerFull) {
				t.Fatalf("%v", err)
			}
		}
		full()
		a.mustKnow(1, 0, 3, true)
		if _, _, err := a.BeginForeign(7, 1, "q/-2", true); err != nil {
			t.Errorf("a message is begun by halves: %v", err)
		}
		a.EndForeign(7, 1, "q/-2")
		if u := a.Use(); u.Foreign != maxForeign || u.Fullest() != 1 {
			t.Errorf("%+v", u)
		}
		a.DeletedForeign(7, "q/100")
		a.mustKnow(1, -1, 0, false)
		a.mustCommit(foreignEntries(7, 1, -1, 0)...)
		full()

		a.AgeForeign(time.Now().Add(-time.Hour)) // nothing is as old
		must(t, a.SweepForeign(t.Context()))
		full()
		a.AgeForeign(time.Now().Add(-3 * time.Second))
		must(t, a.SweepForeign(t.Context()))
		if n := namesOf(t, a); n > maxForeign/4 || n < maxForeign/4-foreignPer {
			t.Errorf("%d names are stored", n)
		}
		a.mustKnow(1, maxForeign-3, maxForeign, true)
		a.mustKnow(1, 0, 3, false)
		a.AgeForeign(time.Now()) // and of few none goes, however old
		a.mustCommit(foreignEntries(7, 1, -9, -8)...)
		a.mustKnow(1, maxForeign-3, maxForeign, true)
		// The next owner keeps all for as long as it has not looked itself.
		b := openBook(t, a.table, "b")
		b.AgeForeign(time.Now().Add(-time.Second))
		b.mustFence(2, 7)
		b.mustCommit(foreignEntries(7, 2, maxForeign, maxForeign+maxForeign/2)...)
		b.mustKnow(2, maxForeign-3, maxForeign+maxForeign/2, true)
	})
}

// A lost segment takes what is known of its deletes along.
func TestADeleteThatAnotherOwnerDidNotHearOfIsForgottenWithTheSegment(t *testing.T) {
	table := newMemTable()
	a, b := openBook(t, table, "a"), openBook(t, table, "b")
	a.mustFence(1, 7)
	a.mustCommit(foreignEntries(7, 1, 0, 3)...)
	a.DeletedForeign(7, "q/0")
	b.mustFence(2, 7)
	if err := a.commit(Entry{Segment: 7, Epoch: 1, Foreign: "q/9"}); !errors.Is(err, ErrFenced) {
		t.Fatal(err)
	}
	b.mustCommit(foreignEntries(7, 2, 3, 4)...)
	b.mustKnow(2, 0, 4, true)
}

// A book of buckets is what a set of names would be, whatever comes and goes, and can be read
// again: buckets follow each other, and none is empty or too large.
func TestTheBookOfForeignMessagesIsASetOfNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, stored := newForeignBook(), block{}
		want := map[string]bool{}
		at := time.Unix(0, 0)
		n := 0
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			at = at.Add(time.Second)
			names := slices.Sorted(maps.Keys(want))
			deleted := names[:rapid.IntRange(0, len(names)).Draw(t, "deleted")]
			if rapid.Bool().Draw(t, "some") {
				deleted = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name[0]%3 == 0 })
			}
			d, changes := f.draft(), block{}
			d.forget(deleted, time.Time{}, changes)
			for _, name := range deleted {
				delete(want, name)
			}
			for range rapid.IntRange(0, 400).Draw(t, "added") {
				name := foreignName(fmt.Sprint(n))
				if d.add(name, at, changes) == want[name] {
					t.Fatal("added twice, or not")
				}
				want[name] = true
				n++
			}
			d.landed()
			for key, value := range changes {
				if stored[key] = value; value == nil {
					delete(stored, key)
				}
			}
			if d.count != len(want) || len(f.known) != len(want) {
				t.Fatalf("%d counted, %d known, want %d", d.count, len(f.known), len(want))
			}
			again := newForeignBook()
			for _, key := range sortedKeys(stored) {
				b := []byte(key[1:])
				must(t, again.read(uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3]), stored[key], at))
			}
			if !maps.Equal(again.known, f.known) {
				t.Fatalf("%d names are stored, %d known", len(again.known), len(f.known))
			}
			if most := 4 + 3*len(want)/foreignPer; len(f.buckets) > most {
				t.Fatalf("%d buckets of %d names", len(f.buckets), len(want))
			}
		}
	})
}

// Full buckets whose first is not the first that ever was are known, have their deletes acknowledged
// and make room like any other.
func TestForeignMessagesOfFullBucketsAreKnownAndGo(t *testing.T) {
	table := newMemTable()
	a := openBook(t, table, "a")
	a.mustFence(1, 7)
	// 64 full buckets; none is the first that ever was.
	var entries []Entry
	changes := block{}
	for bucket := uint32(900); bucket < 964; bucket++ {
		var names []byte
		for n := range foreignPer {
			names = append(names, foreignName(fmt.Sprint("q/", int(bucket-900)*foreignPer+n))...)
		}
		changes[foreignKey(bucket)] = names
	}
	m := a.segments[7].image
	layout, added, removed, ok := m.layout.with(changes)
	if !ok {
		t.Fatal("no room")
	}
	d := &draft{image: m, entries: nil, head: m.head, added: added, removed: removed}
	d.head.layout = *layout
	tr := a.Ledger.begin(0, row.NonceProperty)
	d.write(tr, Partition("city", 0), 7)
	if o, err := a.send(t.Context(), tr); err != nil || !o.landed {
		t.Fatal(err)
	}
	b := openBook(t, table, "b")
	b.mustFence(2, 7)
	b.mustKnow(2, 0, 64*foreignPer, true)
	for n := range 64 * foreignPer {
		if n%2 == 0 {
			b.DeletedForeign(7, fmt.Sprint("q/", n))
		}
	}
	entries = foreignEntries(7, 2, 64*foreignPer, 64*foreignPer+5)
	b.mustCommit(entries...)
	proof.Same(t, namesOf(t, b), 32*foreignPer+5, "names are stored")
	b.mustKnow(2, 64*foreignPer, 64*foreignPer+5, true)
	for n := range 64 * foreignPer {
		b.mustKnow(2, n, n+1, n%2 == 1)
	}
}
