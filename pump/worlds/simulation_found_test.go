package worlds

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

// What the simulation has found, each as the smallest test that shows it.

// An owner that has nothing to write any more did not learn that its ledger's rows came back as
// they were. It knew all tasks as done, took what a repair put for a duplicate, and the run lacked
// it for ever.
func TestSimulationOfARolledBackLedgerWhoseOwnerIsIdle(t *testing.T) {
	failOnSim(t, playSim(t, keptSimPlan(t, "ledgerRolledBack")))
}

// No distributor had reached an account's queues when another account was drained to them.
// Processors make no queue, so its messages waited for ever.
func TestSimulationOfADrainToQueuesThatWereNeverMade(t *testing.T) {
	failOnSim(t, playSim(t, keptSimPlan(t, "drainedToUnmadeQueues")))
}

func keptSimPlan(t *testing.T, name string) *simPlan {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".plan")
	must(t, err)
	plan, err := parseSimPlan(string(text))
	must(t, err)
	return plan
}

// The world read the rows of runs before it put older ones back, and the reading met the world's
// own faults. So the rest of the plan waited for half a minute. A run that was sealed meanwhile was
// known as open and came back as that, while the leader that knew better died in the same moment:
// the judge waited for a seal that no process could write.
func TestSimulationOfRunsRolledBackWhileTheTableIsInTrouble(t *testing.T) {
	w := playSim(t, keptSimPlan(t, "runsRolledBackInTrouble"))
	failOnSim(t, w)
	if len(w.before) != 1 {
		t.Fatalf("%d runs were noted, want 1", len(w.before))
	}
	for id, r := range w.before {
		if r.State != workload.RunSealed && r.State != workload.RunClosed {
			t.Errorf("run %v was sealed when its row came back, and is known as %s", id, r.State)
		}
	}
}

// An account that is in trouble when a distributor begins may get its poison queue from
// no other message for as long as that goes on: what is to be quarantined came back for ever.
func TestAMissingPoisonQueueIsMadeByWhoNeedsIt(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		poison := workload.PoisonQueue(w.Cfg.Workload)
		must(t, w.Queue("accounta", poison).Drop(t.Context()))
		w.Put("accounta", "work-00", 3, 2)
		testworld.Ran(w, processor.New, "p", pump.HandlerFunc(func(context.Context, *pump.Task) error { return pump.Reject(testworld.ErrFlop) }), processor.Options{UntilIdle: 2 * time.Minute})
		proof.Same(t, w.Count("accounta", poison), 3, "messages in the poison queue")
		proof.Same(t, w.Left(), 0, "messages that are left")
		if w.Logged("the poison queue was missing and has been made") == 0 {
			t.Error("no log says it")
		}
	})
}

// A distributor that is there to replace others ended with an error when the
// control account was dark, as it began, for longer than control tries a request.
func TestAnElectedDistributorWaitsForTheControlAccountAtItsStart(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		dark := w.Sim.Inject(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.FailBefore})
		s := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 100}, distributor.Options{Every: time.Hour})
		time.Sleep(10 * time.Minute)
		dark.Remove()
		time.Sleep(time.Minute)
		proof.Same(t, len(w.Collect()), 100, "tasks were distributed")
		s.Stop()
		proof.Is(t, s.Wait(), nil)
	})
}

// To be told to stop is no error, also while the control account is dark (Distributor.Run).
func TestAnElectedDistributorToldToStopAtItsStartIsNoError(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Sim.Inject(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.FailBefore})
		s := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 100}, distributor.Options{Every: time.Hour})
		time.Sleep(90 * time.Second)
		s.Stop()
		proof.Is(t, s.Wait(), nil)
	})
}

// A processor that waits for the row of an earlier process of its name to be dead ended with an
// error when the control account was dark meanwhile; so did one that was itself declared dead then.
func TestAProcessorThatCannotJoinForLongGoesOnTrying(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("old", 1)
		cfg.Instance = "p"
		old, err := processor.New(cfg, &testworld.Seen{}, processor.Options{})
		must(t, err)
		before := testworld.Start(w.T, old)
		time.Sleep(10 * time.Second)
		w.Sim.Inject(azsim.Rule{Instance: "old", Fault: azsim.FailBefore}) // it dies
		before.Stop()
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(3 * time.Second)
		dark := w.Fault(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
		time.Sleep(5 * time.Minute)
		dark.Remove()
		w.Put("accounta", "work-00", 2, 3)
		time.Sleep(2 * time.Minute)
		p.End()
		<-before.Done
		h.Expect(t, 6, 6)
	})
}

func TestADeathDeclaredWhileJoiningIsNotTheEnd(t *testing.T) {
	for err, later := range map[error]bool{
		cluster.ErrEvicted:                                                  true,
		context.DeadlineExceeded:                                            true,
		&storage.Error{Code: storage.MaybeDone}:                             true,
		&storage.Error{Code: storage.Throttled}:                             true,
		&storage.Error{Code: storage.Auth}:                                  false,
		cluster.ErrNameTaken:                                                false,
		&storage.Error{Code: storage.Missing, Service: "AccountIsDisabled"}: true,
	} {
		proof.Same(t, member.MayJoinLater(fmt.Errorf("joining: %w", err), failure.Command), later,
			err, "may be better later")
	}
}

// simBacklog is of a live source that is distributed every half minute, and of one key: nine runs
// are one handler's to do, and most of that is left when nothing goes wrong any more.
const simBacklog = `
seed 1
queues 5
tasks 60
keys 1
pace 5s
live yes
handlers 1
work 12s
trouble 0
limit 40

100ms start d1
200ms start p1
5m start p2
`

// The judge gave a world the time for one distribution of its source, however often a live source
// had been distributed: a processor that did one task after the other was stuck to it. While the
// judge waited it also peeked at the messages that were left, every second or two, and that took
// half of what a queue with a limit of 40 messages a second lets through.
func TestTheJudgeWaitsForAllRunsOfALiveSourceAndTakesNothingOfAQueuesLimit(t *testing.T) {
	proof.Only(t)
	plan, err := parseSimPlan(simBacklog)
	must(t, err)
	w := playSim(t, plan)
	failOnSim(t, w)
	if w.judge.sealed < 5 {
		t.Errorf("%d runs were sealed, which are too few to have to wait for", w.judge.sealed)
	}
	proof.Same(t, w.sim.Stats().Count("", "PeekMessages"), 0, "looks that queues were charged")
}
