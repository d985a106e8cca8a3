package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// What the cluster promises, in times.
const (
	// clusterUnowned is how long a segment may be without anybody who trusts it:
	// two leases and a margin, counted while the control plane answers and a
	// machine is able, from the last thing that happened to a machine.
	clusterUnowned = 2*clusterLease + clusterMargin
	// clusterSettles is how long after the last fault everybody has their share:
	// the dead are noticed (a lease, a margin, two beats), what they had is
	// claimed, and what is not where it should be is handed over, which takes a lease
	// if handlers do not end; that twice, if the plan changed on the way.
	clusterSettles = 4*clusterLease + 2*clusterMargin + 4*clusterBeat
	clusterTick    = 100 * time.Millisecond
)

// clusterJudge is what somebody notes who sees all processes at once. It is
// guarded by world.mu.
type clusterJudge struct {
	epochs  []uint64       // the newest of each segment that was held
	holder  []*clusterLife // who held it by that
	unowned []time.Duration
	owner   []string // who trusts each segment now, or did last
	calm    time.Duration
	wakes   bool // somebody was able at the last look
	longest time.Duration
	told    map[string]bool

	evictions  int
	terms      int
	looks      int
	marks      map[[2]int]bool
	remembered []string
	evicted    int
	settled    []string
	moves      []int
	settling   []time.Duration
}

func (j *clusterJudge) begin(segments int) {
	j.epochs, j.holder = make([]uint64, segments), make([]*clusterLife, segments)
	j.unowned, j.owner = make([]time.Duration, segments), make([]string, segments)
	j.marks, j.told = map[[2]int]bool{}, map[string]bool{}
}

// once says something wrong the first time.
func (w *clusterWorld) once(what, format string, args ...any) {
	if !w.judge.told[what] {
		w.judge.told[what] = true
		w.wrongLocked(format, args...)
	}
}

// watch looks at every tick, whatever else there is to look at.
func (w *clusterWorld) watch() (stop func()) {
	over := make(chan struct{})
	w.lives.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-over:
				return
			case <-time.After(clusterTick + time.Duration(testkit.Hash(w.script.seed, "tick", n)%1000)):
				w.look()
			}
		}
	})
	return func() { close(over) }
}

// look is the instant at which everything is judged: after each tick, before
// each request, when a process says that something changed.
func (w *clusterWorld) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge.looks++
	now := w.now()
	able := time.Now().After(w.darkTo)
	some := false
	trusts, works := make([]*clusterLife, len(w.judge.owner)), make([]*clusterLife, len(w.judge.owner))
	for _, l := range w.all {
		if l.dead || l.presence == nil {
			continue
		}
		some = some || w.ableLocked(l)
		for s := range trusts {
			if !l.presence.Trusted(uint32(s)) {
				continue
			}
			if other := trusts[s]; other != nil {
				w.once(fmt.Sprint("both", other, l), "segment %d is trusted by %s and by %s", s, other, l)
			}
			trusts[s] = l
		}
		w.lookAtHolds(l, works)
	}
	if able = able && some; !able || !w.judge.wakes {
		w.judge.calm = now
	}
	w.judge.wakes = able
	for s, l := range trusts {
		since := max(w.judge.unowned[s], w.judge.calm)
		if able {
			w.judge.longest = max(w.judge.longest, now-since)
		}
		if l != nil {
			w.judge.unowned[s], w.judge.owner[s] = now, l.machine.name
		} else if now-since > w.script.unownedFor() {
			w.once(fmt.Sprint("unowned", w.judge.calm), "segment %d has had no owner for %v, last was %s", s, now-since, w.judge.owner[s])
		}
	}
	w.lookAtLeaders()
}

// ableLocked: nothing keeps the process from taking segments.
func (w *clusterWorld) ableLocked(l *clusterLife) bool {
	if l.dead || l.leaving || l.watches || l.presence == nil {
		return false
	}
	now, m := time.Now(), l.machine
	return now.After(l.pausedTo) && now.After(m.cutOffTo) && now.After(m.slowTo) && now.After(m.loseTo)
}

