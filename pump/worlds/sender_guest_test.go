package worlds

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// memberNames are the instances that have a member row.
func (w *world) memberNames() string {
	w.T.Helper()
	f := queues.Open(&w.Cfg)
	v, err := cluster.LoadView(w.T.Context(), f.Control, w.Cfg.Workload)
	must(w.T, err)
	var names []string
	for _, m := range v.Members {
		names = append(names, m.Instance)
	}
	return strings.Join(names, " ")
}

// P8.1: who sends much has a share of the budgets, and so a row in which it says what it needs.
func TestASenderIsAMemberOnlyWhileItSendsMuch(t *testing.T) {
	inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.join("p", h, processor.Options{})
		w.Settled(1)
		s := w.sender(distributor.SenderOptions{})
		sent := 0
		send := func(d, pause time.Duration) {
			for began := time.Now(); time.Since(began) < d; time.Sleep(pause) {
				must(t, s.Send(t.Context(), newTask(fmt.Sprint(sent))))
				sent++
			}
		}
		send(2*time.Minute, 5*time.Second)
		if got := w.memberNames(); got != "p" {
			t.Errorf("while it sends seldom there are the members %s", got)
		}
		send(20*time.Second, 10*time.Millisecond)
		if got := w.memberNames(); got != "d p" {
			t.Errorf("while it sends much there are the members %s", got)
		}
		send(3*time.Minute, 5*time.Second)
		if got := w.memberNames(); got != "p" {
			t.Errorf("when it sends seldom again there are the members %s", got)
		}
		must(t, errOf(s.Close(t.Context())))
		time.Sleep(time.Minute)
		p.End()
		if n := h.Deliveries(); n != sent {
			t.Errorf("%d of %d tasks were handled", n, sent)
		}
	})
}

// P6.3: a queue that is dark is spilled from by who has marked that, which a member can.
func TestASenderWhoseQueueIsDarkJoinsAndSpills(t *testing.T) {
	inWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.join("p", h, processor.Options{})
		w.Settled(1)
		s := w.sender(distributor.SenderOptions{})
		must(t, s.Send(t.Context(), newTask("first")))
		time.Sleep(time.Minute)
		dark := w.Sim.Inject(azsim.Rule{Account: "accounta", Operations: []string{"PutMessage"}, Fault: azsim.HangBefore})
		began := time.Now()
		for i := range 20 {
			must(t, s.Send(t.Context(), newTask(fmt.Sprint("dark ", i))))
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("20 sends took %v while one of two accounts was dark", took)
		}
		if got := w.memberNames(); got != "d p" {
			t.Errorf("there are the members %s", got)
		}
		dark.Remove()
		for i := range 60 {
			time.Sleep(5 * time.Second)
			must(t, s.Send(t.Context(), newTask(fmt.Sprint("well ", i))))
		}
		if got := w.memberNames(); got != "p" {
			t.Errorf("when all is well again there are the members %s", got)
		}
		must(t, errOf(s.Close(t.Context())))
		time.Sleep(time.Minute)
		p.End()
		if n := h.Deliveries(); n != 81 {
			t.Errorf("%d of 81 tasks were handled", n)
		}
	})
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
		must(t, errOf(s.Close(t.Context())))
		q.End()
	})
}

// senderOfTwo gives a sender that lacks the third account, sent a task a minute ago, and lives.
func (w *world) senderOfTwo() *distributor.Sender {
	w.T.Helper()
	cfg := w.Operator()
	cfg.Instance, cfg.Accounts = "d", cfg.Accounts[:2]
	s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
	must(w.T, err)
	must(w.T, s.Send(w.T.Context(), newTask("first")))
	time.Sleep(time.Minute)
	return s
}

// P6.5: an account that a live sender has no credentials for is refused, member or not.
func TestAnAccountThatASenderDoesNotHaveIsRefused(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		ctx, s := t.Context(), w.senderOfTwo()
		if _, err := accounts.Add(ctx, w.Operator(), "accountb"); err != nil {
			t.Error(err)
		}
		refused(t, second(accounts.Add(ctx, w.Operator(), "accountc")), "1 of 1 live processes do not have it in their configuration: d")
		status, err := status.Read(ctx, w.Operator(), status.Options{})
		if err != nil || status.Runs[0].Sent == nil || *status.Runs[0].Sent != 1 {
			t.Errorf("%+v, %v", status.Runs, err)
		}
		must(t, errOf(s.Close(ctx)))
		if _, err := accounts.Add(ctx, w.Operator(), "accountc"); err != nil {
			t.Errorf("after its end: %v", err)
		}
	})
}

// P6.5: also by who has begun two seconds ago, and has neither beaten nor joined.
func TestAnAccountThatASenderDoesNotHaveWhichHasJustBegunIsRefused(t *testing.T) {
	inThree(t, func(t *testing.T, w *world) {
		ctx, cfg := t.Context(), w.Operator()
		cfg.Instance, cfg.Accounts = "d", cfg.Accounts[:2]
		s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
		must(t, err)
		must(t, s.Send(ctx, newTask("first")))
		time.Sleep(2 * time.Second)
		refused(t, second(accounts.Add(ctx, w.Operator(), "accountc")), "1 of 1 live processes do not have it in their configuration: d")
		must(t, errOf(s.Close(ctx)))
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
	inThree(t, func(t *testing.T, w *world) {
		ctx, s := t.Context(), w.senderOfTwo()
		must(t, errOf(w.Table().Write(ctx, storage.Write{Mode: storage.Insert, Entity: storage.Entity{
			Partition: w.Cfg.Workload + ".runs", Row: "live." + strings.Repeat("f", 32),
		}})))
		began, takes := time.Now(), 100*time.Second
		cfg := w.Operator()
		cfg.Accounts[0].Storage = stalledLive{cfg.Accounts[0].Storage, takes}
		refused(t, second(accounts.Add(ctx, cfg, "accountc")),
			"1 of 1 live processes do not have it in their configuration: d")
		if time.Since(began) < takes {
			t.Error("the list was not slow")
		}
		must(t, errOf(s.Close(ctx)))
	})
}
