package record

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

const (
	// checkEvery is how often an owner looks whether the ledger's heads are still what it wrote last.
	// For each partition with a held segment that is one query a minute, for three small columns of at
	// most 64 rows.
	checkEvery = time.Minute
	// checkSoon is how often an owner looks where something is odd: a duplicate, which it recognises
	// from memory, or rows that came back older.
	checkSoon = 10 * time.Second
	// checkTimeout is what one look may take. A head that it did not read is read a minute later.
	checkTimeout = 20 * time.Second
)

// checker looks whether the rows of the ledger are still those that this process wrote. Without it
// an owner with nothing to record would not learn that the rows came back older, and would take the
// tasks of a repair for duplicates. A segment that is behind is fenced again, under a later epoch.
type checker struct {
	c    *Recorder
	wake chan struct{} // has room for one token

	mu  sync.Mutex   // guards what follows
	odd map[int]bool // partitions that are to be looked at soon

	looks map[int]*ledgerLook // by partition; of the one goroutine that looks
}

// ledgerLook is when the heads of a partition are read.
type ledgerLook struct {
	last, due time.Time
	n         uint64
}

func newChecker(c *Recorder) *checker {
	return &checker{
		c: c, wake: make(chan struct{}, 1), odd: map[int]bool{}, looks: map[int]*ledgerLook{},
	}
}

// doubt has the heads of a segment's partition read soon.
func (k *checker) doubt(segment uint32) {
	partition := k.c.Ledger.Partition(segment)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.odd[partition] {
		k.odd[partition] = true
		waits.Signal(k.wake)
	}
}

// old is told of segments whose rows came back older: the other rows of their partition may have,
// too.
func (k *checker) old(segments []uint32) {
	for _, s := range segments {
		k.doubt(s)
	}
	waits.Signal(k.c.Fencer.wake)
}

// Check looks until ctx ends.
func (k *checker) Check(ctx context.Context) {
	waits.Loop(ctx, k.wake, func() time.Duration {
		k.c.r.Cfg.Sim.Seeding.Turn.Wait("check")
		return k.round(ctx)
	})
}

// round reads the heads of the partitions that are due, one after the other, and says how long none
// will be.
func (k *checker) round(ctx context.Context) (wait time.Duration) {
	wait = checkEvery
	held := k.held()
	maps.DeleteFunc(k.looks, func(partition int, _ *ledgerLook) bool { return held[partition] == nil })
	for _, partition := range slices.Sorted(maps.Keys(held)) {
		look := k.looks[partition]
		if look == nil {
			look = &ledgerLook{last: time.Now()}
			k.looks[partition] = look
			k.next(partition, look)
		}
		if k.isOdd(partition) {
			look.due = slices.MinFunc([]time.Time{look.due, look.last.Add(checkSoon)}, time.Time.Compare)
		}
		if time.Now().Before(look.due) {
			wait = min(wait, time.Until(look.due))
			continue
		}
		k.look(ctx, partition, held[partition])
		look.last = time.Now()
		k.next(partition, look)
		wait = min(wait, time.Until(look.due))
	}
	return max(wait, 0)
}

// next says when a partition is to be looked at again.
func (k *checker) next(partition int, look *ledgerLook) {
	look.due = look.last.Add(k.c.r.Jitter.Around(checkEvery, "check", strconv.Itoa(partition), look.n))
	look.n++
}

// held are the segments that this process writes, by partition.
func (k *checker) held() map[int][]cluster.Hold {
	m := k.c.r.Member.Load()
	if m == nil {
		return nil
	}
	held := map[int][]cluster.Hold{}
	for s := range uint32(k.c.r.Workload.Map.Segments) {
		if h, ok := m.Hold(s); ok && k.c.Fencer.Ready(h) {
			held[k.c.Ledger.Partition(s)] = append(held[k.c.Ledger.Partition(s)], h)
		}
	}
	return held
}

func (k *checker) isOdd(partition int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.odd[partition]
}

// look reads the heads of a partition. Odd heads from then on have it read again.
func (k *checker) look(ctx context.Context, partition int, holds []cluster.Hold) {
	k.mu.Lock()
	delete(k.odd, partition)
	k.mu.Unlock()
	try, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := k.c.Ledger.Check(try, holds); err != nil && ctx.Err() == nil {
		k.c.r.Log.Info("whether the ledger's rows are this process's last ones could not be learned",
			"partition", partition, "error", err)
	}
}
