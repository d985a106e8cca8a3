package ledger

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// modelBook is a runBook as a plain map: each n that is recorded, and how.
type modelBook map[uint64]modelTask

type modelTask struct {
	done       bool
	generation uint32 // of one in quarantine
}

func (m modelBook) settled(n uint64, generation uint32) bool {
	t, is := m[n]
	return is && (t.done || generation <= t.generation)
}

func (m modelBook) record(ns codec.NSet, generation uint32, quarantined bool) {
	for n := range ns.All() {
		if !m.settled(n, generation) {
			m[n] = modelTask{done: !quarantined, generation: generation}
			if !quarantined {
				m[n] = modelTask{done: true}
			}
		}
	}
}

// drawNSet draws sets as envelopes have them: mostly a few spans, near each other, some
// of them over the border of chunks.
func drawNSet(t *rapid.T, label string) codec.NSet {
	var set codec.NSet
	base := rapid.SampledFrom([]uint64{0, 0, 0, 100, chunkSize - 50, chunkSize, 2*chunkSize - 20, 5 * chunkSize, 1 << 40, 1<<64 - 400}).Draw(t, label+" base")
	for range rapid.IntRange(1, 4).Draw(t, label+" spans") {
		from := base + rapid.Uint64Range(0, 200).Draw(t, label+" from")
		set.AddRange(from, from+rapid.Uint64Range(1, 80).Draw(t, label+" length"))
	}
	return set
}

func TestRecordsSayWhatAPlainModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := modelBook{}
		var b *runBook
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			d := b.draft()
			for range rapid.IntRange(1, 3).Draw(t, "entries") {
				set := drawNSet(t, "set")
				generation := rapid.Uint32Range(0, 3).Draw(t, "generation")
				quarantined := rapid.Bool().Draw(t, "quarantined")
				if quarantined {
					d.condemn(set, generation)
				} else {
					d.finish(set, generation)
				}
				model.record(set, generation, quarantined)
			}
			b = again(t, d)
			checkBook(t, b, model)
		}
	})
}

// again stores a book and reads it.
func again(t *rapid.T, b *runBook) *runBook {
	m := &image{runs: map[codec.RunID]*runBook{}}
	id := testkit.RunID(1)
	records := block{runKey(id): binary.AppendUvarint(nil, b.floor)}
	for index, c := range b.chunks {
		records[chunkKey(id, index)] = c.append(nil)
	}
	read, err := readBlock(appendBlock(nil, records))
	must(t, err)
	for _, key := range sortedKeys(read) {
		must(t, m.readRun(key, read[key]))
	}
	if !m.runs[id].count() {
		t.Fatal("too many tasks")
	}
	if m.runs[id].done != b.done || m.runs[id].quarantined != b.quarantined {
		t.Fatalf("read %d done, %d in quarantine; written %d, %d", m.runs[id].done, m.runs[id].quarantined, b.done, b.quarantined)
	}
	return m.runs[id]
}

func checkBook(t *rapid.T, b *runBook, model modelBook) {
	var finished, quarantined uint64
	for n, task := range model {
		low := uint32(n & (chunkSize - 1))
		what, _ := b.run(n>>chunkBits, low, low+1, 0)
		if (what == done) != task.done || (what == duplicate) == task.done {
			t.Fatalf("%d is %v, want %+v", n, what, task)
		}
		if task.done {
			finished++
		} else {
			quarantined++
		}
	}
	if b.done != finished || b.quarantined != quarantined {
		t.Fatalf("%d done, %d in quarantine; want %d, %d", b.done, b.quarantined, finished, quarantined)
	}
	floor := uint64(0)
	for _, known := model[floor]; known; _, known = model[floor] {
		floor++
	}
	proof.Same(t, b.floor, floor, "floor")
	r := &SegmentRecord{image: &image{runs: map[codec.RunID]*runBook{testkit.RunID(1): b}}}
	want := maps.Clone(model)
	maps.DeleteFunc(want, func(_ uint64, task modelTask) bool { return task.done })
	last := int64(-1)
	for n, g := range r.Quarantined(testkit.RunID(1)) {
		if task, is := want[n]; !is || task.generation != g || n < 1<<60 && int64(n) <= last {
			t.Fatalf("%d in quarantine with %d, want %+v", n, g, task)
		}
		last = int64(n & (1<<62 - 1))
		delete(want, n)
	}
	if len(want) > 0 {
		t.Fatalf("not listed as in quarantine: %v", want)
	}
	// The answers to a delivery, task by task.
	set, generation := drawNSet(t, "asked"), rapid.Uint32Range(0, 4).Draw(t, "asked generation")
	recorded, rest := b.divide(set, generation)
	for n := range set.All() {
		if recorded.set().Contains(n) != model.settled(n, generation) || rest.set().Contains(n) == model.settled(n, generation) {
			t.Fatalf("%d of generation %d: recorded %v, rest %v", n, generation, recorded.set(), rest.set())
		}
	}
	if recorded.set().Len()+rest.set().Len() != set.Len() {
		t.Fatalf("%v was divided into %v and %v", set, recorded.set(), rest.set())
	}
	sealed := rapid.Uint64Range(0, 3*chunkSize).Draw(t, "sealed")
	var open nspans
	for from, to := range r.Unsettled(testkit.RunID(1), sealed) {
		open = open.add(from, to)
	}
	for _, n := range []uint64{0, sealed / 2, sealed - 1, chunkSize - 1, chunkSize} {
		if n < sealed {
			if _, known := model[n]; known == open.set().Contains(n) {
				t.Fatalf("%d of %d is open: %v", n, sealed, open.set())
			}
		}
	}
}

