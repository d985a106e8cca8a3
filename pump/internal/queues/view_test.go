package queues

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// viewBeat is how often members beat in these tests.
const viewBeat = 5 * time.Second

// crowd is a cluster of processors that own the segments as planned, and of
// distributors, on so many accounts of so many queues. Everybody asks for demand.
func crowd(t testing.TB, processors, distributors, accounts, queues int, demand float64) *cluster.View {
	t.Helper()
	var shards []shardmap.Shard
	var names []string
	demands := map[string]float64{}
	for a := range accounts {
		name := fmt.Sprintf("account%03d", a)
		names = append(names, name)
		demands[name] = demand
		for q := range queues {
			shards = append(shards, shardmap.Shard{Account: name, Queue: fmt.Sprintf("work-%02d", q), Weight: 1})
		}
	}
	m, err := shardmap.New(shardmap.DefaultSegments(len(shards)), shards)
	proof.Must(t, err)
	v := &cluster.View{Workload: &workload.Workload{Name: "work", Map: m}, Read: time.Now()}
	member := func(name string, role cluster.Role) {
		v.Members = append(v.Members, cluster.Member{
			Instance: name, Incarnation: "i", Role: role, Report: cluster.Report{Accounts: names, Demand: maps.Clone(demands)},
		})
	}
	for i := range distributors {
		member(fmt.Sprintf("d%03d", i), cluster.RoleDistributor)
	}
	var instances []string
	for i := range processors {
		instances = append(instances, fmt.Sprintf("p%03d", i))
		member(instances[i], cluster.RoleProcessor)
	}
	v.Owners = make([]cluster.Owner, m.Segments)
	for s, owner := range m.Plan(instances, slices.Repeat([]int{shardmap.Unowned}, m.Segments), nil) {
		if owner >= 0 {
			v.Owners[s] = cluster.Owner{Instance: instances[owner], Incarnation: "i", Epoch: 1}
		}
	}
	return v
}

// sharesIn are the targets of all members that have all seen the view for long enough.
func sharesIn(v *cluster.View, l Limits) map[string]*Targets {
	out := map[string]*Targets{}
	for _, m := range v.Members {
		s := Sharing{Instance: m.Instance, Accounts: m.Accounts, Limits: l, Beat: viewBeat}
		s.Observe(v)
		s.Advance(v.Read.Add(time.Hour))
		out[m.Instance] = s.Targets()
	}
	return out
}

func TestP81AllWhoSeeTheSameViewStayWithinEveryLimit(t *testing.T) {
	l := Limits{Account: 20_000, Queue: 2_000}
	for _, c := range []struct{ processors, distributors, accounts, queues int }{
		{1, 0, 1, 1}, {0, 1, 2, 8}, {1, 1, 2, 8}, {16, 1, 1, 1}, {16, 2, 8, 4}, {40, 3, 2, 3},
	} {
		for _, demand := range []float64{0, 100, 20_000} {
			v := crowd(t, c.processors, c.distributors, c.accounts, c.queues, demand)
			all := sharesIn(v, l)
			accounts, queues := map[string]float64{}, map[string]float64{}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				for a, x := range all[name].Accounts {
					accounts[a] += x
				}
				for q, x := range all[name].queues {
					queues[q] += x
				}
			}
			for a, x := range accounts {
				if math.Abs(x-l.Account) > l.Account*tiny {
					t.Errorf("%+v, demand %v: %v of account %s is shared out", c, demand, x, a)
				}
			}
			for q, x := range queues {
				if math.Abs(x-l.Queue) > l.Queue*tiny {
					t.Errorf("%+v, demand %v: %v of queue %s is shared out", c, demand, x, q)
				}
			}
			if len(accounts) != c.accounts || len(queues) != c.accounts*c.queues {
				t.Errorf("%+v: %d accounts, %d queues", c, len(accounts), len(queues))
			}
		}
	}
}

