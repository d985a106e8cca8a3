package worlds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/sim"
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
		d.Stop()
		e.Stop()
		<-d.Done
		<-e.Done
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
		d.Stop()
		<-d.Done
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
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		s := &testworld.ListSource{Print: "a", N: 2000, Pace: 10 * time.Millisecond}
		refused := azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed", Instance: "d", Skip: 100}
		var other *azsim.Injection // where the tasks would go meanwhile
		for _, refused.Account = range []string{"accountb", "accounta"} {
			other = w.Fault(refused, "PutMessage")
		}
		d := w.startDistributor(w.distributor("d", s, distributor.Options{Pack: 2}))
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

// W5: a processor that handles 20 tasks a second gets envelopes of 100, which take envelopeFor. A
// fast one gets full ones.
func TestThePackerFollowsTheMeasuredTimeOfHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  int64 // envelopes of the run of 1,000 tasks
	}{"slow": {200 * time.Millisecond, 10}, "fast": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, c.takes) }}
				p := w.start(w.processor(h, processor.Options{Concurrency: 4}))
				w.Spread(1, 20)
				time.Sleep(20 * time.Second) // measured, and said in a beat
				s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond, Key: func(int) string { return "one" }}
				summary, err := w.distributor("d", s, distributor.Options{}).Run(t.Context())
				must(t, err)
				// The handlers' time is measured to a few thousandths, so the last envelope may hold little.
				if n := summary.Envelopes; n < c.want || n > c.want+1 {
					t.Errorf("%d envelopes of 1,000 tasks, want %d", n, c.want)
				}
				p.End()
			})
		})
	}
}

// A sender stood still until its run was over. What is sent then is not acknowledged into that run:
// the send fails, and the next one is of another run. While the run is only abandoned it goes on.
func TestASenderThatStoodStillAcknowledgesNothingIntoARunThatIsOver(t *testing.T) {
	proof.Only(t)
	for name, c := range map[string]struct {
		still time.Duration
		over  bool
	}{"until it is over": {90 * time.Minute, true}, "until it is abandoned": {20 * time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				h := &testworld.Seen{}
				p := w.join("p", h, processor.Options{})
				w.Settled(1)
				s := w.sender(distributor.SenderOptions{})
				must(t, s.Send(t.Context(), newTask("before")))
				first := w.newest()
				beats := w.Fault(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.HangBefore})
				time.Sleep(c.still)
				if state := w.RunRow(first).State; c.over != (state == workload.RunEnded) || !c.over && state != workload.RunAbandoned {
					t.Errorf("after %v it is %s", c.still, state)
				}
				beats.Remove()
				sent := 1
				err := s.Send(t.Context(), newTask("after"))
				if (err != nil) != c.over {
					t.Errorf("the first send: %v", err)
				}
				if err == nil {
					sent++
				} else if err = s.Send(t.Context(), newTask("again")); err != nil {
					t.Error(err)
				} else {
					sent++
				}
				time.Sleep(time.Minute)
				if n := h.Tasks(); n != sent || len(w.Poisoned("accounta")) > 0 {
					t.Errorf("%d of %d acknowledged tasks are done, %d are in quarantine", n, sent, len(w.Poisoned("accounta")))
				}
				if c.over == (w.newest() == first) {
					t.Errorf("the run is %v, and was %v", w.newest(), first)
				}
				if _, err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				p.End()
			})
		})
	}
}

// P8.2: a guest knows whom to nudge, also after a processor has taken another's place.
func TestASenderThatIsAGuestNudges(t *testing.T) {
	inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		board := &switchboard{processors: map[string]*processor.Processor{}}
		start := func(name string, h pump.Handler) *started {
			cfg := w.Config(name, 4)
			cfg.Admin, cfg.Nudge = name+":1", board.carry
			p, err := processor.New(cfg, h, processor.Options{})
			must(t, err)
			board.mu.Lock()
			board.processors[name] = p
			board.mu.Unlock()
			return w.start(p)
		}
		h := &testworld.Seen{}
		p := start("p", h)
		w.Settled(1)
		cfg := w.Config("d", 4)
		cfg.Nudge, sim.In(&cfg).Lanes = board.carry, 1
		s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
		must(t, err)
		slow := 0
		send := func(n int) {
			for i := range n {
				time.Sleep(5 * time.Minute) // until the queues are asked least
				before, began := h.Deliveries(), time.Now()
				must(t, s.Send(t.Context(), newTask(fmt.Sprint(i))))
				for h.Deliveries() == before {
					time.Sleep(time.Millisecond)
				}
				if time.Since(began) > 200*time.Millisecond {
					slow++
				}
			}
		}
		send(5)
		if slow > 0 {
			t.Errorf("%d of 5 tasks were begun late", slow)
		}
		q := start("q", h)
		p.End()
		send(5)
		if slow > 2 { // the first after the change, whose nudge goes to who left
			t.Errorf("%d of 5 tasks were begun late after the change", slow)
		}
		must(t, proof.ErrOf(s.Close(t.Context())))
		q.End()
	})
}
