package worlds

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/shardmap"
)

// rowsOf are a partition of the control table as it is now; Restore brings it back.
func (w *world) rowsOf(partition string) *azsim.Snapshot {
	return w.Sim.Snapshot("accounta", row.TableName, partition)
}

// The rows of a run go, in the middle of it, because the partition comes back as it was before.
func TestTheRowsOfARunThatAreGoneAreMadeAgainLoudly(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.join("p", h, processor.Options{})
		w.Settled(1)
		before := w.rowsOf("work.runs")
		s := &testworld.ListSource{Print: "a", N: 6000, Pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, distributor.Options{SealAge: time.Second}))
		time.Sleep(20 * time.Second)
		before.Restore()
		late := w.join("late", h, processor.Options{}) // who knows nothing of the run
		must(t, d.wait())
		if run := w.RunRow(d.summary.Run); run.State != workload.RunSealed || run.Tasks != 6000 {
			t.Errorf("%+v", run)
		}
		time.Sleep(time.Minute)
		quarantined := 0
		for _, account := range []string{"accounta", "accountb"} {
			for range w.Poisoned(account) {
				quarantined++
			}
		}
		if w.Logged("the row of the run was gone, and is made again") != 1 {
			t.Error("it is not said once that the row was gone")
		}
		if n := h.Deliveries(); n != 6000 && quarantined == 0 || n > 6000 {
			t.Errorf("%d tasks were handled, %d messages are in quarantine", n, quarantined)
		}
		if n := w.Left(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
		windowHit(t, w.Logged("the row of the run was gone, and is made again"))
		late.End()
		p.End()
	})
}

// They go, and then the leader does: the next one can neither find nor continue the run.
func TestARunWhoseRowIsGoneWhenItsLeaderDiesIsBrokenAndAnotherBegins(t *testing.T) {
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.join("p", h, processor.Options{})
		w.Settled(1)
		before := w.rowsOf("work.runs")
		s := &testworld.ListSource{Print: "a", N: 3000, Pace: 10 * time.Millisecond}
		o := distributor.Options{SealAge: time.Second, Every: time.Hour}
		d := w.startDistributor(w.distributor("d", s, o))
		time.Sleep(20 * time.Second)
		lost := w.elected()[0].ID
		w.Sim.Inject(azsim.Rule{Instance: "d", Fault: azsim.FailBefore})
		time.Sleep(time.Second)
		before.Restore()
		e := w.startDistributor(w.distributor("e", s, o))
		time.Sleep(3 * time.Minute)
		if run := w.RunRow(lost); run.State != workload.RunBroken || !strings.Contains(run.Note, "its row was gone") {
			t.Errorf("%+v", run)
		}
		if w.Logged("a run cannot be continued") == 0 {
			t.Error("nothing is said of it")
		}
		sealed := 0
		for _, run := range w.elected() {
			if run.State != workload.RunBroken && run.Tasks == 3000 {
				sealed++
			}
		}
		if n := h.Deliveries(); sealed != 1 || n < 3000 || w.Left() != 0 {
			t.Errorf("%d runs are whole, %d tasks were handled, %d messages are left", sealed, n, w.Left())
		}
		d.cancel()
		e.cancel()
		<-d.done
		<-e.done
		p.End()
	})
}

// The rows come back as they were before the run was sealed, or closed.
func TestARunThatIsOpenAgainIsSealedAndClosedAgain(t *testing.T) {
	proof.Only(t)
	inOnceWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.join("p", h, processor.Options{})
		w.Settled(1)
		s := &testworld.ListSource{Print: "a", N: 3000, Pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, distributor.Options{SealAge: time.Second, Every: time.Hour}))
		time.Sleep(20 * time.Second)
		before := w.rowsOf("work.runs")
		id := w.elected()[0].ID
		time.Sleep(75 * time.Second)
		if run := w.RunRow(id); run.State != workload.RunClosed {
			t.Fatalf("%+v", run)
		}
		time.Sleep(90 * time.Second)
		before.Restore()
		if run := w.RunRow(id); run.State != workload.RunOpen {
			t.Fatalf("%+v", run)
		}
		time.Sleep(2 * time.Minute)
		if run := w.RunRow(id); run.State != workload.RunClosed || run.Tasks != 3000 {
			t.Errorf("%+v", run)
		}
		if w.Logged("the row of the run had come back as it was before the run's end") != 1 {
			t.Error("it is not said once")
		}
		if n := h.Deliveries(); n != 3000 {
			t.Errorf("%d of 3000 tasks were handled", n)
		}
		d.cancel()
		<-d.done
		p.End()
	})
}

// The workload's row comes back with an older map. A process that has read the newer one puts it
// back, and processors read the messages in the queues that only the newer one has.
func TestAMapThatWentBackIsPutBackLoudlyByWhoKnowsTheNewer(t *testing.T) {
	proof.Only(t)
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		w.Without("accountc")
		p, q := w.join("p", h, processor.Options{}), w.join("q", h, processor.Options{})
		w.Settled(2)
		s := &testworld.ListSource{Print: "a", N: 12000, Pace: 10 * time.Millisecond}
		d := w.startDistributor(w.distributor("d", s, distributor.Options{SealAge: time.Second}))
		time.Sleep(time.Minute)
		before := w.rowsOf("work")
		w.Change(func(old []shardmap.Shard) []shardmap.Shard { return append(old, setup.Shards(w.Cfg)[4:]...) })
		time.Sleep(40 * time.Second)
		before.Restore()
		must(t, d.wait())
		time.Sleep(time.Minute)
		f := queues.Open(&w.Cfg)
		v, err := cluster.LoadView(t.Context(), f.Control, w.Cfg.Workload)
		if err != nil || len(v.Workload.Map.Shards) != 6 {
			t.Fatalf("the map has %d queues, %v", len(v.Workload.Map.Shards), err)
		}
		if w.Logged("the shard map had gone back") == 0 {
			t.Error("nothing was said of the map")
		}
		windowHit(t, min(1, w.Logged("the shard map had gone back")))
		if n := h.Deliveries(); n < 12000 || w.Left() != 0 {
			t.Errorf("%d tasks were handled, %d messages are left", n, w.Left())
		}
		p.End()
		q.End()
	})
}
