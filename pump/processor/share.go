package processor

import (
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/locate"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/shardmap"
)

// share is what one process knows of the cluster at one moment: which queues it
// polls, and what becomes of messages that are not its own. It never changes
// after it was made.
type share struct {
	instance string
	view     *cluster.View
	of       *shardmap.Map
	shards   []*queues.Queue // of the map, in its order; nil where there are no credentials here
	index    map[*queues.Queue]int
	homes    []bool // by shard: of a segment that is held here
	spills   []spill
	keeps    []bool // by shard
	sweeps   []bool // by shard: it is kept, and nobody's home
	owners   []int  // by shard: processors that own a segment whose home it is
	readers  []int  // by shard: those, and the owners of segments that a mark says to look for there
	// pairs is how many pairs of a queue and a processor that polls it there are
	// in the whole cluster.
	pairs int
	held  int // segments
	// outside: the view does not show it as one of those who take segments; it has just
	// passed its gate.
	outside bool
	// lacking is how many segments are planned for this process and not held yet, and
	// claimable how many of them nobody else holds.
	lacking, claimable int
	// awaited are members that own segments planned for this process and have missed two
	// beats: if they are dead, those are free when their leases have run out. They own
	// late of the segments.
	awaited []string
	late    int
}

// spill is a mark that concerns this process: messages of a segment that it
// holds may be in another queue than its home (P6.3).
type spill struct {
	segment uint32
	choice  int // 1 or 2
	shard   int // of the map
}

// newShare reads a view. held says which segments this process holds; open gives
// the queue of a shard, nil if it cannot be reached from here.
func newShare(instance string, v *cluster.View, held func(uint32) bool, open func(shardmap.Shard) *queues.Queue) *share {
	m := v.Workload.Map
	s := &share{
		instance: instance, view: v, of: m,
		shards: make([]*queues.Queue, len(m.Shards)), index: make(map[*queues.Queue]int, len(m.Shards)),
		homes: make([]bool, len(m.Shards)), keeps: make([]bool, len(m.Shards)), sweeps: make([]bool, len(m.Shards)), owners: make([]int, len(m.Shards)), readers: make([]int, len(m.Shards)),
	}
	for i, sh := range m.Shards {
		if q := open(sh); q != nil {
			s.shards[i] = q
			s.index[q] = i
		}
	}
	if v.Workload.Shared {
		s.pairs = len(m.Shards) * max(len(v.Processors()), 1)
		return s
	}
	s.readSegments(held)
	s.readOwners()
	loads := m.Loads()
	for i := range m.Shards {
		s.keeps[i] = v.Keeper(i) == instance
		s.sweeps[i] = s.keeps[i] && loads[i] == 0 && s.claimable == 0
	}
	return s
}

// readSegments finds what is held here, what is lacking, and which marks matter.
func (s *share) readSegments(held func(uint32) bool) {
	rank := s.view.Rank(s.instance)
	s.outside = rank < 0
	plan, newest := s.view.Plan(), s.view.Stamp()
	defer func() { slices.Sort(s.awaited) }()
	for n := range uint32(s.of.Segments) {
		if !held(n) {
			if rank >= 0 && plan[n] == rank {
				s.lacking++
				switch owner, live := s.view.OwnerOf(n); {
				case !live || owner.Instance == s.instance:
					s.claimable++
				case owner.Every > 0 && newest.Sub(owner.Beat) > 2*owner.Every:
					s.late++
					if !slices.Contains(s.awaited, owner.Instance) {
						s.awaited = append(s.awaited, owner.Instance)
					}
				}
			}
			continue
		}
		s.held++
		s.homes[s.of.Home(n)] = true
		if s.view.Spills == nil || s.view.Spills[n] == 0 {
			continue
		}
		for choice, i := range s.of.Choices(n) {
			if s.marked(n, choice) {
				s.spills = append(s.spills, spill{n, choice, i})
			}
		}
	}
}

// awaits says, for people, whose leases this process waits for; empty: nobody's.
func (s *share) awaits() string {
	if len(s.awaited) == 0 {
		return ""
	}
	return fmt.Sprintf("it waits for the lease of %s to run out, who own %d of its segments and have missed beats", locate.SomeOf(s.awaited, 4), s.late)
}

// marked reports whether messages of a segment may be in its choice-th queue
// although that is not its home.
func (s *share) marked(segment uint32, choice int) bool {
	return choice > 0 && s.view.Spills != nil && s.view.Spills[segment]&(1<<choice) != 0
}