// lookAtHolds looks at what handlers of a process work under. Unless the workload
// goes on in the dark (P5.6), a hold ends before another's begins; epochs rise
// with each. works collects who works on what.
func (w *clusterWorld) lookAtHolds(l *clusterLife, works []*clusterLife) {
	j := &w.judge
	for s := range works {
		h, ok := l.presence.Hold(uint32(s))
		if ok && l.holds[s].Epoch != h.Epoch {
			l.holds[s] = h
			switch {
			case h.Epoch < j.epochs[s], h.Epoch == j.epochs[s] && j.holder[s] != l:
				w.once(fmt.Sprint("epoch", l), "%s holds segment %d by epoch %d after %s held it by %d", l, s, h.Epoch, j.holder[s], j.epochs[s])
			default:
				j.epochs[s], j.holder[s] = h.Epoch, l
			}
		}
		switch h := l.holds[s]; {
		case h.ctx == nil:
		case h.Context().Err() != nil:
			now, began := time.Now(), l.drained[uint32(s)]
			patient := now.Sub(began) >= l.least
			if now.Before(l.inHand[uint32(s)]) && !patient && errors.Is(context.Cause(h.Context()), ErrHandedOver) {
				w.once(fmt.Sprint("busy", l), "%s gave up segment %d with work in hand, %v after the hand-over began", l, s, now.Sub(began))
			}
			l.holds[s] = Hold{}
		case works[s] != nil && !w.bestEffort():
			w.once(fmt.Sprint("hold", l, works[s]), "handlers of %s and of %s may work on segment %d", works[s], l, s)
		default:
			works[s] = l
		}
	}
}

func (w *clusterWorld) bestEffort() bool { return w.script.seed%3 == 0 }

func (w *clusterWorld) lookAtLeaders() {
	var leader *clusterLife
	for _, l := range w.all {
		if l.dead || l.term == nil || !l.term.Trusted() || l.term.Context().Err() != nil {
			continue
		}
		if leader != nil {
			w.once("leaders", "%s and %s both lead", leader, l)
		}
		leader = l
	}
}

// evicts notes that somebody is about to declare another dead.
func (w *clusterWorld) evicts(l *clusterLife, row string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge.evictions++
	w.noteLocked(l.String(), "evicts "+row)
}

