package distributor_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// memberNames are the instances that have a member row.
func memberNames(w *testworld.World) string {
	w.T.Helper()
	f := queues.Open(&w.Cfg)
	v, err := cluster.LoadView(w.T.Context(), f.Control, w.Cfg.Workload)
	proof.Must(w.T, err)
	var names []string
	for _, m := range v.Members {
		names = append(names, m.Instance)
	}
	return strings.Join(names, " ")
}

// P8.1: who sends much has a share of the budgets, and so a row in which it says what it needs.
func TestASenderIsAMemberOnlyWhileItSendsMuch(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 4, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Settled(1)
		s := sender(w, distributor.SenderOptions{})
		sent := 0
		send := func(d, pause time.Duration) {
			for began := time.Now(); time.Since(began) < d; time.Sleep(pause) {
				proof.Must(t, s.Send(t.Context(), newTask(fmt.Sprint(sent))))
				sent++
			}
		}
		send(2*time.Minute, 5*time.Second)
		proof.Same(t, memberNames(w), "p", "while it sends seldom: the members")
		send(20*time.Second, 10*time.Millisecond)
		proof.Same(t, memberNames(w), "d p", "while it sends much: the members")
		send(3*time.Minute, 5*time.Second)
		proof.Same(t, memberNames(w), "p", "when it sends seldom again: the members")
		proof.Must(t, proof.ErrOf(s.Close(t.Context())))
		time.Sleep(time.Minute)
		p.End()
		proof.Same(t, h.Deliveries(), sent, "tasks were handled")
	})
}

// P6.3: a queue that is dark is spilled from by who has marked that, which a member can.
func TestASenderWhoseQueueIsDarkJoinsAndSpills(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Settled(1)
		s := sender(w, distributor.SenderOptions{})
		proof.Must(t, s.Send(t.Context(), newTask("first")))
		time.Sleep(time.Minute)
		dark := w.Sim.Inject(azsim.Rule{Account: "accounta", Operations: []string{"PutMessage"}, Fault: azsim.HangBefore})
		began := time.Now()
		for i := range 20 {
			proof.Must(t, s.Send(t.Context(), newTask(fmt.Sprint("dark ", i))))
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("20 sends took %v while one of two accounts was dark", took)
		}
		proof.Same(t, memberNames(w), "d p", "the members")
		dark.Remove()
		for i := range 60 {
			time.Sleep(5 * time.Second)
			proof.Must(t, s.Send(t.Context(), newTask(fmt.Sprint("well ", i))))
		}
		proof.Same(t, memberNames(w), "p", "when all is well again: the members")
		proof.Must(t, proof.ErrOf(s.Close(t.Context())))
		time.Sleep(time.Minute)
		p.End()
		proof.Same(t, h.Deliveries(), 81, "tasks were handled")
	})
}

// senderOfTwo gives a sender that lacks the third account, sent a task a minute ago, and lives.
func senderOfTwo(w *testworld.World) *distributor.Sender {
	w.T.Helper()
	cfg := w.Operator()
	cfg.Instance, cfg.Accounts = "d", cfg.Accounts[:2]
	s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
	proof.Must(w.T, err)
	proof.Must(w.T, s.Send(w.T.Context(), newTask("first")))
	time.Sleep(time.Minute)
	return s
}

// P6.5: an account that a live sender has no credentials for is refused, member or not.
func TestAnAccountThatASenderDoesNotHaveIsRefused(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, s := t.Context(), senderOfTwo(w)
		proof.Must(t, proof.ErrOf(accounts.Add(ctx, w.Operator(), "accountb")))
		testworld.Refused(t, proof.ErrOf(accounts.Add(ctx, w.Operator(), "accountc")), "1 of 1 live processes do not have it in their configuration: d")
		status, err := status.Read(ctx, w.Operator(), status.Options{})
		if err != nil || status.Runs[0].Sent == nil || *status.Runs[0].Sent != 1 {
			t.Errorf("%+v, %v", status.Runs, err)
		}
		proof.Must(t, proof.ErrOf(s.Close(ctx)))
		proof.Is(t, proof.ErrOf(accounts.Add(ctx, w.Operator(), "accountc")), nil, "after its end")
	})
}

// P6.5: also by who has begun two seconds ago, and has neither beaten nor joined.
func TestAnAccountThatASenderDoesNotHaveWhichHasJustBegunIsRefused(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, cfg := t.Context(), w.Operator()
		cfg.Instance, cfg.Accounts = "d", cfg.Accounts[:2]
		s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
		proof.Must(t, err)
		proof.Must(t, s.Send(ctx, newTask("first")))
		time.Sleep(2 * time.Second)
		testworld.Refused(t, proof.ErrOf(accounts.Add(ctx, w.Operator(), "accountc")), "1 of 1 live processes do not have it in their configuration: d")
		proof.Must(t, proof.ErrOf(s.Close(ctx)))
	})
}

// stalledLive is an account whose table gives the first of the runs that live at once, and the
// others after so long.
type stalledLive struct {
	storage.Account
	takes time.Duration
}

func (s stalledLive) Table(name string) storage.Table {
	return &stalledLiveTable{Table: s.Account.Table(name), takes: s.takes}
}

type stalledLiveTable struct {
	storage.Table
	takes time.Duration
	until time.Time
}

func (s *stalledLiveTable) Query(
	ctx context.Context, q storage.Query,
) iter.Seq2[storage.Entity, error] {
	const first = "live."
	if !strings.HasPrefix(q.From, first) || q.From != first && !time.Now().Before(s.until) {
		return s.Table.Query(ctx, q)
	}
	return func(yield func(storage.Entity, error) bool) {
		if q.From == first {
			s.until = time.Now().Add(s.takes)
			for e, err := range s.Table.Query(ctx, q) {
				if !yield(e, err) {
					return
				}
				break
			}
		}
		yield(storage.Entity{}, &storage.Error{Code: storage.Throttled, Op: "query", Index: -1})
	}
}

// P6.5: the list of the runs that live may take longer than a live sender is without a beat. It has
// beaten since its row was read.
func TestAnAccountThatASenderDoesNotHaveIsRefusedThoughTheTableIsSlow(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, s := t.Context(), senderOfTwo(w)
		proof.Must(t, proof.ErrOf(w.Table().Write(ctx, storage.Write{Mode: storage.Insert, Entity: storage.Entity{
			Partition: w.Cfg.Workload + ".runs", Row: "live." + strings.Repeat("f", 32),
		}})))
		began, takes := time.Now(), 100*time.Second
		cfg := w.Operator()
		cfg.Accounts[0].Storage = stalledLive{cfg.Accounts[0].Storage, takes}
		testworld.Refused(t, proof.ErrOf(accounts.Add(ctx, cfg, "accountc")),
			"1 of 1 live processes do not have it in their configuration: d")
		if time.Since(began) < takes {
			t.Error("the list was not slow")
		}
		proof.Must(t, proof.ErrOf(s.Close(ctx)))
	})
}
