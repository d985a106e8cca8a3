package closing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// Nor while they wait behind hours of other work.
func TestARunIsNotOverWhileItsTasksWaitInADeepBacklog(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		const before = 150
		account, queue := w.Home(7)
		for n := range uint64(before) {
			w.PutText(account, queue, w.Text(7, nil, n))
		}
		run := w.Lonely(1, 7)
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Minute) }}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Concurrency: 1})
		w.Within(before*time.Minute+time.Hour, "all are handled", func() bool { return h.Tasks() == before+1 })
		proof.Same(t, w.RunRow(run).State, workload.RunAbandoned, "when its task is handled")
		time.Sleep(150 * time.Minute)
		p.End()
		proof.Same(t, len(w.Poisoned("accounta")), 0, "messages in quarantine")
		if row := w.RunRow(run); row.State != workload.RunEnded || !row.Over {
			t.Errorf("two and a half hours later it is %s", row.State)
		}
	})
}

// Nor while its queue does not answer; and that is said.
func TestARunIsNotOverWhileItsQueueIsDark(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		account, queue := w.Home(7)
		dark := w.Fault(azsim.Rule{Account: account, Object: queue, Fault: azsim.Answer}, "GetMessages")
		run := w.Lonely(1, 7)
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(3 * time.Hour)
		proof.Same(t, w.RunRow(run).State, workload.RunAbandoned, "while its queue is dark")
		if w.Logged("queue "+account+"/"+queue+", which p reads") == 0 {
			t.Error("it is not said which queue the run waits for")
		}
		dark.Remove()
		w.Within(time.Minute, "its task is handled", func() bool { return h.Tasks() == 1 })
		time.Sleep(150 * time.Minute) // what was noted of it is looked at after the first quiet hour
		if row := w.RunRow(run); row.State != workload.RunEnded || !row.Over {
			t.Errorf("two and a half hours later it is %s", row.State)
		}
		p.End()
	})
}

// The horizon is set by the queue that is read least far, and segments without a processor that
// says how far it reads.
func TestTheHorizonIsThatOfTheQueueThatIsReadLeastFar(t *testing.T) {
	start := time.Now()
	stamp := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	processor := func(name string, unread float64, holds byte) cluster.Member {
		return cluster.Member{
			Instance: name, Role: cluster.RoleProcessor, Beat: stamp, Dead: time.Minute, Holds: cluster.SegmentSet{holds},
			Report: cluster.Report{Queues: 1, Unread: unread, UnreadQueue: "a/" + name},
		}
	}
	var h closing.Horizons
	look := func(after time.Duration, members ...cluster.Member) (behind time.Duration, by string) {
		found := h.Look(&cluster.View{Members: members, Read: start.Add(after)}, 8)
		if found.At.IsZero() {
			return -1, found.By
		}
		return start.Add(after - closing.HorizonSlack).Sub(found.At), found.By
	}
	one, two := processor("one", 1, 0x0f), processor("two", 30, 0xf0)
	late := processor("two", 30, 0xf0)
	late.Beat = stamp.Add(-10 * time.Second)
	gone := processor("two", 30, 0xf0)
	gone.Beat = stamp.Add(-2 * time.Minute)
	before := processor("two", 0, 0xf0)
	never := processor("two", closing.NeverRead, 0xf0)
	for _, c := range []struct {
		what    string
		after   time.Duration
		members []cluster.Member
		behind  time.Duration
		by      string
	}{
		{"half of the segments were never held", 0, []cluster.Member{one}, -1, "segment 4, which no processor holds"},
		{"all are read", time.Minute, []cluster.Member{one, two}, 30 * time.Second, "queue a/two, which two reads"},
		{"a beat is old", time.Minute, []cluster.Member{one, late}, 40 * time.Second, "queue a/two, which two reads"},
		{"a queue was never read", time.Minute, []cluster.Member{one, never}, -1, "queue a/two, which two reads"},
		{"a processor is dead", time.Hour, []cluster.Member{one, gone}, 59 * time.Minute, "segment 4, which no processor holds"},
		{
			"a processor that has not read yet", 2 * time.Hour,
			[]cluster.Member{one, before},
			119 * time.Minute, "segment 4, which no processor holds",
		},
		{
			"a processor of a newer version", 2 * time.Hour,
			[]cluster.Member{one, {Instance: "two", Role: cluster.RoleProcessor, Err: errors.New("of a newer version")}},
			119 * time.Minute, "segment 4, which no processor of this version holds; two has another",
		},
		{"all are read again", 3 * time.Hour, []cluster.Member{one, two}, 30 * time.Second, "queue a/two, which two reads"},
		{"no processor is there", 4 * time.Hour, nil, time.Hour, "segment 0, which no processor holds"},
	} {
		if behind, by := look(c.after, c.members...); behind != c.behind || by != c.by {
			t.Errorf("%s: %v behind by %q, want %v by %q", c.what, behind, by, c.behind, c.by)
		}
	}
}

