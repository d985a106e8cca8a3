package azsim

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// granted ends a test with what the store refuses, which is no error when it is nil.
func granted(t rapid.TB, refused *tableError) {
	t.Helper()
	if refused != nil {
		t.Fatal(refused)
	}
}

// The rows in their chunks are a sorted map: whatever is put in and taken out,
// from any key on they come in order and complete.
func TestRowsAreASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s rows
		model := make(map[rowKey]*entity)
		step := rapid.IntRange(1, 700).Draw(t, "step") // runs long enough to split chunks
		for range rapid.IntRange(1, 12).Draw(t, "runs") {
			pk := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "pk")
			start := rapid.IntRange(0, 2000).Draw(t, "start")
			taking := rapid.Bool().Draw(t, "take out")
			for i := range step {
				e := &entity{pk: pk, rk: fmt.Sprintf("%05d", (start+i*7)%2500)}
				k := rowKey{e.pk, e.rk}
				if taking {
					s.remove(k)
					delete(model, k)
				} else {
					s.put(e)
					model[k] = e
				}
			}
		}
		want := slices.SortedFunc(maps.Values(model), func(a, b *entity) int { return a.compare(rowKey{b.pk, b.rk}) })
		from := rowKey{rapid.SampledFrom([]string{"", "a", "aa", "b", "c"}).Draw(t, "from"), fmt.Sprintf("%05d", rapid.IntRange(0, 2500).Draw(t, "row"))}
		first, _ := slices.BinarySearchFunc(want, from, (*entity).compare)
		got, next := s.window(from, func(*entity) bool { return true }, len(want)+1)
		if !slices.Equal(got, want[first:]) || next != nil || s.n != len(want) {
			t.Fatalf("%d rows from %q on (%d stored), want %d (%d)", len(got), from, s.n, len(want)-first, len(want))
		}
		for _, c := range s.chunks {
			if len(c) == 0 || len(c) > chunkSize {
				t.Fatalf("a chunk of %d rows", len(c))
			}
		}
		for _, e := range want {
			if s.get(rowKey{e.pk, e.rk}) != e {
				t.Fatalf("row %q %q is not found", e.pk, e.rk)
			}
		}
	})
}

// modelRow is what a row must be, however simply kept.
type modelRow struct {
	properties map[string]int64
	ticks      int64
}

// Random changes, alone and in batches, against a map: the same answers, the
// same rows, and a timestamp that no row ever shows twice.
func TestTableBehavesLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := filterTime
		tab := &table{name: "t", graves: make(map[rowKey]int64)}
		model := make(map[rowKey]modelRow)
		seen := make(map[rowKey]int64) // the latest timestamp ever shown
		var old []int64                // timestamps to try as stale conditions
		t.Repeat(map[string]func(*rapid.T){
			"clock": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(-500, 2000).Draw(t, "ns")))
			},
			"write": func(t *rapid.T) {
				keys := rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 1, 4, rapid.ID).Draw(t, "rows")
				var changes []*change
				for _, n := range keys {
					c := &change{verb: verb(rapid.IntRange(int(verbInsert), int(verbDelete)).Draw(t, "verb")), key: rowKey{"p", fmt.Sprint(n)}}
					if c.verb != verbDelete {
						c.payload = &payload{properties: drawProperties(t)}
					}
					if c.conditional() {
						switch rapid.IntRange(0, 2).Draw(t, "condition") {
						case 0:
							c.any = true
						case 1:
							c.ticks = model[c.key].ticks
						default:
							c.ticks = rapid.SampledFrom(append(old, 1)).Draw(t, "stale")
						}
					}
					changes = append(changes, c)
				}
				next, failed, code := applyModel(model, changes)
				made, err := tab.write(changes, now)
				if code != "" {
					if err == nil || err.code != code || err.index != failed {
						t.Fatalf("refusal %v, want %s at %d", err, code, failed)
					}
					return
				}
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				for i, c := range changes {
					if made[i] == nil {
						continue
					}
					if made[i].ticks <= seen[c.key] || made[i].ticks < toTicks(now) {
						t.Fatalf("row %v got timestamp %d after %d at %d", c.key, made[i].ticks, seen[c.key], toTicks(now))
					}
					seen[c.key] = made[i].ticks
					old = append(old, made[i].ticks)
					r := next[c.key]
					r.ticks = made[i].ticks
					next[c.key] = r
				}
				model = next
			},
			"": func(t *rapid.T) {
				all, _ := tab.rows.window(rowKey{}, func(*entity) bool { return true }, 100)
				if len(all) != len(model) {
					t.Fatalf("%d rows, want %d", len(all), len(model))
				}
				for _, e := range all {
					want, ok := model[rowKey{e.pk, e.rk}]
					got := make(map[string]int64)
					for _, p := range e.properties {
						got[p.name] = p.value.num
					}
					if !ok || !maps.Equal(got, want.properties) || e.ticks != want.ticks {
						t.Fatalf("row %q is %v at %d, want %v at %d", e.rk, got, e.ticks, want.properties, want.ticks)
					}
				}
			},
		})
	})
}

