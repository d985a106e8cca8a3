package worlds

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// turns gives every process of a world its seeding: a goroutine that decides something waits for a
// nanosecond of its own (turn), and a draw is a hash of the seed, the instance, the operation, the
// object and the count of such draws (P9).
//
// Time is cut into microseconds. A goroutine that comes in one of them goes on in the second half
// of the next, in the order of hashes of operations; the first half is the service's
// (azsim.Config.Ordered), which does the same.
type turns struct {
	seed  uint64
	trace func(instance, operation, about string) // is told what waits: where two histories part

	mu    sync.Mutex // guards what follows
	steps map[turnAt]*turnStep
	drawn map[string]int
}

// turnAt is a microsecond of one process. Other processes have no place in it: processes meet at
// the service only, so shared nanoseconds do not matter.
type turnAt struct {
	instance string
	at       int64
}

// turnStep is the goroutines that go on in it.
type turnStep struct {
	waiting []*turnWait // sorted once it has begun
	begun   bool
	left    int
}

// turnWait is one waiting goroutine; of several with one key only the first, or they cannot be told
// apart.
type turnWait struct {
	key  uint64
	came int64
}

// newTurns makes the turns of a world of this seed.
func newTurns(seed uint64) *turns {
	return &turns{seed: seed, steps: map[turnAt]*turnStep{}, drawn: map[string]int{}}
}

// Of is the seeding of one process, or of one life of it.
func (ts *turns) Of(instance string) sim.Seeding {
	return sim.Seeding{
		Draw: func(operation, object string) uint64 {
			key := instance + "\x00" + operation + "\x00" + object
			ts.mu.Lock()
			defer ts.mu.Unlock()
			ts.drawn[key]++
			return testworld.SimHash(ts.seed, "draw", key, ts.drawn[key])
		},
		Turn: func(operation, about string) {
			if ts.trace != nil {
				ts.trace(instance, operation, about)
			}
			ts.wait(instance, testworld.SimHash(ts.seed, instance+"\x00"+operation, about, 0))
		},
	}
}

func (ts *turns) wait(instance string, key uint64) {
	const every = int64(time.Microsecond)
	now := time.Now().UnixNano()
	at := now/every*every + every
	ts.mu.Lock()
	step := turnAt{instance, at}
	s := ts.steps[step]
	if s == nil {
		s = &turnStep{}
		ts.steps[step] = s
	}
	w := &turnWait{key, now}
	s.waiting = append(s.waiting, w)
	s.left++
	ts.mu.Unlock()
	time.Sleep(time.Duration(at - now))
	time.Sleep(time.Microsecond/2 + time.Duration(ts.place(s, w)))
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if s.left--; s.left == 0 {
		delete(ts.steps, step)
	}
}

// place gives a goroutine's rank in a step that has begun, when all are known.
func (ts *turns) place(s *turnStep, w *turnWait) int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !s.begun {
		s.begun = true
		slices.SortFunc(s.waiting, func(a, b *turnWait) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.came, b.came))
		})
	}
	return slices.Index(s.waiting, w)
}
