package codec

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/flate"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// clone is an independent copy of b.
func clone(b *Builder) *Builder {
	c := *b
	c.spans = slices.Clone(b.spans)
	c.traces.section = bytes.Clone(b.traces.section)
	c.raw, c.chunks = nil, nil
	if b.raw != nil {
		c.raw = &slab{bytes.Clone(b.buf)}
		c.buf = c.raw.b
	}
	if b.chunks != nil {
		c.chunks = &slab{bytes.Clone(b.chunks.b)}
	}
	return &c
}

// bytesOf are n bytes that compress as well as kind says: 0 not at all, 1 like
// text, 2 almost to nothing.
func bytesOf(r *rand.Rand, kind, n int) []byte {
	b := make([]byte, n)
	switch kind {
	case 0:
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	case 1:
		words := []string{`"name":`, `"city":`, "Berlin", "Paris", `"amount":`, "0.25", ",", "true"}
		b = b[:0]
		for len(b) < n {
			b = append(b, words[r.IntN(len(words))]...)
		}
		b = b[:n]
	}
	return b
}

// drawTasks draws up to n tasks with ascending n, gaps, and contents of every
// kind and size.
func drawTasks(t *rapid.T, n int) []Task {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0))
	gaps := rapid.IntRange(1, 1000).Draw(t, "gaps")
	scale := rapid.SampledFrom([]int{1, 20, 200, 2000, 20000}).Draw(t, "scale")
	kinds := rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 1, 3, rapid.ID[int]).Draw(t, "kinds")
	tasks := make([]Task, rapid.IntRange(1, n).Draw(t, "tasks"))
	next := rapid.Uint64Max(1<<50).Draw(t, "first n")
	for i := range tasks {
		kind := func() int { return kinds[r.IntN(len(kinds))] }
		tasks[i] = Task{N: next, Key: bytesOf(r, kind(), r.IntN(20)), ID: bytesOf(r, kind(), r.IntN(5)), Body: bytesOf(r, kind(), r.IntN(scale))}
		next++
		if r.IntN(1000) < gaps {
			next += uint64(r.IntN(gaps))
		}
	}
	return tasks
}

func TestOneMoreFitsIffSealingWithItWouldFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(100, 4000).Draw(t, "limit")
		tasks := drawTasks(t, 300)
		b := NewBuilder(limit)
		b.Reset(testHeader())
		var in []Task
		for _, task := range tasks {
			fits, err := b.Add(task)
			if err != nil && !errors.Is(err, ErrTaskTooLarge) {
				t.Fatal(err)
			}
			if errors.Is(err, ErrTaskTooLarge) && (fits || len(in) > 0) {
				t.Fatalf("too large for an empty envelope, behind %d tasks", len(in))
			}
			trial := clone(b)
			if !fits {
				// With no limit in the way it goes in and makes it too long.
				trial.limit = math.MaxInt32
				if ok, err := trial.Add(task); !ok || err != nil {
					t.Fatalf("trial: %t, %v", ok, err)
				}
			}
			text, _, err := trial.Seal(nil)
			if fits && (err != nil || len(text) > limit) {
				t.Fatalf("task %d fits, but sealed it is %d characters of %d, %v", task.N, len(text), limit, err)
			}
			if !fits && len(text) <= limit {
				t.Fatalf("task %d does not fit, but sealed it is %d characters of %d", task.N, len(text), limit)
			}
			if fits {
				in = append(in, task)
			}
			if b.Len() != len(in) {
				t.Fatalf("Len is %d, want %d", b.Len(), len(in))
			}
		}
		if len(in) == 0 {
			return
		}
		// A refused task left no trace, wherever it came.
		text, h, err := b.Seal([]byte("before"))
		if err != nil || !bytes.HasPrefix(text, []byte("before")) {
			t.Fatal(err)
		}
		e, err := Open(text[len("before"):], Limits{})
		must(t, err)
		defer e.Release()
		if diff := cmp.Diff(h, e.Header); diff != "" {
			t.Fatalf("header (-sealed +opened):\n%s", diff)
		}
		if len(e.Tasks) != len(in) {
			t.Fatalf("%d tasks, want %d", len(e.Tasks), len(in))
		}
		for i := range in {
			if !sameTask(in[i], e.Tasks[i]) {
				t.Fatalf("task %d changed", in[i].N)
			}
		}
	})
}

