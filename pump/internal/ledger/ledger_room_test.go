package ledger

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/queuepump/queuepump/codec"
)

func numbered(i int) (id codec.RunID) {
	id[0], id[1], id[2] = 1, byte(i>>8), byte(i)
	return id
}

// alternate is every second n of from <= n < to.
func alternate(from, to uint64) codec.NSet {
	var ns []uint64
	for n := from; n < to; n += 2 {
		ns = append(ns, n)
	}
	return codec.MakeNSet(ns...)
}

// What was begun within the bound, and grew beyond it, was refused after its effect, once a minute:
// A segment has 1,700 live runs with every second task done. They begin as many tasks more.
func TestWhatIsBegunFindsRoomWhenItIsRecorded(t *testing.T) {
	a := openBook(t, newMemTable(), "a")
	a.mustFence(1, 7)
	const runs = 1700
	reached := uint64(0)
	for a.Use().Bytes < bookedSoft-runs*40 {
		var entries []Entry
		for i := range runs {
			entries = append(entries, Entry{Segment: 7, Epoch: 1, Run: numbered(i), Done: alternate(reached, reached+40)})
		}
		a.mustCommit(entries...)
		reached += 40
	}
	t.Logf("%d bytes, every second of %d tasks", a.Use().Bytes, reached)
	var begun []*Entry
	refused := 0
	for i := range runs {
		b, err := a.Begin(7, 1, numbered(i), 0, ns(reached, reached+190))
		switch {
		case errors.Is(err, ErrLedgerFull):
			refused++
		case err != nil || b.Fresh.Len() != 190:
			t.Fatal(b, err)
		default: // every second is done, the others fail for good
			begun = append(begun, &Entry{
				Segment: 7, Epoch: 1, Run: numbered(i), Done: alternate(reached, reached+190),
				Quarantined: alternate(reached+1, reached+190),
			})
		}
	}
	a.Commit(t.Context(), begun)
	lost := 0
	for _, e := range begun {
		if e.Err != nil {
			lost++
		}
	}
	if lost > 0 || len(begun) < 100 || refused == 0 {
		t.Errorf("%d runs began, of which %d were refused after the effect; %d were refused before it",
			len(begun), lost, refused)
	}
	// What was refused is not in hand, and begins when there is room again.
	over := []codec.RunID{}
	for i := range 600 {
		over = append(over, numbered(i))
	}
	must(t, a.Prune(t.Context(), nil, over...))
	want(t, "with room", a.begin(7, 1, numbered(runs-1), 0, ns(reached, reached+190))[2], "")
	if b, err := a.Begin(7, 1, numbered(runs-2), 0, ns(reached, reached+190)); err != nil || b.Fresh.Len() != 190 {
		t.Error(b, err)
	}
}

// Whatever is in hand of a segment that is nearly full, in whatever order it ends and however: what
// was begun is recorded.
func TestWhateverIsBegunOfAFullSegmentIsRecorded(t *testing.T) {
	for seed := range uint64(3) {
		a := openBook(t, newMemTable(), "a")
		a.mustFence(1, 7)
		for chunks := uint64(0); a.Use().Bytes < bookedSoft-2*maxRecord; chunks++ {
			a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: numbered(4000), Done: scattered(1, chunks, 1)})
		}
		random := rand.New(rand.NewPCG(seed, 27))
		generation := map[int]uint32{}
		at := map[int]uint64{}
		var held []*Entry
		begun, refused := 0, 0
		for range 6000 {
			i := random.IntN(60)
			if len(held) > 0 && random.IntN(3) == 0 {
				k := random.IntN(len(held))
				e := held[k]
				held[k] = held[len(held)-1]
				held = held[:len(held)-1]
				a.Commit(t.Context(), []*Entry{e})
				if e.Err != nil {
					t.Fatalf("seed %d: refused after the effect with %d bytes: %v", seed, a.Use().Bytes, e.Err)
				}
				continue
			}
			from, g := at[i], uint32(0)
			if from > 0 && random.IntN(3) == 0 { // what stands in quarantine is redriven
				from, g = random.Uint64N(from), generation[i]+1
				generation[i] = g
			} else {
				at[i] += 1 + random.Uint64N(300)
			}
			b, err := a.Begin(7, 1, numbered(i), g, ns(from, from+1+random.Uint64N(300)))
			if errors.Is(err, ErrLedgerFull) {
				refused++
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			begun++
			var done, poisoned, failed []uint64
			for n := range b.Fresh.All() {
				switch random.IntN(4) {
				case 0, 1:
					done = append(done, n)
				case 2:
					poisoned = append(poisoned, n)
				default:
					failed = append(failed, n)
				}
			}
			a.End(7, 1, numbered(i), codec.MakeNSet(failed...))
			held = append(held, &Entry{
				Segment: 7, Epoch: 1, Run: numbered(i), Generation: g,
				Done: codec.MakeNSet(done...), Quarantined: codec.MakeNSet(poisoned...),
			})
		}
		for _, e := range held {
			a.mustCommit(*e)
		}
		if s := &a.Ledger.segments[7]; s.inFlight.loose != 0 || len(s.inFlight.runs) > 0 {
			t.Errorf("seed %d: %d bytes are reserved for %d runs, and nothing is in hand", seed, s.inFlight.loose, len(s.inFlight.runs))
		}
		t.Logf("seed %d: %d begun, %d refused, %d bytes", seed, begun, refused, a.Use().Bytes)
	}
}