func TestARunWithoutEndStaysSmall(t *testing.T) {
	var b *runBook
	for i := range uint64(2000) {
		b = b.draft()
		// Each envelope before the one with smaller n, as they may overtake each other.
		first := (i ^ 1) * 1600
		b.finish(ns(first, first+1600), 0)
		size := 0
		for _, c := range b.chunks {
			size += len(c.append(nil))
		}
		if len(b.chunks) > 2 || size > 64 {
			t.Fatalf("after %d envelopes %d chunks of %d bytes", i+1, len(b.chunks), size)
		}
	}
	if b.floor != 2000*1600 || b.done != b.floor || len(b.chunks) != 0 {
		t.Errorf("floor %d, %d done, %d chunks", b.floor, b.done, len(b.chunks))
	}
}

func TestSpansSayWhatASetSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s nspans
		model := map[uint64]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			from := rapid.Uint64Range(0, 400).Draw(t, "from")
			to := from + rapid.Uint64Range(1, 30).Draw(t, "length")
			add := rapid.IntRange(0, 2).Draw(t, "add") > 0
			if add {
				s = s.add(from, to)
			} else {
				s = s.remove(from, to)
			}
			for n := from; n < to; n++ {
				model[n] = add
			}
		}
		for i, sp := range s {
			if sp.from >= sp.to || i > 0 && s[i-1].to >= sp.from {
				t.Fatalf("%v", s)
			}
		}
		var in, out nspans
		s.divide(10, 420, &in, &out)
		set := s.set()
		for n := range uint64(440) {
			asked := n >= 10 && n < 420
			if set.Contains(n) != model[n] || in.set().Contains(n) != (asked && model[n]) || out.set().Contains(n) != (asked && !model[n]) {
				t.Fatalf("%d: %v, in %v, out %v", n, s, in, out)
			}
		}
	})
}

func TestALongSetOfSpansIsTheSameSet(t *testing.T) {
	var s nspans
	var all []uint64
	for i := range uint64(4 * fewSpans) {
		s = s.add(3*i, 3*i+2)
		all = append(all, 3*i, 3*i+1)
	}
	proof.Alike(t, slices.Collect(s.set().All()), all)
}

func TestRecordsOfScatteredTasksSayWhatAPlainModelSays(t *testing.T) {
	// So many single tasks that a chunk is kept as plain bits; then all but a few, as runs.
	for seed := range uint64(3) {
		draw := rand.New(rand.NewPCG(seed, 1))
		model := modelBook{}
		var b *runBook
		for range 6 {
			b = b.draft()
			for range 12_000 {
				from := draw.Uint64N(2 * chunkSize)
				set := ns(from, from+1+draw.Uint64N(3))
				generation, quarantined := uint32(draw.Uint64N(3)), draw.Uint64N(20) == 0
				if quarantined {
					b.condemn(set, generation)
				} else {
					b.finish(set, generation)
				}
				model.record(set, generation, quarantined)
			}
			b.own, b.dirty = nil, nil
		}
		for n := range uint64(2*chunkSize + 10) {
			low := uint32(n & (chunkSize - 1))
			task, known := model[n]
			what, next := b.run(n>>chunkBits, low, chunkSize, 0)
			if (what == unsettled) == known || (what == done) != task.done || next <= low {
				t.Fatalf("seed %d: %d is %v up to %d, want %+v", seed, n, what, next, task)
			}
			for low++; low < next; low++ { // the same for all of them
				if other, also := model[n>>chunkBits<<chunkBits+uint64(low)]; also != known || other.done != task.done {
					t.Fatalf("seed %d: %d is %v up to %d, but %d is %+v", seed, n, what, next, low, other)
				}
			}
		}
		floor := uint64(0)
		for _, known := model[floor]; known; _, known = model[floor] {
			floor++
		}
		if int(b.done+b.quarantined) != len(model) || b.floor != floor {
			t.Fatalf("seed %d: %d done, %d in quarantine, floor %d, want %d and %d", seed, b.done, b.quarantined, b.floor, len(model), floor)
		}
	}
}