func TestEachTaskIsCompressedOnce(t *testing.T) {
	for name, limit := range map[string]int{"default": 0, "filled up": maxText} {
		envelopes, raw, compressed, estimates := 0, 0, 0, 0
		b := NewBuilder(limit)
		for rest := jsonTasks(1, 20_000); len(rest) > 0; envelopes++ {
			b.Reset(testHeader())
			rest = rest[fill(t, b, rest):]
			if _, _, err := b.Seal(nil); err != nil {
				t.Fatal(err)
			}
			raw += b.rawLen
			compressed += b.compressed
			estimates += b.estimates
		}
		each := float64(estimates) / float64(envelopes)
		t.Logf("%s: %d envelopes, compressed %.3f x raw in %.1f chunks each", name, envelopes, float64(compressed)/float64(raw), each)
		if compressed*100 > raw*101 {
			t.Errorf("%s: compressed %d bytes of %d", name, compressed, raw)
		}
		if limit == 0 && each > 12 {
			t.Errorf("%s: %.1f chunks in an envelope", name, each)
		}
	}
}

func TestAnEnvelopeOfTheDefaultLimitIsAsGoodAsFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = maxText - DefaultHeadroom
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contents"), 0))
		most := rapid.SampledFrom([]int{10, 200, 3000}).Draw(t, "size")
		b := NewBuilder(0)
		b.Reset(testHeader())
		for n := uint64(0); ; n++ {
			fits, err := b.Add(Task{N: n, Body: bytesOf(r, r.IntN(3), r.IntN(most))})
			must(t, err)
			if !fits {
				break
			}
		}
		tasks := b.Len()
		text, _, err := b.Seal(nil)
		if err != nil || len(text) > limit {
			t.Fatalf("%d characters of %d, %v", len(text), limit, err)
		}
		// The free space is less than a spare share, and a task of stored size may not have fitted.
		if free := limit - len(text); tasks < maxTasks && free > limit/spareShare+most*4/3+20 {
			t.Fatalf("%d characters are free with %d tasks", free, tasks)
		}
	})
}

func TestPackingInChunksCostsLittleAgainstOneStream(t *testing.T) {
	tasks := jsonTasks(1, 3000)
	b := NewBuilder(0)
	b.Reset(testHeader())
	n := fill(t, b, tasks)

	// How many would fit if all were compressed as one stream at the same level.
	sizeOf := func(n int) int {
		var records []byte
		for i := range tasks[:n] {
			records = appendRecord(records, &tasks[i])
		}
		var out bytes.Buffer
		w, err := flate.NewWriter(&out, level)
		must(t, err)
		must(t, errOf(w.Write(records)))
		must(t, w.Close())
		return out.Len()
	}
	best := n
	for sizeOf(best+1)+headSize(b.fixed+8)+8 <= b.limit {
		best++
	}
	t.Logf("%d tasks, %d in one stream", n, best)
	if n*100 < best*95 {
		t.Errorf("%d tasks where one stream takes %d", n, best)
	}
}

func TestTasksThatDoNotCompressFillTheMessage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := NewBuilder(0)
	b.Reset(testHeader())
	for n := uint64(0); ; n++ {
		fits, err := b.Add(Task{N: n, Body: bytesOf(r, 0, 100)})
		must(t, err)
		if !fits {
			break
		}
	}
	text, _, err := b.Seal(nil)
	must(t, err)
	if free := maxText - DefaultHeadroom - len(text); free < 0 || free > 160 {
		t.Errorf("%d characters are free where a task takes 140", free)
	}
}

func TestATaskThatDoesNotFitAnEmptyEnvelopeIsTooLarge(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := NewBuilder(0)
	b.Reset(testHeader())
	for _, size := range []int{48_500, maxRaw} {
		if fits, err := b.Add(Task{Body: bytesOf(r, 0, size)}); fits || !errors.Is(err, ErrTaskTooLarge) {
			t.Errorf("%d random bytes: %t, %v", size, fits, err)
		}
	}
	// A builder that is left unharmed takes any task that does fit.
	if fits, err := b.Add(Task{Body: bytesOf(r, 2, maxRaw/2)}); !fits || err != nil {
		t.Errorf("%d zeros: %t, %v", maxRaw/2, fits, err)
	}
	if fits, err := b.Add(Task{N: 1, Body: bytesOf(r, 2, maxRaw/2)}); fits || err != nil {
		t.Errorf("more than %d bytes in all: %t, %v", maxRaw, fits, err)
	}
	if fits, err := b.Add(Task{N: 1, Body: bytesOf(r, 0, 48_500)}); fits || err != nil {
		t.Errorf("too large behind another: %t, %v; only an empty envelope knows", fits, err)
	}
	if fits, err := b.Add(Task{N: 1, Body: bytesOf(r, 2, maxRaw)}); fits || !errors.Is(err, ErrTaskTooLarge) {
		t.Errorf("a task beyond every envelope: %t, %v", fits, err)
	}
	text, _, err := b.Seal(nil)
	must(t, err)
	e := open(t, text)
	defer e.Release()
	sameTasks(t, e.Tasks, []Task{{Body: make([]byte, maxRaw/2)}})
}