// Segments without owners are no processor's, so there the processors that poll count.
func TestTheHorizonOfAWorkloadWithoutOwnersIsThatOfTheProcessorsThatPoll(t *testing.T) {
	start := time.Now()
	stamp := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	var h closing.Horizons
	look := func(after time.Duration, members ...cluster.Member) (behind time.Duration) {
		v := &cluster.View{Members: members, Read: start.Add(after), Workload: &workload.Workload{Shared: true}}
		found := h.Look(v, 8)
		if found.At.IsZero() {
			return -1
		}
		return start.Add(after - closing.HorizonSlack).Sub(found.At)
	}
	polls := cluster.Member{
		Instance: "p", Role: cluster.RoleProcessor, Beat: stamp, Dead: time.Minute,
		Report: cluster.Report{Queues: 2, Unread: 5, UnreadQueue: "a/q"},
	}
	proof.Same(t, look(0), -1, "without a processor it is … behind, and should not be known")
	proof.Same(t, look(time.Minute, polls), 5*time.Second,
		"it is … behind, want what the processor says")
	proof.Same(t, look(time.Hour), 59*time.Minute,
		"since the processor left it is … behind, want 59 minutes")
}

// A run is not over while its tasks wait in queues that no processor reads.
func TestARunIsNotOverWhileNoProcessorRuns(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run := w.Lonely(1, 7)
		c := w.Closer("c")
		c.HorizonBy(func(context.Context) (*cluster.View, error) { return w.View(), nil })
		w.ClosesFor(c, 3*time.Hour)
		row := w.RunRow(run)
		proof.Same(t, row.State, workload.RunAbandoned, "after three hours without a processor", row.Note)
		if w.Logged("do not end yet") == 0 {
			t.Error("nothing is said of what the run waits for")
		}
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Within(time.Minute, "the task is handled", func() bool { return h.Tasks() == 1 })
		w.ClosesFor(c, 30*time.Minute)
		proof.Same(t, w.RunRow(run).State, workload.RunAbandoned, "half an hour after its task")
		w.ClosesFor(c, 2*time.Hour)
		if row := w.RunRow(run); row.State != workload.RunEnded || !row.Over {
			t.Errorf("two and a half hours after its last task was handled it is %s", row.State)
		}
		p.End()
		h.Expect(t, 1, 1)
		proof.Same(t, len(w.Poisoned("accounta")), 0, "messages in quarantine")
	})
}

// Nor while a task of it is hidden because it was put back for hours.
func TestARunIsNotOverWhileItsTaskIsPutBackForHours(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		run := w.Lonely(1, 7)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			if task.Attempt == 1 {
				return pump.RetryAfter(3*time.Hour, testworld.ErrFlop)
			}
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Retry: pump.RetryPolicy{Max: 4 * time.Hour}})
		w.Within(4*time.Hour, "it is handled again", func() bool { return h.Deliveries() == 2 })
		proof.Same(t, w.RunRow(run).State, workload.RunAbandoned, "when its task comes back")
		p.End()
		proof.Same(t, len(w.Poisoned("accounta")), 0, "messages in quarantine")
	})
}

const saidUnproven = "sealed runs have ended though tasks of them are not recorded as done"

