package distributor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

func sender(w *testworld.World, o distributor.SenderOptions) *distributor.Sender {
	w.T.Helper()
	s, err := distributor.NewSender(w.Config("d", w.Cfg.Accounts[0].Queues), o)
	proof.Must(w.T, err)
	return s
}

func newTask(text string) source.Record { return source.Record{Key: []byte(text), Body: []byte(text)} }

// runsOf lists the runs, the last first.
func runsOf(w *testworld.World) []workload.Run {
	w.T.Helper()
	f := queues.Open(&w.Cfg)
	runs, err := workload.NewRuns(f.Control, w.Cfg.Workload).List(w.T.Context(), 100)
	proof.Must(w.T, err)
	return runs
}

func TestSendsOfOneMomentShareMessages(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := sender(w, distributor.SenderOptions{})
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				if err := s.Send(t.Context(), source.Record{Key: fmt.Append(nil, i%8), Body: fmt.Append(nil, i)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if summary, err := s.Close(t.Context()); err != nil || summary.Tasks != 1000 || summary.Envelopes > 64 {
			t.Errorf("%d tasks in %d messages, %v", summary.Tasks, summary.Envelopes, err)
		}
	})
}

// Who sends many tasks at once has them in many messages, and waits for all of those.
func TestASendOfManyTasksReturnsWhenTheLastIsAcknowledged(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{Instance: "d", Fault: azsim.AnswerLost, Probability: 0.2}, "PutMessage")
		s := sender(w, distributor.SenderOptions{Pack: 10})
		var tasks []source.Record
		for i := range 2000 {
			tasks = append(tasks, newTask(fmt.Sprint(i)))
		}
		proof.Must(t, s.Send(t.Context(), tasks...))
		if got := w.Collect(); len(got) != 2000 {
			t.Errorf("%d tasks are in the queues", len(got))
		}
		if summary, err := s.Close(t.Context()); err != nil || summary.Resent == 0 {
			t.Errorf("%+v, %v", summary, err)
		}
	})
}

func TestATaskThatIsTooLargeIsTheErrorOfItsSendAndOfNoOther(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := sender(w, distributor.SenderOptions{})
		huge := source.Record{Key: []byte("huge"), Body: testworld.Incompressible(200 << 10)}
		err := s.Send(t.Context(), newTask("a"), huge, newTask("b"))
		proof.Says(t, err, "is too large for a message (bytes: key 4, id 0, body 204800): compressed")
		proof.Must(t, s.Send(t.Context(), newTask("c")))
		summary, err := s.Close(t.Context())
		if got := w.Collect(); err != nil || len(got) != 3 || summary.Tasks != 3 {
			t.Errorf("%d tasks in the queues, %+v, %v", len(got), summary, err)
		}
	})
}

// A dark queue delays who sends to it; others go on.
func TestASlowQueueDelaysOnlyThoseWhoseTasksGoThere(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		s := sender(w, distributor.SenderOptions{})
		// One key for each account's queue.
		home := map[string]string{}
		for i := 0; len(home) < 2; i++ {
			proof.Must(t, s.Send(t.Context(), newTask(fmt.Sprint(i))))
			_, lay := w.Take()
			home[lay[0].Account] = fmt.Sprint(i)
		}
		w.Fault(azsim.Rule{Instance: "d", Account: "accountb", Service: "queue", Fault: azsim.HangBefore})
		slow := make(chan error, 1)
		go func() { slow <- s.Send(t.Context(), newTask(home["accountb"])) }()
		for range 20 {
			began := time.Now()
			proof.Must(t, s.Send(t.Context(), newTask(home["accounta"])))
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Fatalf("a send to another queue took %v", took)
			}
		}
		synctest.Wait()
		select {
		case err := <-slow:
			t.Fatalf("the slow one is over: %v", err)
		default:
		}
		if err := <-slow; err != nil { // it goes to the second choice
			t.Error(err)
		}
		proof.Must(t, proof.ErrOf(s.Close(t.Context())))
	})
}

func TestWhoStopsWaitingForASendStopsNothingElse(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		s := sender(w, distributor.SenderOptions{})
		proof.Must(t, s.Send(t.Context(), newTask("k")))
		w.Collect()
		dark := w.Fault(azsim.Rule{Instance: "d", Service: "queue", Fault: azsim.FailBefore})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		body := []byte("mine")
		err := s.Send(ctx, source.Record{Key: []byte("k"), Body: body})
		copy(body, "gone") // the caller's again
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "handed in") {
			t.Errorf("got %v", err)
		}
		dark.Remove()
		if summary, err := s.Close(t.Context()); err != nil || summary.Tasks != 2 {
			t.Fatalf("%+v, %v", summary, err)
		}
		for _, bodies := range w.Collect() {
			if !bytes.Equal([]byte(bodies[0]), []byte("mine")) {
				t.Errorf("it was sent as %q", bodies)
			}
		}
	})
}