func TestAnEnvelopeHasABoundedNumberOfTasks(t *testing.T) {
	b := NewBuilder(0)
	b.Reset(testHeader())
	for n := range uint64(maxTasks) {
		if fits, err := b.Add(Task{N: n}); !fits || err != nil {
			t.Fatalf("empty task %d: %t, %v", n, fits, err)
		}
	}
	if fits, err := b.Add(Task{N: maxTasks}); fits || err != nil {
		t.Fatalf("one more than %d: %t, %v", maxTasks, fits, err)
	}
	text, _, err := b.Seal(nil)
	must(t, err)
	e := open(t, text)
	proof.Same(t, len(e.Tasks), maxTasks, "tasks")
	e.Release()
}

func TestABuilderIsUsedInOrder(t *testing.T) {
	b := NewBuilder(0)
	if fits, err := b.Add(Task{}); fits || !errors.Is(err, errNotReset) {
		t.Errorf("Add before Reset: %t, %v", fits, err)
	}
	b.Reset(testHeader())
	if _, _, err := b.Seal(nil); !errors.Is(err, errEmpty) {
		t.Errorf("Seal of nothing: %v", err)
	}
	for _, n := range []uint64{5, 7} {
		if fits, err := b.Add(Task{N: n}); !fits || err != nil {
			t.Fatal(fits, err)
		}
	}
	for _, n := range []uint64{0, 5, 6, 7, math.MaxUint64} {
		if fits, err := b.Add(Task{N: n}); fits || err == nil {
			t.Errorf("n = %d behind 7 was taken", n)
		}
	}
	_, h, err := b.Seal(nil)
	must(t, err)
	proof.Same(t, h.Tasks.String(), "5,7", "sealed")
	proof.Is(t, proof.ErrOf(b.Add(Task{N: 8})), errNotReset, "Add after Seal")
	if _, _, err := b.Seal(nil); !errors.Is(err, errNotReset) {
		t.Errorf("Seal after Seal: %v", err)
	}
	for name, h := range map[string]Header{
		"newer version":      {Version: Version + 1},
		"long workload":      {Workload: strings.Repeat("w", maxWorkload+1)},
		"workload not UTF-8": {Workload: "\xff"},
	} {
		b.Reset(h)
		if _, err := b.Add(Task{}); err == nil {
			t.Errorf("%s: Add went well", name)
		}
		if _, _, err := b.Seal(nil); err == nil {
			t.Errorf("%s: Seal went well", name)
		}
	}
	b.Reset(testHeader())
	if fits, err := b.Add(Task{}); !fits || err != nil {
		t.Errorf("after a Reset with a good header: %t, %v", fits, err)
	}
}

func TestABuilderWithAHugeOrNoLimitKeepsWithinAMessage(t *testing.T) {
	for _, limit := range []int{-1, 0, math.MaxInt} {
		b := NewBuilder(limit)
		b.Reset(testHeader())
		fill(t, b, jsonTasks(1, 3000))
		text, _, err := b.Seal(nil)
		want, free := maxText, 200
		if limit <= 0 {
			want, free = want-DefaultHeadroom, want/spareShare
		}
		if err != nil || len(text) > want || len(text) < want-free {
			t.Errorf("limit %d: %d characters, want nearly %d; %v", limit, len(text), want, err)
		}
	}
}