func TestP81AnOwnerHasNearlyAllOfAQueueThatNobodyPutsInto(t *testing.T) {
	v := crowd(t, 16, 1, 8, 4, 2_000)
	for i := range v.Members {
		if v.Members[i].Role == cluster.RoleDistributor {
			v.Members[i].Demand = nil // not the leader, or between two runs
		}
	}
	all := sharesIn(v, Limits{Account: 20_000, Queue: 2_000})
	for i, s := range v.Workload.Map.Shards {
		name := s.Account + "/" + s.Queue
		best := 0.
		for _, x := range all {
			best = max(best, x.queues[name])
		}
		if best < 2_000*(1-strangerPart) {
			t.Errorf("queue %s, number %d: its owner has %v", name, i, best)
		}
	}
}

// A segment that spills is its owner's business in the other queue too, and a queue
// without segments is its keeper's.
func TestP81AnOwnerHasAShareOfWhereItsSegmentsSpill(t *testing.T) {
	v := crowd(t, 2, 0, 2, 1, 1_000)
	at := func(instance string, shard int) float64 {
		s := v.Workload.Map.Shards[shard]
		return sharesIn(v, Limits{Account: 20_000, Queue: 2_000})[instance].queues[s.Account+"/"+s.Queue]
	}
	owner, _ := v.OwnerOf(0)
	home := v.Workload.Map.Home(0)
	other := 1 - home
	if x := at(owner.Instance, other); x > 2_000*strangerPart {
		t.Fatalf("has %v of a queue without having anything there", x)
	}
	v.Spills = make([]uint8, v.Workload.Map.Segments)
	v.Spills[0] = 1 << 1
	if x := at(owner.Instance, other); x < 2_000*strangerPart {
		t.Errorf("has %v of the queue that its segment spills into", x)
	}
}

func TestP81ASharedWorkloadsProcessorsShareEveryQueue(t *testing.T) {
	v := crowd(t, 4, 0, 1, 2, 0)
	v.Owners = nil
	for name, x := range sharesIn(v, Limits{Account: 20_000, Queue: 2_000}) {
		if x.Accounts["account000"] != 5_000 || math.Abs(x.queues["account000/work-00"]-500) > 1e-6 {
			t.Errorf("%s has %+v", name, x)
		}
	}
}

// What a process does with a view must not hold up the membership's loop.
func BenchmarkSharesOf200ProcessorsOn1000Queues(b *testing.B) {
	v := crowd(b, 200, 2, 125, 8, 5_000)
	accounts := v.Members[0].Accounts
	for b.Loop() {
		s := Sharing{Instance: "p100", Accounts: accounts, Limits: Limits{Account: 20_000, Queue: 2_000}, Beat: viewBeat}
		s.Observe(v)
		if t := s.Targets(); len(t.queues) != 1000 {
			b.Fatal(len(t.queues))
		}
	}
}

// A processor that reads a foreign queue brings its messages into the others' queues. It has a
// share there as one that puts, and all shares of a queue still fit its limit.
func TestWhoReadsAForeignQueueHasAShareOfTheQueuesThatItPutsInto(t *testing.T) {
	l := Limits{Account: 20_000, Queue: 2000}
	before := sharesIn(crowd(t, 4, 0, 2, 4, 5000), l)
	v := crowd(t, 4, 0, 2, 4, 5000)
	foreign := shardmap.Shard{Account: "account000", Queue: "orders", State: shardmap.Foreign}
	m, err := v.Workload.Map.Change(append(slices.Clone(v.Workload.Map.Shards), foreign))
	proof.Must(t, err)
	v.Workload.Map = m
	after := sharesIn(v, l)
	reader := v.Sweeper(len(m.Shards) - 1)
	others := 0
	for i, s := range m.Shards {
		name, sum := s.Account+"/"+s.Queue, 0.0
		for member, targets := range after {
			sum += targets.Queue(name)
			if s.State == shardmap.Foreign && (member == reader) != (targets.Queue(name) > l.Queue/2) {
				t.Errorf("%s has %.0f of %s, which %s reads", member, targets.Queue(name), name, reader)
			}
		}
		if sum > l.Queue*1.001 {
			t.Errorf("all have %.0f of %s", sum, name)
		}
		if v.Sweeper(i) != reader && s.State == shardmap.Active {
			others++
			if was, is := before[reader].Queue(name), after[reader].Queue(name); is < 2*was || is < l.Queue/10 {
				t.Errorf("the reader has %.0f of %s, and had %.0f", is, name, was)
			}
		}
	}
	if others < 4 {
		t.Errorf("only %d queues are others'", others)
	}
}
