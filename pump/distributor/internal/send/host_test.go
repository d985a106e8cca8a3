package send

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// hosted is an account that shares a host with others: as in the driver with its own transport, a
// put waits for one of the host's 320 slots before it is sent.
type hosted struct {
	storage.Account
	slots *semaphore.Weighted
}

func (a hosted) Queue(name string) storage.Queue { return hostedQueue{a.Account.Queue(name), a} }

type hostedQueue struct {
	storage.Queue
	of hosted
}

func (q hostedQueue) Put(ctx context.Context, text []byte, delay time.Duration) (storage.Receipt, error) {
	if q.of.slots.Acquire(ctx, 1) != nil {
		return storage.Receipt{}, storage.NotSent(ctx, "put", q.of.Name(), q.Name())
	}
	defer q.of.slots.Release(1)
	return q.Queue.Put(ctx, text, delay)
}

// A queue is dark though none of its puts is sent, because others of its host have all slots.
func TestPutsThatHaveNoSlotDarkenTheirQueue(t *testing.T) {
	two := func(s *azsim.Config) { s.Accounts = []azsim.Account{{Name: "near"}, {Name: "past"}} }
	testworld.In(t, workload.Spec{}, 2, 1, two, func(t *testing.T, w *testworld.World) {
		p, stages, end, _, past, homes := sendingToHost(t, w, 0)
		for n := range 3 {
			must(t, p.Send(&pack.Message{Text: []byte("text"), Segment: past[0], First: uint64(n), Tasks: 1}))
		}
		time.Sleep(11 * time.Second)
		for s := range homes {
			proof.Same(t, s.state(), dark, "the state of", s)
		}
		proof.Same(t, p.Count.Resent.Load(), 0, "puts sent again")
		end(nil)
		must(t, stages.Wait())
	})
}

// A third of all accounts stand behind one host. While it is in trouble the tasks of the others go on
// as before, its queues are dark together though few of its puts are ever sent, and few lines say so.
// Afterwards all comes back.
func TestAHostWithManyAccountsInTroubleHindersNoOther(t *testing.T) {
	hang := azsim.Rule{Fault: azsim.HangBefore}
	for name, c := range map[string]struct {
		accounts int
		rule     azsim.Rule
		within   time.Duration // almost all of its queues are dark; 0: none is
	}{
		"hangs, 2 accounts":  {2, hang, 11 * time.Second},
		"hangs, 10 accounts": {10, hang, 11 * time.Second},
		"hangs, 50 accounts": {50, hang, 11 * time.Second},
		"refuses":            {10, azsim.Rule{Fault: azsim.FailBefore}, 12 * time.Second},
		"not now":            {10, azsim.Rule{Fault: azsim.Answer, Status: 503}, 50 * time.Second},
		"slow":               {10, azsim.Rule{Fault: azsim.DelayBefore, Delay: 2 * time.Second}, 0},
	} {
		if c.accounts > 10 && proof.Less(t) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			many := func(s *azsim.Config) {
				s.Accounts = nil
				for i := range 3 * c.accounts {
					s.Accounts = append(s.Accounts, azsim.Account{Name: fmt.Sprintf("%s%d", []string{"near", "near", "past"}[i%3], i)})
				}
			}
			testworld.In(t, workload.Spec{}, 3*c.accounts, 4, many, func(t *testing.T, w *testworld.World) {
				hostInTrouble(t, w, c.rule, c.within)
			})
		})
	}
}

// sendingToHost gives a putter, all segments, and the segments and queues behind the host.
func sendingToHost(t *testing.T, w *testworld.World, most int64) (
	p *Putter, stages *errgroup.Group, end context.CancelCauseFunc, all, past []uint32, homes map[*Sink]bool,
) {
	slots := semaphore.NewWeighted(most)
	p, stages, end = sending(t, w, 0, func(c *pump.Config) {
		for i, a := range c.Accounts {
			if strings.HasPrefix(a.Storage.Name(), "past") {
				c.Accounts[i].Storage = hosted{a.Storage, slots}
			}
		}
	})
	p.Log = slog.New(slog.NewTextHandler(w, nil))
	homes = map[*Sink]bool{}
	for s := range uint32(p.Router.Current().Workload.Map.Segments) {
		all = append(all, s)
		if home := p.Router.Current().home(s); strings.HasPrefix(home.name, "past") {
			past, homes[home] = append(past, s), true
		}
	}
	p.Router.marked(all, 1)
	p.Router.marked(all, 2)
	go p.Watch()
	return p, stages, end, all, past, homes
}

func hostInTrouble(t *testing.T, w *testworld.World, rule azsim.Rule, within time.Duration) {
	p, stages, end, all, past, homes := sendingToHost(t, w, 320)
	var sent, acked, nearSent, nearAcked atomic.Int64
	isNear := func(s uint32) bool { return strings.HasPrefix(p.Router.Current().home(s).name, "near") }
	p.Delivered = func(_ *Sink, m *pack.Message) {
		acked.Add(1)
		if isNear(m.Segment) {
			nearAcked.Add(1)
		}
	}
	send := func(s uint32) {
		sent.Add(1)
		if p.Send(&pack.Message{Text: []byte("text"), Segment: s, Tasks: 1}) != nil {
			t.Error("not sent")
		}
	}
	count := func(of state) (n int) {
		for s := range homes {
			if s.state() == of {
				n++
			}
		}
		return n
	}
	var faults []*azsim.Injection
	for _, name := range w.Sim.Accounts() {
		if rule.Account, rule.Instance = name, "d"; strings.HasPrefix(name, "past") {
			faults = append(faults, w.Fault(rule, "PutMessage"))
		}
	}
	for range 4000 / len(past) { // many puts at once
		for _, s := range past {
			stages.Go(func() error { send(s); return nil })
		}
	}
	began, darkened := time.Now(), time.Duration(0)
	for n := 0; time.Since(began) < time.Minute; n++ { // and 100 a second to all
		time.Sleep(10 * time.Millisecond)
		s := all[rand.IntN(len(all))]
		if isNear(s) {
			nearSent.Add(1)
		}
		send(s)
		if n%1000 == 0 {
			p.Router.Update(w.View().Workload)
		}
		if lacks := nearSent.Load() - nearAcked.Load(); lacks > 10 {
			t.Fatalf("after %v %d messages to other hosts wait", time.Since(began), lacks)
		}
		if held := heldBy(p.Router.Current().sinks); held > p.total {
			t.Fatalf("messages hold %d bytes", held)
		}
		if darkened == 0 && count(dark) >= len(homes)*95/100 {
			darkened = time.Since(began)
		}
	}
	if darkened > within || within > 0 && darkened == 0 {
		t.Errorf("dark after %v", darkened)
	}
	if n := w.Logged("level=WARN"); n > 12 {
		t.Errorf("%d warnings of %d queues", n, len(homes))
	}
	for _, f := range faults {
		f.Remove()
	}
	for n := 0; n < 60 && count(well) < len(homes); n++ {
		time.Sleep(time.Second)
		p.Router.Update(w.View().Workload)
		for _, s := range past { // probes are messages
			send(s)
		}
	}
	proof.Same(t, count(well), len(homes), "queues are well afterwards")
	p.Wait()
	proof.Same(t, acked.Load(), sent.Load(), "messages are acknowledged")
	end(nil)
	proof.Is(t, stages.Wait(), nil)
}
