package base

import (
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/shardmap"
)

// Assignment is what one process knows of the cluster at one moment: which queues it
// polls, and what becomes of messages that are not its own. It never changes
// after it was made.
type Assignment struct {
	instance  string
	View      *cluster.View
	Of        *shardmap.Map
	Shards    []*queues.Queue // of the map, in its order; nil without credentials here
	index     map[*queues.Queue]int
	homes     []bool // by shard: of a segment that is held here
	Spills    []spill
	sweeper   []bool // by shard
	onlySwept []bool // by shard: this process sweeps it, and no segment has its home there
	owners    []int  // by shard: processors that own a segment whose home it is
	Readers   []int  // by shard: those, and the owners of segments that a mark says to look for there
	// Pairs is the number, in the whole cluster, of pairs of a queue and a processor that polls it.
	Pairs int
	held  int // segments
	// Outside: the view does not show this process among those that take segments, because it has just
	// passed its gate.
	Outside bool
	// Lacking is how many segments are planned for this process and not held yet, and claimable how
	// many of them may be held soon, because no other member holds them.
	Lacking, claimable int
	// Awaited are members that own segments planned for this process and have missed two beats: if
	// they are dead, the segments are free when the leases have run out. They own late of the
	// segments.
	Awaited []string
	Late    int
}

// spill is a mark that concerns this process: messages of a segment that it
// holds may be in another queue than its home (P6.3).
type spill struct {
	Segment uint32
	Choice  int // 1 or 2
	Shard   int // of the map
}

// Assign reads a view. held says which segments this process holds, and stuck which others will
// hardly be its own soon, because their ledgers cannot be read. open gives the queue of a shard,
// nil if this process cannot reach it.
func Assign(
	instance string, v *cluster.View, held, stuck func(uint32) bool,
	open func(shardmap.Shard) *queues.Queue,
) *Assignment {
	m := v.Workload.Map
	s := &Assignment{
		instance: instance, View: v, Of: m,
		Shards: make([]*queues.Queue, len(m.Shards)), index: make(map[*queues.Queue]int, len(m.Shards)),
		homes: make([]bool, len(m.Shards)), sweeper: make([]bool, len(m.Shards)),
		onlySwept: make([]bool, len(m.Shards)), owners: make([]int, len(m.Shards)),
		Readers: make([]int, len(m.Shards)),
	}
	for i, sh := range m.Shards {
		if q := open(sh); q != nil {
			s.Shards[i] = q
			s.index[q] = i
		}
	}
	if v.Workload.Shared {
		s.Pairs = len(m.Shards) * max(len(v.Processors()), 1)
		return s
	}
	s.readSegments(held, stuck)
	s.readOwners()
	loads := m.Loads()
	for i := range m.Shards {
		s.sweeper[i] = v.Sweeper(i) == instance
		s.onlySwept[i] = s.sweeper[i] && loads[i] == 0 && s.claimable == 0
	}
	return s
}

// readSegments finds what is held here, what is lacking, and which marks matter.
func (s *Assignment) readSegments(held, stuck func(uint32) bool) {
	rank := s.View.Rank(s.instance)
	s.Outside = rank < 0
	plan, newest := s.View.Plan(), s.View.Stamp()
	defer func() { slices.Sort(s.Awaited) }()
	for n := range uint32(s.Of.Segments) {
		if !held(n) {
			if rank >= 0 && plan[n] == rank {
				s.Lacking++
				switch owner, live := s.View.OwnerOf(n); {
				case !live || owner.Instance == s.instance:
					if !stuck(n) {
						s.claimable++
					}
				case owner.Every > 0 && newest.Sub(owner.Beat) > 2*owner.Every:
					s.Late++
					if !slices.Contains(s.Awaited, owner.Instance) {
						s.Awaited = append(s.Awaited, owner.Instance)
					}
				}
			}
			continue
		}
		s.held++
		s.homes[s.Of.Home(n)] = true
		if s.View.Spills == nil || s.View.Spills[n] == 0 {
			continue
		}
		for choice, i := range s.Of.Choices(n) {
			if s.marked(n, choice) {
				s.Spills = append(s.Spills, spill{n, choice, i})
			}
		}
	}
}

// Awaits says, for people, whose leases this process waits for; empty: none.
func (s *Assignment) Awaits() string {
	if len(s.Awaited) == 0 {
		return ""
	}
	return fmt.Sprintf("it waits for the lease of %s to run out, who own %d of its "+
		"segments and have missed beats",
		setup.SomeOf(s.Awaited, 4), s.Late)
}

// marked reports whether messages of a segment may be in its choice-th queue
// although that is not its home.
func (s *Assignment) marked(segment uint32, choice int) bool {
	return choice > 0 && s.View.Spills != nil && s.View.Spills[segment]&(1<<choice) != 0
}

// readOwners counts the owners of each queue.
func (s *Assignment) readOwners() {
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
	for n := range uint32(s.Of.Segments) {
		owner, live := s.View.OwnerOf(n)
		if !live {
			continue
		}
		home := pair{s.Of.Home(n), owner.Instance}
		count(owns, s.owners, home)
		count(reads, s.Readers, home)
		if s.View.Spills == nil || s.View.Spills[n] == 0 {
			continue
		}
		for choice, i := range s.Of.Choices(n) {
			if s.marked(n, choice) {
				count(reads, s.Readers, pair{i, owner.Instance})
			}
		}
	}
	for _, n := range s.owners {
		s.Pairs += max(n, 1) // its sweeper, where no member owns anything
	}
}