func TestARunThatFailsFailsAllSends(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{Instance: "d", Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"}, "PutMessage")
		s := sender(w, distributor.SenderOptions{})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				proof.Says(t, s.Send(t.Context(), newTask("x")), "no queue takes messages")
			})
		}
		all.Wait()
		if _, err := s.Close(t.Context()); err == nil {
			t.Error("no error")
		}
		if run := runsOf(w)[0]; run.State != workload.RunBroken {
			t.Errorf("the run is %s", run.State)
		}
	})
}

func TestClosingGivesUpWithItsContext(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		s := sender(w, distributor.SenderOptions{})
		proof.Must(t, s.Send(t.Context(), newTask("first")))
		w.Fault(azsim.Rule{Instance: "d", Service: "queue", Fault: azsim.FailBefore})
		sent := make(chan error, 1)
		go func() { sent <- s.Send(t.Context(), newTask("x")) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.Close(ctx)
		if took := time.Since(began); err == nil || took > 30*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		if err := <-sent; err == nil {
			t.Error("what was not acknowledged was sent")
		}
	})
}

func TestASenderThatSentNothingHasNoRun(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		s := sender(w, distributor.SenderOptions{})
		proof.Must(t, s.Send(t.Context()))
		before := w.Sim.Stats().Count("", "")
		if summary, err := s.Close(t.Context()); err != nil || !summary.Run.IsZero() || w.Sim.Stats().Count("", "") != before {
			t.Errorf("%+v, %v", summary, err)
		}
		proof.Is(t, s.Send(t.Context(), newTask("late")), distributor.ErrSenderClosed)
		if _, err := distributor.NewSender(w.Config("x", 1), distributor.SenderOptions{Linger: -1}); err == nil {
			t.Error("a negative time was accepted")
		}
	})
}

// sendsWithin sends one task with a patience.
func sendsWithin(w *testworld.World, s *distributor.Sender, patience time.Duration, text string) error {
	ctx, cancel := context.WithTimeout(w.T.Context(), patience)
	defer cancel()
	return s.Send(ctx, newTask(text))
}

// A sender belongs to a program that runs for months: no trouble of its first minute may last
// longer than it does.
func TestAFirstSendInADarkMinuteWaitsAndTheSenderLives(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		dark := w.Fault(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.FailBefore})
		s := sender(w, distributor.SenderOptions{})
		began := time.Now()
		err := sendsWithin(w, s, 10*time.Second, "first")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "control account accounta") || took > 11*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		patient := make(chan error, 1)
		go func() { patient <- sendsWithin(w, s, time.Hour, "patient") }()
		time.Sleep(3 * time.Minute)
		proof.Is(t, sendsWithin(w, s, time.Second, "again"), context.DeadlineExceeded)
		dark.Remove()
		proof.Is(t, <-patient, nil, "who waited")
		proof.Is(t, sendsWithin(w, s, time.Minute, "after"), nil, "afterwards")
		summary, err := s.Close(t.Context())
		if got := w.Collect(); err != nil || summary.Tasks != 2 || len(got) != 2 {
			t.Errorf("%d tasks in the queues, %+v, %v", len(got), summary, err)
		}
	})
}

func TestARefusedBeginningIsTheErrorOfItsSendAndTheNextTriesAgain(t *testing.T) {
	for _, refused := range []azsim.Rule{
		{Status: 403, Code: "AuthorizationPermissionMismatch"},
		{Status: 400, Code: "InvalidInput"},
	} {
		t.Run(refused.Code, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				refused.Instance, refused.Service, refused.Fault = "d", "table", azsim.Answer
				rule := w.Fault(refused)
				s := sender(w, distributor.SenderOptions{})
				for range 3 {
					began := time.Now()
					err := sendsWithin(w, s, time.Minute, "refused")
					if took := time.Since(began); err == nil || !strings.Contains(err.Error(), refused.Code) || took > 20*time.Second {
						t.Errorf("after %v: %v", took, err)
					}
				}
				rule.Remove()
				proof.Must(t, sendsWithin(w, s, time.Minute, "good"))
				summary, err := s.Close(t.Context())
				if got := w.Collect(); err != nil || summary.Tasks != 1 || len(got) != 1 {
					t.Errorf("%d tasks in the queues, %+v, %v", len(got), summary, err)
				}
			})
		})
	}
}

