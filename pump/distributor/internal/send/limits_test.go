package send

import (
	"slices"
	"testing"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// W5: an envelope holds as much as its owner handles within the bound, by the owner's own measure
// first.
func TestEnvelopesFollowTheSlownessOfWhoHandlesThem(t *testing.T) {
	m, err := shardmap.New(64, []shardmap.Shard{{Account: "a", Queue: "q", Weight: 1, State: shardmap.Active}})
	must(t, err)
	view := func(paces ...float64) *cluster.View {
		v := &cluster.View{Workload: &workload.Workload{Map: m}}
		for i, p := range paces {
			name := string(rune('a' + i))
			v.Members = append(v.Members, cluster.Member{Instance: name, Incarnation: name, Role: cluster.RoleProcessor, Report: cluster.Report{Pace: p}})
		}
		v.Members = append(v.Members, cluster.Member{Instance: "z", Role: cluster.RoleDistributor, Report: cluster.Report{Pace: 1000}})
		return v
	}
	owned := func(v *cluster.View) *cluster.View {
		v.Owners = make([]cluster.Owner, 64)
		for i := range v.Owners {
			name := v.Members[i%(len(v.Members)-1)].Instance
			v.Owners[i] = cluster.Owner{Instance: name, Incarnation: name, Epoch: 1}
		}
		return v
	}
	for _, c := range []struct {
		name string
		view *cluster.View
		want []int // of the first segments; nil: no limits
	}{
		{"no processor", view(), nil},
		{"nothing measured", owned(view(0, 0)), nil},
		{"fast tasks", owned(view(1e-9)), []int{1<<31 - 1}},
		{"a minute each, one at a time", owned(view(60)), []int{1}},
		{"owners of their own speed, one of them new", owned(view(0.01, 0.5, 0)), []int{500, 10, 10}},
		{"some processors", view(0.01, 0.5), []int{10, 10}},
	} {
		got := envelopeLimits(c.view)
		if c.want == nil && got != nil || c.want != nil && (len(got) != 64 || !slices.Equal(got[:len(c.want)], c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