// Polled lists the queues that this process polls, in the order of the map: in a shared workload
// all, otherwise the homes and the marked choices of what it holds, and the queues that it keeps
// though they are no longer homes. (A home is kept by an owner; a home without owners waits for
// one.) The last come only when nothing is left to claim: their messages may become its own in a
// moment. *A segment with a damaged ledger was left to claim for ever, and no queue of other
// programs and none that drained was read.*
func (s *Assignment) Polled() (out []*queues.Queue) {
	for i, wanted := range s.wanted() {
		if q := s.Shards[i]; wanted && q != nil {
			out = append(out, q)
		}
	}
	return out
}

// Foreign reports whether other programs put into a queue.
func (s *Assignment) Foreign(q *queues.Queue) bool {
	i, ok := s.index[q]
	return ok && s.Of.Shards[i].State == shardmap.Foreign
}

// UnreadForeign is how long messages may wait unread in the foreign queue that is read least far,
// as the queues' readers say. It is unknown while one of these queues has no reader that has said
// so of exactly these queues.
func (s *Assignment) UnreadForeign() (longest time.Duration, known bool) {
	reads := map[string]uint64{} // by reader, as its beat should say it
	for i, sh := range s.Of.Shards {
		if sh.State == shardmap.Foreign {
			reads[s.View.Sweeper(i)] += xxhash.Sum64String(sh.Account + "/" + sh.Queue)
		}
	}
	for _, m := range s.View.Members {
		if polled, is := reads[m.Instance]; is && m.UnreadForeign > 0 && m.ForeignPolled == polled {
			delete(reads, m.Instance)
			longest = max(longest, time.Duration(m.UnreadForeign*float64(time.Second)))
		}
	}
	return longest + queues.Elapsed(s.View.Read), len(reads) == 0
}

// Unreadable names the queues that this process should poll but has no credentials for.
func (s *Assignment) Unreadable() (names []string) {
	for i, wanted := range s.wanted() {
		if wanted && s.Shards[i] == nil {
			names = append(names, s.Of.Shards[i].Account+"/"+s.Of.Shards[i].Queue)
		}
	}
	return names
}

func (s *Assignment) wanted() []bool {
	polls := make([]bool, len(s.Shards))
	for i := range s.Shards {
		polls[i] = s.View.Workload.Shared || s.homes[i] || s.onlySwept[i]
	}
	for _, sp := range s.Spills {
		polls[sp.Shard] = true
	}
	return polls
}

// Stray gives the queue that a message should be in, if that is not where it was found and this
// process has to bring it there: the process keeps the queue, and no mark lets the message be in it
// (P6.4). With an old map messages are left where they are: the home may have been removed since,
// and no process would read it (P6.5).
func (s *Assignment) Stray(at *queues.Queue, segment uint32) *queues.Queue {
	i, ok := s.index[at]
	home := s.Of.Home(segment)
	if !ok || i == home || !s.sweeper[i] || !queues.Young(s.View.Read) {
		return nil
	}
	if s.View.Spills != nil && s.View.Spills[segment] != 0 {
		for choice, c := range s.Of.Choices(segment) {
			if c == i && s.marked(segment, choice) {
				return nil
			}
		}
	}
	return s.Shards[home]
}

// Uses reports whether the workload uses an account, as far as is known.
func (s *Assignment) Uses(a *queues.Account) bool {
	return s == nil || slices.ContainsFunc(s.Of.Shards, func(sh shardmap.Shard) bool {
		return sh.Account == a.Name
	})
}

// Releasing what is others' (P7).
const (
	// passOwners times the number of a queue's owners is how often a message is put back at once. A
	// delivery meets the right one of n owners with a chance of one in n. So after 8n deliveries one
	// message in 3,000 has not met its owner yet. After 2n it is one in seven, and such a message is
	// then hidden for seconds between two tries: of 2,000 messages of 16 healthy owners some waited
	// for 19 minutes. With 8n all take one minute, by as many deliveries. A silent owner's messages do
	// not keep the others from their work for longer.
	passOwners = 8
	// passLeast and passMost bound the delay that grows from then on. For that long the messages of an
	// owner that does not take them are out of the others' way.
	passLeast  = time.Second
	PassOnMost = 15 * time.Second
)

// PassOn is how long to hide a message, after so many deliveries, if its segment has another owner
// or none. The service counts whole seconds.
func (s *Assignment) PassOn(
	j waits.Jitter, at *queues.Queue, segment uint32, id string, deliveries int64,
	lease time.Duration,
) time.Duration {
	deliveries = max(deliveries, 1)
	_, live := s.View.OwnerOf(segment)
	// Without an owner: for moments in good times, and after a crash for a lease.
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
		limit, n = PassOnMost, (deliveries-1)/owners-passOwners
	}
	d := waits.Doubled(passLeast, max(limit, passLeast), uint64(n))
	return d/2 + time.Duration(j.Float("pass", id, uint64(deliveries))*float64(d/2))
}