// The row of a closed run comes back as it was when the run was sealed, after owners have forgotten
// the run. The run ends by itself, loudly. A copy of its task that comes then is neither done again
// nor lost.
func TestAClosedRunThatIsSealedAgainEndsByItselfLoudly(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		account, queue := w.Home(7)
		h := &testworld.Seen{}
		id := w.OneTask(7)
		sealed := w.Sim.Snapshot("accounta", row.TableName, "work.runs")
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Within(5*time.Minute, "the run is closed", func() bool { return w.RunRow(id).State == workload.RunClosed })
		time.Sleep(2 * time.Minute)
		sealed.Restore()
		proof.Same(t, w.RunRow(id).State, workload.RunSealed, "it came back")
		time.Sleep(30 * time.Minute)
		proof.Same(t, w.RunRow(id).State, workload.RunSealed, "while something of it may still come")
		time.Sleep(2 * time.Hour)
		if row := w.RunRow(id); row.State != workload.RunEnded || !row.Over {
			t.Errorf("two and a half hours later it is %s, over: %v", row.State, row.Over)
		}
		proof.Same(t, w.Logged(saidUnproven), 1, "it is said … times")
		w.PutText(account, queue, copyOf(w, id, 7))
		time.Sleep(time.Minute)
		p.End()
		h.Expect(t, 1, 1)
		_, cause := w.Cause(account)
		proof.Same(t, cause.Reason, codec.ReasonRunEnded, "a copy of its task is in quarantine")
	})
}

// A run that has lost tasks is kept for a repair for as long as rows are kept, and then ends, too.
func TestASealedRunWhoseTasksWereLostWaitsForARepair(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := w.Scribe()
		lost, partly := w.SealedRun(3, 2), w.SealedRun(3, 2)
		s.Record(partly.ID, testworld.Below([]uint64{3, 1}), nil)
		noteHandled(w, partly.ID, 4)
		c := w.Closer("c")
		w.ClosesFor(c, 5*time.Hour)
		states := func(want workload.RunState) {
			t.Helper()
			for _, id := range []pump.RunID{lost.ID, partly.ID} {
				row := w.RunRow(id)
				proof.Same(t, row.State, want, "a run", time.Since(row.Ended), "after it was sealed")
			}
		}
		states(workload.RunSealed)
		time.Sleep(w.Cfg.Retention + 7*24*time.Hour)
		w.ClosesFor(c, 3*time.Hour)
		states(workload.RunEnded)
		if w.Logged(saidUnproven) == 0 {
			t.Error("nothing is said")
		}
	})
}

// A sealed run ends neither while queues are not read nor while one of its tasks is hidden.
func TestASealedRunOfWhichTheLedgerKnowsNothingIsNotOverWhileSomethingMayCome(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		unread, hidden := w.SealedRun(3), w.SealedRun(3)
		noteHandled(w, unread.ID, 3)
		noteHandled(w, hidden.ID, 3)
		c := w.Closer("c")
		c.Far = func(context.Context) (closing.Horizon, error) { return closing.Horizon{}, nil }
		w.ClosesFor(c, 4*time.Hour)
		proof.Same(t, w.RunRow(unread.ID).State, workload.RunSealed, "while no queue is read")
		c = w.Closer("d")
		proof.Must(t, workload.NoteTallies(t.Context(), w.Table(), "work", "q", workload.RunTally{Run: hidden.ID, Tally: workload.Tally{Handled: 2, Hides: 6 * time.Hour}}))
		w.ClosesFor(c, 4*time.Hour)
		if row := w.RunRow(unread.ID); row.State != workload.RunEnded || !row.Over {
			t.Errorf("four hours after its queues were read it is %s", row.State)
		}
		proof.Same(t, w.RunRow(hidden.ID).State, workload.RunSealed, "while one of its tasks is hidden")
		w.ClosesFor(c, 5*time.Hour)
		proof.Same(t, w.RunRow(hidden.ID).State, workload.RunEnded, "hours after its task came back")
	})
}

// copyOf is the text of the first task of a run.
func copyOf(w *testworld.World, run pump.RunID, segment uint32) []byte {
	return w.Text(segment, func(h *codec.Header) { h.Run = run }, 0)
}

// noteHandled notes on the blackboard that a processor has handled tasks of a run.
func noteHandled(w *testworld.World, run pump.RunID, tasks uint64) {
	w.T.Helper()
	proof.Must(w.T, workload.NoteTallies(w.T.Context(), w.Table(), "work", "p", workload.RunTally{Run: run, Tally: workload.Tally{Handled: tasks}}))
}
