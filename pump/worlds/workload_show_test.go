package worlds

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/workloads"
	"github.com/queuepump/queuepump/shardmap"
)

func TestAWorkloadIsShownWhateverTheConfigurationSaysOfIt(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		w.joined("p", cluster.RoleProcessor, cluster.Report{})
		w.joined("d", cluster.RoleDistributor, cluster.Report{})
		runs := workload.NewRuns(w.Table(), w.Cfg.Workload)
		for i := range 3 {
			run := workload.Run{ID: pump.RunID{byte(i + 1)}, Mode: "once", Fingerprint: "f", Instance: "d"}
			must(t, runs.Create(t.Context(), run))
			if i > 0 {
				must(t, runs.Break(t.Context(), run.ID, "gone"))
			}
		}
		cfg := w.Operator()
		cfg.Delivery = pump.Once // is not what is pinned
		got, err := workloads.Show(t.Context(), cfg)
		must(t, err)
		if got.Name != "town" || len(got.Incarnation) != 16 || got.Control != "accounta" || got.Delivery != "at-least-once" || got.Segments != 128 || got.MapVersion != 1 ||
			got.Queues != 4 || len(got.Accounts) != 3 || got.Processors != 1 || got.Distributors != 1 || got.Runs["open"] != 1 || got.Runs["broken"] != 2 || !got.AllRuns ||
			len(got.Rivals) != 0 || len(got.Unseen) != 0 || got.Retention != (7*24*time.Hour).Seconds() || got.Shared {
			t.Errorf("%+v", got)
		}
		if got.Made == nil || time.Since(*got.Made) > time.Minute || got.Changed.IsZero() {
			t.Errorf("made %v, changed %v", got.Made, got.Changed)
		}
		cfg.Workload = "village"
		if _, err := workloads.Show(t.Context(), cfg); !errors.Is(err, pump.ErrNoWorkload) {
			t.Error(err)
		}
	})
}

// rival makes a second workload of the same name, with its rows in account i.
func (w *world) rival(i int, shards []shardmap.Shard) {
	w.T.Helper()
	spec := workload.Spec{Name: w.Cfg.Workload, Delivery: string(w.Cfg.Delivery), Shards: shards}
	must(w.T, errOf(workload.Ensure(w.T.Context(), w.Cfg.Accounts[i].Storage.Table(row.TableName), spec)))
}

func TestWorkloadShowNamesASecondWorkloadOverTheSameQueues(t *testing.T) {
	inWorld(t, 4, 2, nil, func(t *testing.T, w *world) {
		all := setup.Shards(w.Cfg)
		w.rival(1, all)
		w.rival(2, []shardmap.Shard{{Account: "other", Queue: all[0].Queue}})
		w.Sim.Inject(azsim.Rule{Account: "accountd", Service: "table", Fault: azsim.FailBefore})
		got, err := workloads.Show(t.Context(), w.Operator())
		must(t, err)
		same := []string{"accounta", "accountb", "accountc", "accountd"}
		if r := got.Rivals; len(r) != 2 || r[0].Account != "accountb" || !slices.Equal(r[0].SameQueues, same) || r[1].Account != "accountc" || len(r[1].SameQueues) != 0 {
			t.Errorf("rivals %+v", r)
		}
		if !slices.Equal(got.Unseen, []string{"accountd"}) {
			t.Errorf("not looked into: %q", got.Unseen)
		}
	})
}