func TestTheSameTasksMakeTheSameTextWhateverWasPackedBefore(t *testing.T) {
	tasks := jsonTasks(7, 900)
	want := seal(t, testHeader(), tasks)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, g))
			b := NewBuilder(0)
			for range 20 {
				b.Reset(Header{Segment: uint32(g)})
				for n := range uint64(r.IntN(200)) {
					proof.Is(t, proof.ErrOf(b.Add(Task{N: n, Body: bytesOf(r, r.IntN(3), r.IntN(1000))})), nil)
				}
				b.Reset(testHeader())
				for _, task := range tasks {
					if fits, err := b.Add(task); !fits || err != nil {
						t.Error(fits, err)
					}
				}
				if got, _, err := b.Seal(nil); err != nil || !bytes.Equal(got, want) {
					t.Errorf("another text, %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAnOpenEnvelopeHoldsWhatItNeeds(t *testing.T) {
	b := NewBuilder(0)
	if b.Held() > 1<<10 {
		t.Errorf("a new builder holds %d bytes", b.Held())
	}
	b.Reset(testHeader())
	tasks := jsonTasks(1, 3000)
	fill(t, b, tasks[:10])
	if held := b.Held(); held < b.rawLen || held > 8<<10 {
		t.Errorf("with %d bytes of records it holds %d", b.rawLen, held)
	}
	fill(t, b, tasks[10:])
	if held := b.Held(); held < b.limit || held > 128<<10 {
		t.Errorf("full it holds %d", held)
	}
	if _, _, err := b.Seal(nil); err != nil {
		t.Fatal(err)
	}
	if b.Held() > 1<<10 {
		t.Errorf("sealed it holds %d bytes", b.Held())
	}
}

func TestARewriteCarriesTheUnfinishedTasksWithTheirN(t *testing.T) {
	tasks := jsonTasks(1, 1000)
	e := open(t, seal(t, testHeader(), tasks))
	defer e.Release()
	b := NewBuilder(0)
	again := e.Header
	again.Attempt++
	b.Reset(again)
	var want []Task
	for i, task := range e.Tasks {
		if i%3 == 0 {
			continue // finished
		}
		want = append(want, task)
		if fits, err := b.Add(task); !fits || err != nil {
			t.Fatal(fits, err)
		}
	}
	text, _, err := b.Seal(nil)
	must(t, err)
	e2 := open(t, text)
	defer e2.Release()
	sameTasks(t, e2.Tasks, want)
	h := e2.Header
	if h.Attempt != 2 || h.Run != again.Run || h.Segment != 42 || h.Generation != 2 || h.Workload != "orders" || h.Tasks.Len() != len(want) || h.Tasks.Contains(0) {
		t.Errorf("header %+v", h)
	}
}

func TestPackingAllocatesNothingPerTask(t *testing.T) {
	if racing {
		t.Skip("pools forget at random under the race detector")
	}
	tasks := jsonTasks(1, 5000)
	b := NewBuilder(0)
	dst := make([]byte, 0, maxText)
	n := 0
	round := func() {
		b.Reset(testHeader())
		n = fill(t, b, tasks)
		if _, _, err := b.Seal(dst); err != nil {
			t.Fatal(err)
		}
	}
	allocs := testing.AllocsPerRun(50, round)
	t.Logf("%v allocations for %d tasks", allocs, n)
	if allocs > 0.01*float64(n) {
		t.Errorf("%v allocations for %d tasks", allocs, n)
	}
}

func TestAnEnvelopeSaysWhenItWasSealed(t *testing.T) {
	sealed := time.Date(2026, 3, 1, 12, 0, 0, 123_987_000, time.FixedZone("", 3600))
	for version, want := range map[uint8]time.Time{1: {}, 2: sealed.Truncate(time.Millisecond).UTC()} {
		b := NewBuilder(0)
		h := testHeader()
		h.Version = version
		b.Reset(h)
		fill(t, b, jsonTasks(1, 100))
		b.Stamp(sealed)
		text, made, err := b.Seal(nil)
		must(t, err)
		read, err := ReadHeader(text)
		if err != nil || read.Version != version || !read.Sealed.Equal(want) || !made.Sealed.Equal(want) {
			t.Errorf("version %d: %v and %v, want %v; %v", version, made.Sealed, read.Sealed, want, err)
		}
		// An envelope that is put back or set aside was sealed when it was.
		again, err := Restamped(text, 7, 1, NotNow{})
		must(t, err)
		if read, err = ReadHeader(again); err != nil || read.Version != version || !read.Sealed.Equal(want) {
			t.Errorf("version %d with another attempt: %v, want %v; %v", version, read.Sealed, want, err)
		}
	}
}