// settle waits until every fault that was ordered is over and then until each
// member has what the plan gives it, for two beats.
func (w *clusterWorld) settle(ctx context.Context) {
	w.mu.Lock()
	over := w.busyTo
	w.mu.Unlock()
	wait(ctx, time.Until(over))
	began, good := time.Now(), time.Now()
	why := "it was not looked at"
	for n := 1; ; n++ {
		wait(ctx, time.Second+time.Duration(testkit.Hash(w.script.seed, "settle", n)%1000))
		if why = w.unsettled(ctx); why != "" {
			good = time.Now()
		}
		if time.Since(good) > 2*clusterBeat {
			break
		}
		if time.Since(began) > clusterSettles+2*clusterBeat {
			w.wrongf("not settled after %v: %s", time.Since(began), why)
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge.settling = append(w.judge.settling, good.Sub(began))
	moved := 0
	for s, owner := range w.judge.owner {
		if w.judge.settled != nil && w.judge.settled[s] != owner {
			moved++
		}
	}
	w.judge.settled = slices.Clone(w.judge.owner)
	w.judge.moves = append(w.judge.moves, moved)
}

// unsettled says what is not yet as it should be.
func (w *clusterWorld) unsettled(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v, err := LoadView(ctx, w.observer, "city")
	if err != nil {
		return err.Error()
	}
	var members, want []string
	for _, m := range v.Members {
		members = append(members, m.Instance)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	processors := 0
	for _, l := range w.all {
		if l.dead {
			continue
		}
		if l.leaving || l.presence == nil {
			return l.String() + " is still on its way"
		}
		want = append(want, l.machine.name)
		if !l.watches {
			processors++
		}
	}
	slices.Sort(want)
	switch {
	case len(want) == 0:
		return "" // no member is there to notice anything
	case !slices.Equal(members, want):
		return fmt.Sprintf("the members are %s and not %s", members, want)
	case processors == 0:
		return ""
	case !v.Settled():
		return "the view is not settled"
	}
	for s, owner := range v.Owners {
		for _, l := range w.all {
			if l.dead {
				continue
			}
			_, holds := l.presence.Hold(uint32(s))
			if trusts := l.presence.Trusted(uint32(s)); trusts != (l.machine.name == owner.Instance) || holds != trusts {
				return fmt.Sprintf("segment %d is owned by %q, and %s trusts: %v, holds: %v", s, owner.Instance, l, trusts, holds)
			}
		}
	}
	for mark, set := range w.judge.marks {
		if got := v.Spills != nil && v.Spills[mark[0]]&(1<<mark[1]) != 0; got != set {
			return fmt.Sprintf("choice %d of segment %d is marked: %v", mark[1], mark[0], got)
		}
	}
	return ""
}

// check judges the shares by P5.5's own words, without asking the planner.
func (w *clusterWorld) check() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	v, err := LoadView(ctx, w.observer, "city")
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.wrongLocked("check: %v", err)
		return
	}
	segments, whole := map[string]int{}, map[string]map[int]bool{}
	for _, l := range w.all {
		if !l.dead && !l.watches {
			segments[l.machine.name], whole[l.machine.name] = 0, map[int]bool{}
		}
	}
	if len(segments) == 0 {
		return
	}
	of := map[int]string{} // who has each queue
	split := false
	for s := range v.Workload.Map.Segments {
		holder := ""
		for _, l := range w.all {
			if !l.dead && l.presence != nil && l.presence.Trusted(uint32(s)) {
				holder = l.machine.name
			}
		}
		if _, ok := segments[holder]; !ok {
			w.wrongLocked("check: segment %d is held by %q", s, holder)
			return
		}
		home := v.Workload.Map.Home(uint32(s))
		split = split || of[home] != "" && of[home] != holder
		of[home] = holder
		segments[holder]++
		whole[holder][home] = true
	}
	if len(of) >= len(segments) {
		queues := map[string]int{}
		for m := range whole {
			queues[m] = len(whole[m])
		}
		if split || !even(queues) {
			w.wrongLocked("check: %d queues for %d members are not shared whole and evenly: %v, segments %v", len(of), len(segments), queues, segments)
		}
	} else if !even(segments) {
		w.wrongLocked("check: segments are not shared evenly: %v", segments)
	}
}

// even: none has more than one more than another.
func even(counts map[string]int) bool {
	least, most := -1, 0
	for _, n := range counts {
		if least < 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	return most-least <= 1
}

func (w *clusterWorld) remember() {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge.remembered, w.judge.evicted = slices.Clone(w.judge.owner), w.judge.evictions
}

func (w *clusterWorld) unmoved() {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	j := &w.judge
	var moved []string
	for s, was := range j.remembered {
		if j.owner[s] != was {
			moved = append(moved, fmt.Sprintf("%d from %s to %s", s, was, j.owner[s]))
		}
	}
	if len(moved) > 0 {
		w.wrongLocked("%d segments have moved, such as %s", len(moved), strings.Join(moved[:min(3, len(moved))], ", "))
	}
	if n := j.evictions - j.evicted; n > 0 {
		w.wrongLocked("%d members were declared dead", n)
	}
}

// unownedFor is clusterUnowned, and what it takes until a member has looked that reads musters:
// what the watchers saw it knows with its next look.
func (s *clusterScript) unownedFor() time.Duration {
	if s.many == 0 {
		return clusterUnowned
	}
	return clusterUnowned + everyLookOfMany*clusterBeat
}