func TestAfterARunThatFailedTheNextSendBeginsAnother(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := sender(w, distributor.SenderOptions{})
		proof.Must(t, s.Send(t.Context(), newTask("first")))
		refused := w.Fault(azsim.Rule{Instance: "d", Fault: azsim.Answer, Status: 400, Code: "InvalidInput"}, "PutMessage")
		for range 3 {
			proof.Says(t, sendsWithin(w, s, time.Minute, "refused"), "InvalidInput")
		}
		refused.Remove()
		began := time.Now()
		proof.Must(t, sendsWithin(w, s, time.Minute, "second"))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		summary, err := s.Close(t.Context())
		if err != nil || summary.Tasks != 1 {
			t.Errorf("%+v, %v", summary, err)
		}
		states := map[string]int{}
		for _, run := range runsOf(w) {
			if run.Mode == "client" {
				states[string(run.State)]++
			}
		}
		if states[string(workload.RunSealed)] != 1 || states[string(workload.RunBroken)] != 3 || len(w.Collect()) != 2 {
			t.Errorf("%v", states)
		}
	})
}

func TestASenderIsClosedAtOnceWhileItsRunCannotBegin(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.HangBefore})
		s := sender(w, distributor.SenderOptions{})
		sent := make(chan error, 1)
		go func() { sent <- s.Send(t.Context(), newTask("x")) }()
		time.Sleep(20 * time.Second)
		began := time.Now()
		summary, err := s.Close(t.Context())
		if took := time.Since(began); err != nil || !summary.Run.IsZero() || took > 5*time.Second {
			t.Errorf("after %v: %+v, %v", took, summary, err)
		}
		proof.Is(t, <-sent, distributor.ErrSenderClosed)
	})
}

// P1.1: many small sends hold one run open.
func TestManySmallSendsAreOneRunAndReturnWhenTheyAreInTheQueues(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := sender(w, distributor.SenderOptions{})
		before := len(runsOf(w))
		for i := range 20 {
			began := time.Now()
			proof.Must(t, s.Send(t.Context(), newTask(fmt.Sprintf("word %d", i))))
			if n := w.Left(); n != i+1 {
				t.Fatalf("%d messages after %d sends", n, i+1)
			}
			if took := time.Since(began); i > 0 && took > 100*time.Millisecond {
				t.Errorf("send %d took %v", i, took)
			}
			time.Sleep(time.Minute)
		}
		all := runsOf(w)
		if len(all) != before+1 || all[0].State != workload.RunOpen || all[0].Mode != "client" {
			t.Fatalf("%+v", all)
		}
		summary, err := s.Close(t.Context())
		if err != nil || summary.Tasks != 20 || summary.Run != all[0].ID {
			t.Fatalf("%+v, %v", summary, err)
		}
		if row := w.RunRow(summary.Run); row.State != workload.RunSealed || row.Tasks != 20 {
			t.Errorf("%+v", row)
		}
		proof.Is(t, s.Send(t.Context(), newTask("late")), distributor.ErrSenderClosed)
		if again, err := s.Close(t.Context()); err != nil || again.Run != summary.Run {
			t.Errorf("%+v, %v", again, err)
		}
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		g, err := waited(w, summary.Run)
		if err != nil || g.Done != 20 {
			t.Errorf("%+v, %v", g, err)
		}
		p.End()
		h.Expect(t, 20, 20)
	})
}

// A sender seals its run after ten minutes without a task, and its next Send begins another. Nothing
// is lost of a Send that comes in the moment of the seal.
func TestAnIdleSenderSealsItsRunAndLosesNothing(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var h testworld.Seen
		p := testworld.Begun(w, processor.New, "p", &h, processor.Options{})
		s := sender(w, distributor.SenderOptions{})
		offsets := []time.Duration{
			-time.Minute, -time.Millisecond, -time.Microsecond, -1, 0, 1, time.Microsecond, time.Millisecond,
			5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, time.Minute,
		}
		for i, offset := range append(offsets, 0) {
			handed := time.Now()
			proof.Must(t, s.Send(t.Context(), newTask(fmt.Sprint("task ", i))))
			time.Sleep(time.Until(handed.Add(10*time.Minute + offset)))
		}
		last := runsOf(w)
		_, err := s.Close(t.Context())
		proof.Must(t, err)
		time.Sleep(10 * time.Minute)
		p.End()
		h.Expect(t, len(offsets)+1, len(offsets)+1)
		all := runsOf(w)
		if n := len(last) - 1; n < len(offsets)-6 || n > len(offsets)-2 { // one is the world's own
			t.Errorf("%d runs of %d sends", n, len(offsets)+1)
		}
		for _, r := range all[:len(all)-1] {
			proof.Same(t, r.State, workload.RunClosed, "a run", r.Note)
		}
	})
}
