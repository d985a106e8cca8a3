package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

const (
	// fenceBase and fenceMost bound when failed fencing is tried again, for each segment by itself, so
	// that a segment with damaged rows does not hold up others.
	fenceBase = 250 * time.Millisecond
	fenceMost = 10 * time.Second
	// fenceTimeout is how long one try may take until a warning. What it has done by then stays done.
	fenceTimeout = time.Minute
	// fencesAtOnce is how many partitions are fenced, or loaded, at once. 64 partitions are 8 rounds
	// of two requests, and 8 answers of 4 MiB are in memory at most.
	fencesAtOnce = 8
	// fenceLook is how often the fencer looks at most for what is fenced and what is next: a look at
	// 4,096 segments takes a few milliseconds.
	fenceLook = 20 * time.Millisecond
	// fenceSoon is how long messages wait in hand if another process has their segment's ledger: this
	// process claims the segment again above the other's epoch, or learns that the other owns it,
	// which takes a look or two.
	fenceSoon = 10 * time.Second
	// fenceLong times the lease is how long a segment may be held without a fence until that is an
	// alarm.
	fenceLong = 2
)

// fencing is the right to write a segment's record.
type fencing struct {
	epoch uint64
	at    time.Time // from then on no earlier owner can have written
}

// unfencedSegment is a segment whose fencing has failed.
type unfencedSegment struct {
	epoch  uint64    // of the hold at that time
	since  time.Time // when it first did
	after  time.Time // not tried again before then
	trials uint64
	err    error
}

// Fencer makes this process the writer of what it holds: first it writes the epochs of all segments
// into their heads, several partitions at once, then it has their pages loaded. One goroutine
// decides; each request has its own. Each segment is worked on as soon as it is ready, and a
// segment that cannot be fenced does not hold up the others.
type Fencer struct {
	c    *Recorder
	wake chan struct{} // has room for one token: there is something to do, or to see

	mu      sync.Mutex // guards what follows
	fenced  map[uint32]fencing
	failed  map[uint32]*unfencedSegment
	busy    map[int]bool // partitions about which requests are made
	last    time.Time    // when it was last looked
	damaged int          // segments that are held and whose rows cannot be read
	stuck   int          // those, and others that are not waited for
	keeps   []int        // segments that are this process's, by partition
	all     int          // of them
}

func newFencer(c *Recorder) *Fencer {
	return &Fencer{
		c: c, wake: make(chan struct{}, 1), fenced: map[uint32]fencing{},
		failed: map[uint32]*unfencedSegment{}, busy: map[int]bool{},
	}
}

// Ready reports whether a segment that is held is fenced, and that is noted.
func (f *Fencer) Ready(h cluster.Hold) bool {
	_, ok := f.FencedAt(h.Segment, h.Epoch)
	return ok && f.c.Ledger.Fenced(h.Segment, h.Epoch)
}

// FencedAt is since when this process has been the writer of a segment under an epoch.
func (f *Fencer) FencedAt(segment uint32, epoch uint64) (at time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	is, ok := f.fenced[segment]
	return is.at, ok && is.epoch == epoch
}

// Follow notes what is held now. Segments not yet fenced will be, and no task begins of a segment
// that is no longer held. Its finished results are still recorded, until another owner is fenced.
// It is called with each look at the cluster and each change of what is held.
func (f *Fencer) Follow(m *member.Member) {
	f.c.Ledger.Drop(f.ended(m))
	if len(f.ToFence(m)) > 0 {
		waits.Signal(f.wake)
	}
}

// ToFence lists what is held and not ready.
func (f *Fencer) ToFence(m *member.Member) (holds []cluster.Hold) {
	for s := range uint32(f.c.r.Workload.Map.Segments) {
		if h, ok := m.Hold(s); ok && !f.Ready(h) {
			holds = append(holds, h)
		}
	}
	return holds
}

