package worlds

import (
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

// The rows of a run go, in the middle of it, because the partition comes back as it was before.
func TestTheRowsOfARunThatAreGoneAreMadeAgainLoudly(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Settled(1)
		before := w.Sim.Snapshot("accounta", row.TableName, "work.runs")
		s := &testworld.ListSource{Print: "a", N: 6000, Pace: 10 * time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second})
		time.Sleep(20 * time.Second)
		before.Restore()
		late := testworld.Begun(w, processor.New, "late", h, processor.Options{}) // who knows nothing of the run
		must(t, d.Wait())
		if run := w.RunRow(d.Summary.Run); run.State != workload.RunSealed || run.Tasks != 6000 {
			t.Errorf("%+v", run)
		}
		time.Sleep(time.Minute)
		quarantined := 0
		for _, account := range []string{"accounta", "accountb"} {
			for range w.Poisoned(account) {
				quarantined++
			}
		}
		proof.Same(t, w.Logged("the row of the run was gone, and is made again"), 1,
			"it is not said once that the row was gone")
		if n := h.Deliveries(); n != 6000 && quarantined == 0 || n > 6000 {
			t.Errorf("%d tasks were handled, %d messages are in quarantine", n, quarantined)
		}
		proof.Same(t, w.Left(), 0, "messages are left")
		windowHit(t, w.Logged("the row of the run was gone, and is made again"))
		late.End()
		p.End()
	})
}

// The workload's row comes back with an older map. A process that has read the newer one puts it
// back, and processors read the messages in the queues that only the newer one has.
func TestAMapThatWentBackIsPutBackLoudlyByWhoKnowsTheNewer(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		w.Without("accountc")
		p, q := testworld.Begun(w, processor.New, "p", h, processor.Options{}), testworld.Begun(w, processor.New, "q", h, processor.Options{})
		w.Settled(2)
		s := &testworld.ListSource{Print: "a", N: 12000, Pace: 10 * time.Millisecond}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second})
		time.Sleep(time.Minute)
		before := w.Sim.Snapshot("accounta", row.TableName, "work")
		w.ChangeMap(func(old []shardmap.Shard) []shardmap.Shard { return append(old, setup.Shards(w.Cfg)[4:]...) })
		time.Sleep(40 * time.Second)
		before.Restore()
		must(t, d.Wait())
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

// A put that has failed for a while goes where its segment's home is now.
func TestATaskStuckAtAQueueThatDrainsMovesToTheNewHome(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 2000, Pace: 10 * time.Millisecond}
		refused := azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed", Instance: "d", Skip: 100}
		var other *azsim.Injection // where the tasks would go meanwhile
		for _, refused.Account = range []string{"accountb", "accounta"} {
			other = w.Fault(refused, "PutMessage")
		}
		d := testworld.Begun(w, distributor.New, "d", s, distributor.Options{Pack: 2})
		time.Sleep(time.Minute)
		select {
		case <-d.Done:
			t.Fatalf("nothing was stuck: %v", d.Err)
		default:
		}
		w.DrainAccount("accountb")
		other.Remove()
		began := time.Now()
		must(t, d.Wait())
		if took := time.Since(began); took > workload.MapMaxAge {
			t.Errorf("took %v after the account drained", took)
		}
		w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, s.N)
		windowHit(t, 1)
	})
}