func drawProperties(t *rapid.T) []property {
	m := rapid.MapOfN(rapid.SampledFrom([]string{"A", "B", "C"}), rapid.Int64Range(0, 9), 0, 3).Draw(t, "properties")
	var p []property
	for _, name := range slices.Sorted(maps.Keys(m)) {
		p = append(p, property{name, value{kind: edmInt64, num: m[name]}})
	}
	return p
}

// applyModel is write as the reference words it: every change on a copy, and
// the first that cannot be made refuses them all.
func applyModel(model map[rowKey]modelRow, changes []*change) (next map[rowKey]modelRow, failed int, code string) {
	next = maps.Clone(model)
	for i, c := range changes {
		row, there := next[c.key]
		switch c.verb {
		case verbInsert:
			if there {
				return nil, i, "EntityAlreadyExists"
			}
		case verbReplace, verbMerge, verbDelete:
			if !there {
				return nil, i, "ResourceNotFound"
			}
			if !c.any && c.ticks != row.ticks {
				return nil, i, "UpdateConditionNotSatisfied"
			}
		}
		if c.verb == verbDelete {
			delete(next, c.key)
			continue
		}
		properties := make(map[string]int64)
		if c.verb == verbMerge || c.verb == verbInsertOrMerge {
			maps.Copy(properties, row.properties)
		}
		for _, p := range c.payload.properties {
			properties[p.name] = p.value.num
		}
		next[c.key] = modelRow{properties: properties}
	}
	return next, 0, ""
}

// The clock stands still while rows come and go: what is remembered of them
// grows, their timestamps never repeat, and all is forgotten once it moves on.
func TestRemovedRowsAreForgottenInTime(t *testing.T) {
	tab := &table{graves: make(map[rowKey]int64)}
	write := func(v verb, n int, now time.Time) int64 {
		c := &change{verb: v, key: rowKey{"p", fmt.Sprint(n)}, any: true, payload: &payload{}}
		made, err := tab.write([]*change{c}, now)
		granted(t, err)
		if made[0] == nil {
			return 0
		}
		return made[0].ticks
	}
	const many = 20_000
	for n := range many {
		write(verbInsert, n, filterTime)
		write(verbDelete, n, filterTime)
	}
	if again := write(verbInsert, 7, filterTime); again <= toTicks(filterTime) {
		t.Errorf("a row that came back has its old timestamp %d", again)
	}
	for n := range 3 * many {
		later := filterTime.Add(time.Duration(n+1) * time.Microsecond)
		write(verbInsert, many+n, later)
		write(verbDelete, many+n, later)
	}
	if n := len(tab.graves); n > 2*many {
		t.Errorf("%d removed rows are remembered", n)
	}
}

const racers = 16

// race starts racers goroutines at once and waits for their ends.
func race(enter func(i int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range racers {
		wg.Go(func() {
			<-gate
			enter(i)
		})
	}
	close(gate)
	wg.Wait()
}

// A page shows a batch whole or not at all (snapshot isolation), also while
// pages and batches race.
func TestAPageNeverShowsHalfABatch(t *testing.T) {
	s := newTableStore("acct", 0, TableOptions{})
	granted(t, s.create("tbl", filterTime))
	tab := s.find("tbl")
	set := func(n int64) []*change {
		var c []*change
		for i := range 40 {
			p := &payload{properties: []property{{"N", value{kind: edmInt64, num: n}}}}
			c = append(c, &change{verb: verbInsertOrReplace, key: rowKey{"p", fmt.Sprintf("%03d", i)}, payload: p})
		}
		return c
	}
	race(func(i int) {
		for n := range 30 {
			if i%2 == 0 {
				if _, err := tab.write(set(int64(100*i+n)), filterTime); err != nil {
					t.Error(err)
				}
				continue
			}
			p := pager{query: entityQuery{top: 1000}, options: s.options}
			if err := p.read(tab); err != nil {
				t.Error(err)
			}
			for _, e := range p.page {
				if e.properties[0].value != p.page[0].properties[0].value {
					t.Errorf("a page with two batches: %v and %v", p.page[0].properties, e.properties)
				}
			}
		}
	})
}

// A client whose table is deleted meanwhile is told so, and stores nothing.
func TestWritesToADeletedTableAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTableStore("acct", time.Minute, TableOptions{})
		granted(t, s.create("tbl", time.Now()))
		before := s.find("tbl")
		granted(t, s.drop("TBL", time.Now()))
		if _, err := before.write([]*change{{verb: verbInsert, payload: &payload{}}}, time.Now()); err == nil || err.code != "TableNotFound" {
			t.Errorf("write to a deleted table: %v", err)
		}
		if err := s.create("tbl", time.Now().Add(time.Minute-1)); err == nil || err.code != "TableBeingDeleted" {
			t.Errorf("creation within the window: %v", err)
		}
		granted(t, s.create("tbl", time.Now().Add(time.Minute))) // after the window
	})
}
