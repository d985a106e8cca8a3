package gates_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

func TestAGateIsOpenedForAllAndToldToThoseWhoWaitAtIt(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Joined("waits-1", cluster.RoleProcessor, cluster.Report{Waiting: "morning", Admin: "10.0.0.1:1"})
		w.Joined("waits-2", cluster.RoleProcessor, cluster.Report{Waiting: "morning", Admin: "10.0.0.2:1"})
		w.Joined("waits-3", cluster.RoleProcessor, cluster.Report{Waiting: "morning"})
		w.Joined("elsewhere", cluster.RoleProcessor, cluster.Report{Waiting: "evening", Admin: "10.0.0.3:1"})
		w.Joined("works", cluster.RoleProcessor, cluster.Report{Admin: "10.0.0.4:1"})
		cfg := w.Operator()
		var mu sync.Mutex
		var told []string
		cfg.Nudge = func(_ context.Context, n pump.Nudge) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, n.Instance+" "+n.Gate)
			if n.Instance == "waits-2" {
				return errors.New("refused")
			}
			return nil
		}
		c, err := gates.Open(t.Context(), cfg, "morning", "me@desk")
		slices.Sort(told)
		if err != nil || c != (gates.Change{Gate: "morning", Open: true, Waiting: 3, Nudged: 1}) || !slices.Equal(told, []string{"waits-1 morning", "waits-2 morning"}) {
			t.Errorf("%+v, %v, told %v", c, err, told)
		}
		told = nil
		if c, err := gates.Close(t.Context(), cfg, "morning", "me@desk"); err != nil || c.Open || c.Waiting != 3 || told != nil {
			t.Errorf("%+v, %v, told %v", c, err, told)
		}
		all, err := gates.List(t.Context(), cfg)
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		evening, morning := all[0], all[1]
		if evening.Name != "evening" || evening.Open || evening.Since != nil || evening.Waiting != 1 {
			t.Errorf("%+v", evening)
		}
		if morning.Name != "morning" || morning.Open || morning.By != "me@desk" || morning.Since == nil || morning.Waiting != 3 {
			t.Errorf("%+v", morning)
		}
		proof.Says(t, proof.ErrOf(gates.Open(t.Context(), cfg, "a/b", "me")), "a/b")
		cfg.Workload = "wrong"
		proof.Is(t, proof.ErrOf(gates.Open(t.Context(), cfg, "morning", "me")), pump.ErrNoWorkload)
	})
}
