package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// rowsOf are a partition of the control table as it is now; Restore brings it back.
func (w *world) rowsOf(partition string) *azsim.Snapshot {
	return w.sim.Snapshot("accounta", row.TableName, partition)
}

// The rows of a run go, in the middle of it, because the partition comes back as it was before.
func TestTheRowsOfARunThatAreGoneAreMadeAgainLoudly(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.join("p", h, ProcessorOptions{})
		w.settled(1)
		before := w.rowsOf("work.runs")
		s := &listSource{print: "a", n: 6000, pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{SealAge: time.Second}))
		time.Sleep(20 * time.Second)
		before.Restore()
		late := w.join("late", h, ProcessorOptions{}) // who knows nothing of the run
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		if run := w.runRow(d.summary.Run); run.State != workload.RunSealed || run.Tasks != 6000 {
			t.Errorf("%+v", run)
		}
		time.Sleep(time.Minute)
		quarantined := 0
		for _, account := range []string{"accounta", "accountb"} {
			for range w.poisoned(account) {
				quarantined++
			}
		}
		if w.logged("the row of the run was gone, and is made again") != 1 {
			t.Error("it is not said once that the row was gone")
		}
		if n := h.deliveries(); n != 6000 && quarantined == 0 || n > 6000 {
			t.Errorf("%d tasks were handled, %d messages are in quarantine", n, quarantined)
		}
		if n := w.left(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
		windowHit(t, w.logged("the row of the run was gone, and is made again"))
		late.end()
		p.end()
	})
}

// They go, and then the leader does: the next one can neither find nor continue the run.
func TestARunWhoseRowIsGoneWhenItsLeaderDiesIsBrokenAndAnotherBegins(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.join("p", h, ProcessorOptions{})
		w.settled(1)
		before := w.rowsOf("work.runs")
		s := &listSource{print: "a", n: 3000, pace: 10 * time.Millisecond}
		o := DistributorOptions{SealAge: time.Second, Every: time.Hour}
		d := w.startDistributor(w.distributor("d", s, o))
		time.Sleep(20 * time.Second)
		lost := w.elected()[0].ID
		w.sim.Inject(azsim.Rule{Instance: "d", Fault: azsim.FailBefore})
		time.Sleep(time.Second)
		before.Restore()
		e := w.startDistributor(w.distributor("e", s, o))
		time.Sleep(3 * time.Minute)
		if run := w.runRow(lost); run.State != workload.RunBroken || !strings.Contains(run.Note, "its row was gone") {
			t.Errorf("%+v", run)
		}
		if w.logged("a run cannot be continued") == 0 {
			t.Error("nothing is said of it")
		}
		sealed := 0
		for _, run := range w.elected() {
			if run.State != workload.RunBroken && run.Tasks == 3000 {
				sealed++
			}
		}
		if n := h.deliveries(); sealed != 1 || n < 3000 || w.left() != 0 {
			t.Errorf("%d runs are whole, %d tasks were handled, %d messages are left", sealed, n, w.left())
		}
		d.cancel()
		e.cancel()
		<-d.done
		<-e.done
		p.end()
	})
}

// The rows come back as they were before the run was sealed, or closed.
func TestARunThatIsOpenAgainIsSealedAndClosedAgain(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.join("p", h, ProcessorOptions{})
		w.settled(1)
		s := &listSource{print: "a", n: 3000, pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{SealAge: time.Second, Every: time.Hour}))
		time.Sleep(20 * time.Second)
		before := w.rowsOf("work.runs")
		id := w.elected()[0].ID
		time.Sleep(75 * time.Second)
		if run := w.runRow(id); run.State != workload.RunClosed {
			t.Fatalf("%+v", run)
		}
		time.Sleep(90 * time.Second)
		before.Restore()
		if run := w.runRow(id); run.State != workload.RunOpen {
			t.Fatalf("%+v", run)
		}
		time.Sleep(2 * time.Minute)
		if run := w.runRow(id); run.State != workload.RunClosed || run.Tasks != 3000 {
			t.Errorf("%+v", run)
		}
		if w.logged("the row of the run had come back as it was before the run's end") != 1 {
			t.Error("it is not said once")
		}
		if n := h.deliveries(); n != 3000 {
			t.Errorf("%d of 3000 tasks were handled", n)
		}
		d.cancel()
		<-d.done
		p.end()
	})
}

// The workload's row comes back with an older map: who has read the newer one puts it back, and what is in
// the queues that only that has is read.
func TestAMapThatWentBackIsPutBackLoudlyByWhoKnowsTheNewer(t *testing.T) {
	verify.Only(t)
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		h := &seen{}
		w.without("accountc")
		p, q := w.join("p", h, ProcessorOptions{}), w.join("q", h, ProcessorOptions{})
		w.settled(2)
		s := &listSource{print: "a", n: 12000, pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, DistributorOptions{SealAge: time.Second}))
		time.Sleep(time.Minute)
		before := w.rowsOf("work")
		w.change(func(old []shardmap.Shard) []shardmap.Shard { return append(old, settings.Shards(w.cfg)[4:]...) })
		time.Sleep(40 * time.Second)
		before.Restore()
		if err := d.wait(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f := queues.Open(&w.cfg, row.TableName)
		v, err := cluster.LoadView(t.Context(), f.Control, w.cfg.Workload)
		if err != nil || len(v.Workload.Map.Shards) != 6 {
			t.Fatalf("the map has %d queues, %v", len(v.Workload.Map.Shards), err)
		}
		if w.logged("the shard map had gone back") == 0 {
			t.Error("nothing was said of the map")
		}
		windowHit(t, min(1, w.logged("the shard map had gone back")))
		if n := h.deliveries(); n < 12000 || w.left() != 0 {
			t.Errorf("%d tasks were handled, %d messages are left", n, w.left())
		}
		p.end()
		q.end()
	})
}
