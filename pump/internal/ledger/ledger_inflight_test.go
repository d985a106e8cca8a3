package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// TestWhatIsInHandIsWhatWasBegunAndNotEnded plays one segment's life at random, another
// owner now and then among it, and predicts the answer of every Begin, task by task.
func TestWhatIsInHandIsWhatWasBegunAndNotEnded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := newMemTable()
		a, b := openBook(t, table, "a"), openBook(t, table, "b")
		var (
			epoch, since uint64 // of a; since: its first one without another owner between
			fenced       bool
			recorded     = map[uint64]bool{}
			inHand       = map[uint64]bool{}
			held         []holding // what was begun, also by epochs from before another owner
		)
		take := func() (h holding, ok bool) {
			h, held, ok = takeOne(rt, held)
			return h, ok
		}
		next := uint64(1)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 8).Draw(rt, "what") {
			case 0: // a claims
				a.mustFence(next, 7)
				if since == 0 {
					since = next
				}
				epoch, fenced = next, true
				next++
			case 1: // another owner was there
				b.mustFence(next, 7)
				next++
				a.mustFence(next, 7) // and a is back
				epoch, since, fenced = next, next, true
				next++
				clear(inHand)
			case 2:
				a.Drop([]uint32{7})
				fenced = false
			case 3:
				if h, ok := take(); ok {
					a.End(7, h.epoch, testkit.RunID(1), h.set)
					if h.since == since {
						for n := range h.set.All() {
							delete(inHand, n)
						}
					}
				}
			case 4, 5:
				if h, ok := take(); ok {
					err := a.commit(Entry{Segment: 7, Epoch: h.epoch, Run: testkit.RunID(1), Done: h.set})
					if (h.since == since) != (err == nil) || err != nil && !errors.Is(err, ErrFenced) {
						rt.Fatalf("a commit of epoch %d, by %d since %d: %v", h.epoch, epoch, since, err)
					}
					for n := range h.set.All() {
						if err == nil {
							recorded[n] = true
							delete(inHand, n)
						}
					}
				}
			default:
				from := rapid.Uint64Range(0, 30).Draw(rt, "from")
				set := ns(from, from+rapid.Uint64Range(1, 12).Draw(rt, "length"))
				got, err := a.Begin(7, epoch, testkit.RunID(1), 0, set)
				if fenced != (err == nil) {
					rt.Fatalf("begin: %v, fenced %v", err, fenced)
				}
				if err != nil {
					continue
				}
				requireBegun(rt, got, set, recorded, inHand)
				for n := range got.Fresh.All() {
					inHand[n] = true
				}
				if got.Fresh.Len() > 0 {
					held = append(held, holding{epoch, since, got.Fresh})
				}
			}
		}
	})
}

// holding is what was begun by an epoch, since that and others before it own the segment.
type holding struct {
	epoch, since uint64
	set          codec.NSet
}

// takeOne takes one of those that are held; ok is false if there is none.
func takeOne(t *rapid.T, held []holding) (h holding, rest []holding, ok bool) {
	if len(held) == 0 {
		return h, held, false
	}
	i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
	h = held[i]
	return h, append(held[:i], held[i+1:]...), true
}

// requireBegun checks what Begin said of each task of a set.
func requireBegun(t *rapid.T, got Begun, set codec.NSet, recorded, inHand map[uint64]bool) {
	t.Helper()
	for n := range set.All() {
		is := [3]bool{got.Fresh.Contains(n), got.Recorded.Contains(n), got.InHand.Contains(n)}
		if is != [3]bool{!recorded[n] && !inHand[n], recorded[n], inHand[n]} {
			t.Fatalf("%d: fresh, recorded, in hand %v; recorded %v, in hand %v", n, is, recorded[n], inHand[n])
		}
	}
}

// TestNoTaskIsInTwoHands lets many goroutines begin, end and commit while holds end and
// come back: at no moment is a task fresh for two of them, and none is fresh once it is recorded.
func TestNoTaskIsInTwoHands(t *testing.T) {
	const tasks = 300
	table := newMemTable()
	a := openBook(t, table, "a", func(o *Options) { o.State = effects{} })
	a.mustFence(1, 7)
	var epoch atomic.Uint64
	epoch.Store(1)
	var hands [tasks]atomic.Int32 // who has it in hand
	var recorded [tasks]atomic.Bool
	var wg sync.WaitGroup
	for me := int32(1); me <= 6; me++ {
		wg.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(me), 5))
			for i := range 2000 {
				if me == 1 && i%50 == 0 { // the hold ends and comes back, while the others go on
					a.Drop([]uint32{7})
					runtime.Gosched()
					proof.Is(t, proof.ErrOf(fenceAll(context.Background(), a, holdsOf(epoch.Load()+1, 7))), nil)
					epoch.Add(1)
				}
				e := epoch.Load()
				from := draw.Uint64N(tasks)
				got, err := a.Begin(7, e, testkit.RunID(1), 0, ns(from, min(tasks, from+1+draw.Uint64N(20))))
				if err != nil {
					runtime.Gosched() // the hold ended meanwhile
					continue
				}
				entry := &Entry{Segment: 7, Epoch: e, Run: testkit.RunID(1), Done: got.Fresh}
				for n := range got.Fresh.All() {
					if !hands[n].CompareAndSwap(0, me) || recorded[n].Load() {
						t.Errorf("%d is fresh for %d and in hand of %d, recorded %v", n, me, hands[n].Load(), recorded[n].Load())
					}
					entry.Contributions = append(entry.Contributions, Contribution{n, [2]string{fmt.Sprint(n), fmt.Sprint(me)}})
				}
				if draw.IntN(3) > 0 {
					for n := range got.Fresh.All() {
						hands[n].Store(0)
					}
					a.End(7, e, testkit.RunID(1), got.Fresh)
					continue
				}
				a.Commit(context.Background(), []*Entry{entry})
				for n := range got.Fresh.All() {
					if entry.Err == nil {
						recorded[n].Store(true)
					}
				}
				proof.Is(t, entry.Err, nil)
			}
		})
	}
	wg.Wait()
	r := recordOf(t, table, 7)
	state, err := effects{}.Load(r.State())
	must(t, err)
	finished, _ := r.Counts(testkit.RunID(1))
	if finished < tasks/2 || epoch.Load() < 40 {
		t.Errorf("%d tasks were recorded under %d epochs", finished, epoch.Load())
	}
	for n := range uint64(tasks) {
		if by := state.(map[string][]string)[fmt.Sprint(n)]; r.Done(testkit.RunID(1), n) != recorded[n].Load() || recorded[n].Load() != (len(by) == 1) {
			t.Errorf("%d: done %v, said to be %v, took effect by %v", n, r.Done(testkit.RunID(1), n), recorded[n].Load(), by)
		}
	}
}
