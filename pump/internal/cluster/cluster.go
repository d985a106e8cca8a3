package cluster

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// View is the cluster as one query saw it. It never changes, so any number of goroutines may use
// it. Callers must not change what its methods and fields give.
type View struct {
	// Workload is as good as [workload.Workload.Refresh] gives it; its age counts from Read.
	Workload *workload.Workload
	// Members are all members in the order of their instances' names.
	Members []Member
	// Owners has an entry for each segment; nil if the workload is shared.
	Owners []Owner
	// Spills has for each segment bit 1 or bit 2 set if its choice 1 or 2 of [shardmap.Map.Choices] is
	// marked (P6.3, docs/protocols.md); nil: no choice is marked.
	Spills []uint8
	// Read is when the query was sent, by the local monotonic clock. For a view from a muster it is an
	// earlier time: when this member sent the newest of its beats that the view shows.
	Read time.Time
	// Damaged says which rows could not be read. The owners of a damaged owner row are those read
	// last, none in a first view; they change only when the row can be read again.
	Damaged []error

	received time.Time // when the answer was here
	// it is made of a muster: the members were read before the owners
	muster   bool
	owners   []row.Version[[]Owner]   // the owner rows; those that are damaged have an unreadable
	bad      []bool                   // by owner row: it is damaged
	present  []row.Version[memberRow] // by member
	spill    row.Version[[]uint8]
	workload row.Version[workload.Row]

	planned, kept           sync.Once
	candidates              []string
	current, plan, sweepers []int
}

// Processors are the instances that take segments, in the order of their
// names: processors that neither wait at a gate nor drain. Their ranks (origins
// S3) are the indices.
func (v *View) Processors() []string {
	v.work()
	return v.candidates
}

// Stamp is a time that the server's clock had reached when the view was read: that of the newest
// beat in it; zero without members.
func (v *View) Stamp() (newest time.Time) {
	for i := range v.Members {
		if at := v.Members[i].Beat; at.After(newest) {
			newest = at
		}
	}
	return newest
}

// ServerTime is the time of the server's clock at a local time, late by a beat at most.
func (v *View) ServerTime(now time.Time) time.Time { return v.Stamp().Add(now.Sub(v.Read)) }

// Rows is about how many rows a look at the cluster costs the table.
func (v *View) Rows() int { return len(v.Members) + ownerRows(len(v.Owners)) + 2 }

// CommonFormat is the newest format of envelopes that all processors read, 0 without processors.
func (v *View) CommonFormat() (reads uint32) {
	for _, m := range v.Members {
		if m.Role == RoleProcessor {
			this := uint32(min(max(m.Reads, 1), codec.Version)) // a row may say anything
			if reads == 0 || this < reads {
				reads = this
			}
		}
	}
	return reads
}

// Rank is the rank of an instance among the Processors, -1 for any other.
func (v *View) Rank(instance string) int {
	if i, ok := slices.BinarySearch(v.Processors(), instance); ok {
		return i
	}
	return -1
}

// OwnerOf gives the live owner of a segment: the member that the entry names, in the same
// incarnation.
func (v *View) OwnerOf(segment uint32) (Member, bool) {
	if int(segment) >= len(v.Owners) {
		return Member{}, false
	}
	if i := v.alive(v.Owners[segment]); i >= 0 {
		return v.Members[i], true
	}
	return Member{}, false
}

// Plan says for each segment which of the Processors should own it, as an
// index, or [shardmap.Unowned]; nil if the workload is shared.
func (v *View) Plan() []int {
	v.work()
	return v.plan
}

// Sweeper is the instance that sweeps the queue of shard i of the map: it looks into
// it for strays (P6.4, docs/protocols.md). Empty: no instance does.
func (v *View) Sweeper(shard int) string {
	v.kept.Do(func() {
		v.work()
		var barred func(instance, shard int) bool
		if cannot := v.unreadable(); cannot != nil {
			barred = func(instance, shard int) bool { return cannot[instance][shard] }
		}
		v.sweepers = v.Workload.Map.Sweepers(v.candidates, v.current, barred)
	})
	if shard < 0 || shard >= len(v.sweepers) || v.sweepers[shard] < 0 {
		return ""
	}
	return v.candidates[v.sweepers[shard]]
}

// Settled reports whether the cluster is as the plan has it: each segment is owned by the member
// that it is planned for, and listed in that member's last beat. It is false while no member takes
// segments, and true for a shared workload.
func (v *View) Settled() bool {
	if v.Owners == nil {
		return true
	}
	v.work()
	for s, owner := range v.Owners {
		i := v.alive(owner)
		if i < 0 || v.plan[s] < 0 || v.candidates[v.plan[s]] != owner.Instance ||
			!v.Members[i].Holds.Has(uint32(s)) {
			return false
		}
	}
	return true
}

// work computes, once, which members take segments, what they own and what is planned.
func (v *View) work() {
	v.planned.Do(func() {
		for _, m := range v.Members {
			if m.takesSegments() {
				v.candidates = append(v.candidates, m.Instance)
			}
		}
		if v.Owners == nil {
			return
		}
		v.current = make([]int, len(v.Owners))
		for s, owner := range v.Owners {
			v.current[s] = shardmap.Unowned
			if i := v.alive(owner); i >= 0 && v.Members[i].takesSegments() {
				v.current[s], _ = slices.BinarySearch(v.candidates, owner.Instance)
			}
		}
		v.plan = v.Workload.Map.Plan(v.candidates, v.current, v.barred())
	})
}

func (m *Member) takesSegments() bool {
	return m.Role == RoleProcessor && m.Waiting == "" && !m.Draining && m.Err == nil
}

// alive is the index of the member that an entry names, -1 if the entry names none or an absent
// incarnation. The incarnation of a member with an unreadable row is not known, so the member keeps
// what is in its name.
func (v *View) alive(owner Owner) int {
	i := v.Index(owner.Instance)
	if i < 0 || v.Members[i].Err == nil && v.Members[i].Incarnation != owner.Incarnation {
		return -1
	}
	return i
}

// Index finds a member by its name; -1: there is none.
func (v *View) Index(instance string) int {
	i, ok := slices.BinarySearchFunc(v.Members, instance, func(m Member, name string) int {
		return strings.Compare(m.Instance, name)
	})
	if !ok || instance == "" {
		return -1
	}
	return i
}

// withOwners gives the view after this member has written these owners into an owner row.
func (v *View) withOwners(index int, now row.Version[[]Owner]) *View {
	next := &View{
		Workload: v.Workload, Members: v.Members, Owners: slices.Clone(v.Owners), Spills: v.Spills,
		Read: v.Read, Damaged: v.Damaged,
		received: v.received, muster: v.muster, owners: slices.Clone(v.owners), bad: v.bad,
		present: v.present, spill: v.spill, workload: v.workload,
	}
	next.owners[index] = now
	copy(next.Owners[ownerRowFirst(index):], now.Value)
	return next
}
