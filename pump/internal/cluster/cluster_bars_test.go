package cluster

import (
	"fmt"
	"testing"

	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// A processor is planned no segment whose home, or a choice that is marked, is in an account that it
// alone cannot read. A choice that is not marked bars it from nothing.
func TestAMarkedChoiceBarsAsAHomeDoes(t *testing.T) {
	var shards []shardmap.Shard
	for _, account := range []string{"a", "b", "c", "d"} {
		for q := range 2 {
			shards = append(shards, shardmap.Shard{Account: account, Queue: fmt.Sprint("q", q), State: shardmap.Active})
		}
	}
	m, err := shardmap.New(128, shards)
	must(t, err)
	v := &View{Workload: &workload.Workload{Map: m}, Owners: make([]Owner, m.Segments), Spills: make([]uint8, m.Segments)}
	for _, name := range []string{"p", "q", "r"} {
		v.Members = append(v.Members, Member{Instance: name, Role: RoleProcessor, Report: Report{Vouches: []string{"b"}}})
	}
	v.Members[1].Cannot, v.Members[1].Vouches = v.Members[1].Vouches, nil
	for s := range v.Spills {
		v.Spills[s] = []uint8{0, 1 << 1, 1 << 2, 1<<1 | 1<<2}[m.Home(uint32(s))%4] // a queue is planned as a whole
	}
	free, q := 0, v.Rank("q")
	for s, planned := range v.Plan() {
		for choice, shard := range m.Choices(uint32(s)) {
			if planned != q || m.Shards[shard].Account != "b" {
				continue
			}
			if free++; choice == 0 || v.Spills[s]&(1<<choice) != 0 {
				t.Errorf("q gets segment %d, whose choice %d it cannot read", s, choice)
			}
		}
	}
	if free == 0 {
		t.Error("what is not marked bars q too")
	}
}