// readOwners counts who shares each queue.
func (s *share) readOwners() {
	type pair struct {
		shard int
		owner string
	}
	owns, reads := map[pair]bool{}, map[pair]bool{}
	count := func(seen map[pair]bool, of []int, p pair) {
		if !seen[p] {
			seen[p] = true
			of[p.shard]++
		}
	}
	for n := range uint32(s.of.Segments) {
		owner, live := s.view.OwnerOf(n)
		if !live {
			continue
		}
		home := pair{s.of.Home(n), owner.Instance}
		count(owns, s.owners, home)
		count(reads, s.readers, home)
		if s.view.Spills == nil || s.view.Spills[n] == 0 {
			continue
		}
		for choice, i := range s.of.Choices(n) {
			if s.marked(n, choice) {
				count(reads, s.readers, pair{i, owner.Instance})
			}
		}
	}
	for _, n := range s.owners {
		s.pairs += max(n, 1) // its keeper, where nobody owns anything
	}
}

// polled lists the queues that this process polls, in the order of the map: in a
// shared workload all, otherwise the homes and the marked choices of what it holds, and
// the queues that it keeps though they are no homes any more. (Of a home it is an owner
// who keeps it; one without owners waits for them.) The last come only when nothing is
// left to claim: what is in them may become its own in a moment.
func (s *share) polled() (out []*queues.Queue) {
	for i, wanted := range s.wanted() {
		if q := s.shards[i]; wanted && q != nil {
			out = append(out, q)
		}
	}
	return out
}

// unreadable names the queues that this process should poll and has no credentials for.
func (s *share) unreadable() (names []string) {
	for i, wanted := range s.wanted() {
		if wanted && s.shards[i] == nil {
			names = append(names, s.of.Shards[i].Account+"/"+s.of.Shards[i].Queue)
		}
	}
	return names
}

func (s *share) wanted() []bool {
	polls := make([]bool, len(s.shards))
	for i := range s.shards {
		polls[i] = s.view.Workload.Shared || s.homes[i] || s.sweeps[i]
	}
	for _, sp := range s.spills {
		polls[sp.shard] = true
	}
	return polls
}

// stray gives the queue that a message of another's segment should be in, if it is
// not the one where it was found and if this process has to bring it there: it keeps
// the queue, and no mark says that the message may be in it (P6.4). By an old map
// nothing is brought anywhere: what was the home may have been removed since, and
// nobody would read it (P6.5).
func (s *share) stray(at *queues.Queue, segment uint32) *queues.Queue {
	i, ok := s.index[at]
	home := s.of.Home(segment)
	if !ok || i == home || !s.keeps[i] || !queues.Young(s.view.Read) {
		return nil
	}
	if s.view.Spills != nil && s.view.Spills[segment] != 0 {
		for choice, c := range s.of.Choices(segment) {
			if c == i && s.marked(segment, choice) {
				return nil
			}
		}
	}
	return s.shards[home]
}

// uses reports whether the workload uses an account, as far as is known.
func (s *share) uses(a *queues.Account) bool {
	return s == nil || slices.ContainsFunc(s.of.Shards, func(sh shardmap.Shard) bool { return sh.Account == a.Name })
}

// Releasing what is others' (P7).
const (
	// passOwners times the number of a queue's owners is how often a message is put
	// back at once. A delivery is to the right one of n owners by a chance of one in n, so
	// after 8n of them one message in 3,000 has not been there yet; after 2n it is one in
	// seven, and hidden for seconds between two tries it waits for minutes: some of 2,000
	// messages of 16 healthy owners for nineteen, where with 8n all take one, by as many
	// deliveries. The others are kept from their work by a silent owner's no longer.
	passOwners = 8
	// passLeast and passMost bound the delay that grows from then on. The messages
	// of an owner that does not take them are out of the others' way for it.
	passLeast = time.Second
	passMost  = 15 * time.Second
)

// pass is how long to hide a message of a segment that others own, or nobody,
// after so many deliveries. The service counts whole seconds.
func (s *share) pass(j backoff.Jitter, at *queues.Queue, segment uint32, id string, deliveries int64, lease time.Duration) time.Duration {
	deliveries = max(deliveries, 1)
	_, live := s.view.OwnerOf(segment)
	// Nobody's: for moments in good times, and after a crash for a lease.
	limit, n := lease/2, deliveries-1
	if live { // or this process, which hands it over
		owners := int64(1)
		if i, ok := s.index[at]; ok {
			owners = int64(max(s.owners[i], 1))
		}
		if deliveries <= passOwners*owners {
			return 0
		}
		// It doubles whenever each owner might have had it once more.
		limit, n = passMost, (deliveries-1)/owners-passOwners
	}
	d := backoff.Doubled(passLeast, max(limit, passLeast), uint64(n))
	return d/2 + time.Duration(j.Float("pass", id, uint64(deliveries))*float64(d/2))
}