// ended takes the segments that are not this member's off the lists, and gives them in order.
func (f *Fencer) ended(m *member.Member) (segments []uint32) {
	all := f.c.r.Workload.Map.Segments
	keeps := make([]int, f.c.Ledger.Partition(uint32(all-1))+1)
	for s := range uint32(all) {
		if m.Keeps(s) {
			keeps[f.c.Ledger.Partition(s)]++
		} else {
			segments = append(segments, s)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keeps, f.all = keeps, all-len(segments)
	for _, s := range segments {
		delete(f.fenced, s)
		delete(f.failed, s)
	}
	return segments
}

// Holds is how many segments of a partition of the ledger, and of all, are this process's.
func (f *Fencer) Holds(partition int) (segments, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if partition < len(f.keeps) {
		segments = f.keeps[partition]
	}
	return segments, f.all
}

// Fence fences what this process holds, until ctx ends.
func (f *Fencer) Fence(ctx context.Context) {
	waits.Loop(ctx, f.wake, func() time.Duration {
		f.c.r.Cfg.Sim.Seeding.Turn.Wait("fence")
		wait, news := f.round(ctx)
		if news { // what was not polled is, and what waits in the lobby goes on
			f.c.parts.Follow()
		}
		return wait
	})
}

// round notes what has become ready and starts what is due. It says how long nothing more will be
// due, and whether there is something new to work on, or less to wait for.
func (f *Fencer) round(ctx context.Context) (wait time.Duration, news bool) {
	now := time.Now()
	f.mu.Lock()
	early := f.last.Add(fenceLook).Sub(now)
	if early <= 0 {
		f.last = now
	}
	f.mu.Unlock()
	if early > 0 {
		return early, false
	}
	holds := f.ToFence(f.c.r.Member.Load())
	f.mu.Lock()
	defer f.mu.Unlock()
	wait = time.Hour
	var heads, pages [][]cluster.Hold // by partition, in order
	damaged, stuck := 0, 0
	for _, h := range holds {
		u := f.failed[h.Segment]
		switch {
		case f.c.Ledger.Fenced(h.Segment, h.Epoch):
			f.fenced[h.Segment] = fencing{h.Epoch, now}
			delete(f.failed, h.Segment)
			news = true
			continue
		case u == nil:
		case errors.Is(u.err, row.ErrCorrupt):
			damaged++
		case u.epoch != h.Epoch: // it was claimed again
			u.epoch, u.after = h.Epoch, time.Time{}
		}
		if u != nil && u.isStuck(now) {
			stuck++
		}
		switch {
		case u != nil && u.after.After(now):
			wait = min(wait, u.after.Sub(now))
		case f.busy[f.c.Ledger.Partition(h.Segment)]:
		case f.c.Ledger.Unloaded(h.Segment, h.Epoch):
			pages = f.group(pages, h)
		default:
			heads = f.group(heads, h)
		}
	}
	news = news || f.damaged != damaged || f.stuck != stuck
	f.damaged, f.stuck = damaged, stuck
	f.start(ctx, heads, false)
	f.start(ctx, pages, true)
	f.alarm(now)
	return wait, news
}

// group adds a hold to those of its partition.
func (f *Fencer) group(groups [][]cluster.Hold, h cluster.Hold) [][]cluster.Hold {
	if n := len(groups); n > 0 &&
		f.c.Ledger.Partition(groups[n-1][0].Segment) == f.c.Ledger.Partition(h.Segment) {
		groups[n-1] = append(groups[n-1], h)
		return groups
	}
	return append(groups, []cluster.Hold{h})
}

// start has partitions fenced, or their pages loaded, as many as may be at once. The lock is held.
func (f *Fencer) start(ctx context.Context, groups [][]cluster.Hold, load bool) {
	for _, holds := range groups {
		partition := f.c.Ledger.Partition(holds[0].Segment)
		if len(f.busy) >= fencesAtOnce {
			return // the end of one of them wakes the fencer
		}
		if f.busy[partition] {
			continue
		}
		f.busy[partition] = true
		f.c.r.Background.Go(func() { f.one(ctx, partition, holds, load) })
	}
}

// one fences segments of one partition, or loads them.
func (f *Fencer) one(ctx context.Context, partition int, holds []cluster.Hold, load bool) {
	f.c.r.Cfg.Sim.Seeding.Turn.Wait("fencing", strconv.Itoa(partition))
	try, cancel := context.WithTimeout(ctx, fenceTimeout)
	var err error
	if load {
		err = f.c.Ledger.Load(try, holds, func(uint32) { waits.Signal(f.wake) })
	} else {
		_, err = f.c.Ledger.Fence(try, holds)
	}
	cancel()
	if ctx.Err() == nil {
		f.conclude(partition, holds, err)
	}
	f.mu.Lock()
	delete(f.busy, partition)
	f.mu.Unlock()
	waits.Signal(f.wake)
}

// conclude notes which of the segments, which are in order, have failed and when they are tried
// again.
func (f *Fencer) conclude(partition int, holds []cluster.Hold, err error) {
	failed, ok := errors.AsType[*ledger.UnfencedError](err)
	if !ok {
		return
	}
	for _, u := range failed.Segments {
		if u.Head > 0 {
			f.c.r.Member.Load().Raise(u.Segment, u.Head)
		}
	}
	f.tell(failed)
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range failed.Segments {
		i, is := slices.BinarySearchFunc(holds, u.Segment, func(h cluster.Hold, s uint32) int {
			return cmp.Compare(h.Segment, s)
		})
		if !is {
			continue
		}
		was := f.failed[u.Segment]
		if was == nil {
			was = &unfencedSegment{since: now}
			f.failed[u.Segment] = was
		}
		was.epoch, was.err = holds[i].Epoch, u.Err
		was.after = now.Add(f.c.r.Jitter.Around(waits.Doubled(fenceBase, fenceMost, was.trials),
			"fence", strconv.Itoa(partition), was.trials))
		was.trials++
	}
}

// tell says once of each reason how many segments it concerns.
func (f *Fencer) tell(failed *ledger.UnfencedError) {
	var foreign, damaged, other int
	for _, u := range failed.Segments {
		switch {
		case errors.Is(u.Err, ledger.ErrFenced):
			foreign++
		case errors.Is(u.Err, row.ErrCorrupt):
			damaged++
		default:
			other++
		}
	}
	log := f.c.r.Log
	if foreign > 0 {
		// Another process has claimed the segments since, which this process's next look shows; or the
		// owner rows' epochs are behind, and the segments are claimed again above the heads'.
		log.Info("segments' ledgers have a later owner already", "segments", foreign, "error", failed)
	}
	if damaged > 0 {
		f.c.r.AlarmOnce("ledger row",
			"the ledger of segments cannot be read; their tasks wait", "segments", damaged, "error", failed)
	}
	if other > 0 {
		log.Warn("segments cannot be fenced yet; their tasks wait", "segments", other, "error", failed)
	}
}

// alarm logs segments that have been held for long and cannot be fenced. The lock is held.
func (f *Fencer) alarm(now time.Time) {
	long := fenceLong * f.c.r.Queues.Values().Lease
	n, first := f.failing(func(u *unfencedSegment) bool { return now.Sub(u.since) >= long })
	if n > 0 {
		f.c.r.AlarmOnce("unfenced",
			"segments are held and their ledgers have not become this process's for long; their tasks wait",
			"segments", n, "for", now.Sub(first.since).Round(time.Second), "error", first.err)
	}
}

// DamagedSegments is how many held segments cannot be worked on because their rows in the ledger
// are damaged. c may be nil.
func (c *Recorder) DamagedSegments() int {
	if c == nil {
		return 0
	}
	c.Fencer.mu.Lock()
	defer c.Fencer.mu.Unlock()
	return c.damaged
}

// IsStuck reports whether a segment's ledger will hardly be this process's soon: its rows cannot be
// read, or another process has had it for a while.
func (f *Fencer) IsStuck(segment uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.failed[segment]
	return u != nil && u.isStuck(time.Now())
}

func (u *unfencedSegment) isStuck(now time.Time) bool {
	return errors.Is(u.err, row.ErrCorrupt) || errors.Is(u.err, ledger.ErrFenced) &&
		now.Sub(u.since) >= fenceSoon
}

// Trouble says, for people, which segments cannot be fenced; empty: none.
func (f *Fencer) Trouble() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, first := f.failing(func(u *unfencedSegment) bool { return u.trials > 1 })
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("the ledgers of %d segments are not its own yet, so their tasks wait: %v", n,
		first.err)
}

// failing counts the segments whose fencing has failed in some way, and gives the lowest of them.
// The lock is held.
func (f *Fencer) failing(how func(*unfencedSegment) bool) (n int, first *unfencedSegment) {
	var lowest uint32
	for s, u := range f.failed {
		if !how(u) {
			continue
		}
		if n++; first == nil || s < lowest {
			lowest, first = s, u
		}
	}
	return n, first
}
