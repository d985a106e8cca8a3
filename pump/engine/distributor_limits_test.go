package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// W5: envelopes are as large as their owner handles within the bound, the owner's own measure first.
func TestEnvelopesFollowTheSlownessOfWhoHandlesThem(t *testing.T) {
	m, err := shardmap.New(64, []shardmap.Shard{{Account: "a", Queue: "q", Weight: 1, State: shardmap.Active}})
	if err != nil {
		t.Fatal(err)
	}
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
		{"nobody there", view(), nil},
		{"nothing measured", owned(view(0, 0)), nil},
		{"fast tasks", owned(view(1e-9)), []int{1<<31 - 1}},
		{"a minute each, one at a time", owned(view(60)), []int{1}},
		{"owners of their own speed, one of them new", owned(view(0.01, 0.5, 0)), []int{500, 10, 10}},
		{"whoever comes", view(0.01, 0.5), []int{10, 10}},
	} {
		got := envelopeLimits(c.view)
		if c.want == nil && got != nil || c.want != nil && (len(got) != 64 || !slices.Equal(got[:len(c.want)], c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// W5: a processor that handles 20 tasks a second gets envelopes of 100, which take envelopeFor; a fast one gets full ones.
func TestThePackerFollowsTheMeasuredTimeOfHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  int64 // envelopes of the run of 1,000 tasks
	}{"slow": {200 * time.Millisecond, 10}, "fast": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, c.takes) }}
				p := w.start(w.processor(h, ProcessorOptions{Concurrency: 4}))
				w.spread(1, 20)
				time.Sleep(20 * time.Second) // measured, and said in a beat
				s := &listSource{print: "a", n: 1000, pace: 10 * time.Millisecond, key: func(int) string { return "one" }}
				summary, err := w.distributor("d", s, DistributorOptions{}).Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				// The handlers' time is measured to a few thousandths, so the last envelope may hold little.
				if n := summary.Envelopes; n < c.want || n > c.want+1 {
					t.Errorf("%d envelopes of 1,000 tasks, want %d", n, c.want)
				}
				p.end()
			})
		})
	}
}
