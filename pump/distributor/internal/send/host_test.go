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

	"golang.org/x/sync/semaphore"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
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

func (q hostedQueue) Put(ctx context.Context, b []byte, d time.Duration) (storage.Receipt, error) {
	if q.of.slots.Acquire(ctx, 1) != nil {
		return storage.Receipt{}, storage.NotSent(ctx, "put", q.of.Name(), q.Name())
	}
	defer q.of.slots.Release(1)
	return q.Queue.Put(ctx, b, d)
}

type hostTest func(t *testing.T, w *testworld.World, p *Putter, past map[uint32]*Sink)

// inThirds runs a test in a world where a third of the accounts, so many, stand behind one host that
// has so many slots. It gives the segments whose homes are there.
func inThirds(t *testing.T, accounts int, slots int64, test hostTest) {
	testworld.In(t, testworld.Plain, 3*accounts, 4, func(s *azsim.Config) {
		for i := range s.Accounts {
			s.Accounts[i].Name = fmt.Sprint([]string{"near", "near", "past"}[i%3], i)
		}
	}, func(t *testing.T, w *testworld.World) {
		host := semaphore.NewWeighted(slots)
		p, stages, end := sending(t, w, 0, func(c *pump.Config) {
			for i, a := range c.Accounts {
				if name := a.Storage.Name(); strings.HasPrefix(name, "past") {
					st, err := azure.Open(azure.Options{
						ConnectionString: w.Sim.ConnectionString(name), Transport: w.Sim.Transport().As("past"),
					})
					must(t, err)
					c.Accounts[i].Storage = hosted{st, host}
				}
			}
		})
		p.Log = slog.New(slog.NewTextHandler(w, nil))
		past := map[uint32]*Sink{}
		for _, s := range w.EverySegment() {
			if home := p.Router.Current().home(s); strings.HasPrefix(home.name, "past") {
				past[s] = home
			}
		}
		p.Router.marked(w.EverySegment(), 1)
		p.Router.marked(w.EverySegment(), 2)
		go p.Watch()
		test(t, w, p, past)
		end(nil)
		must(t, stages.Wait())
	})
}

// A queue is dark though none of its puts is sent, because others of its host have all slots.
func TestPutsThatHaveNoSlotDarkenTheirQueue(t *testing.T) {
	inThirds(t, 1, 0, func(t *testing.T, _ *testworld.World, p *Putter, past map[uint32]*Sink) {
		for s := range past {
			must(t, p.Send(&pack.Message{Text: []byte("text"), Segment: s, Tasks: 1}))
		}
		time.Sleep(11 * time.Second)
		for _, s := range past {
			proof.Same(t, s.state(), dark, "the state of", s)
		}
		proof.Same(t, p.Count.Resent.Load(), 0, "puts sent again")
	})
}

// A third of all accounts stand behind one host. While it is in trouble the tasks of the others go on
// as before, its queues are dark together though few of its puts are ever sent, and few lines say so.
// Afterwards all comes back.
func TestAHostWithManyAccountsInTroubleHindersNoOther(t *testing.T) {
	for name, c := range map[string]trouble{
		"hangs, 2 accounts":  {2, azsim.Rule{Fault: azsim.HangBefore}, 11 * time.Second},
		"hangs, 50 accounts": {50, azsim.Rule{Fault: azsim.HangBefore}, 11 * time.Second},
		"refuses":            {10, azsim.Rule{Fault: azsim.FailBefore}, 12 * time.Second},
		"not now":            {10, azsim.Rule{Fault: azsim.Answer, Status: 503}, 50 * time.Second},
		"slow":               {10, azsim.Rule{Fault: azsim.DelayBefore, Delay: 2 * time.Second}, 0},
	} {
		if c.accounts > 2 && proof.Less(t) {
			continue
		}
		t.Run(name, func(t *testing.T) { inThirds(t, c.accounts, 320, c.hindersNoOther) })
	}
}

// trouble is that of a host with so many accounts, almost all of whose queues are dark within some
// time; 0: none is.
type trouble struct {
	accounts int
	rule     azsim.Rule
	within   time.Duration
}

func (c trouble) hindersNoOther(t *testing.T, w *testworld.World, p *Putter, past map[uint32]*Sink) {
	c.rule.Instance = "past"
	wait := map[bool]*atomic.Int64{true: {}, false: {}} // messages to the host, and to others
	p.Delivered = func(_ *Sink, m *pack.Message) { wait[past[m.Segment] != nil].Add(-1) }
	send := func(s uint32) error {
		wait[past[s] != nil].Add(1)
		return p.Send(&pack.Message{Text: []byte("text"), Segment: s, Tasks: 1})
	}
	count := func(of state) (n int) {
		for _, home := range past {
			if home.state() == of {
				n++
			}
		}
		return n
	}
	fault := w.Fault(c.rule, "PutMessage")
	for range 4000 / len(past) { // many puts at once
		for s := range past {
			p.Stages.Go(func() error { return send(s) })
		}
	}
	began, darkened := time.Now(), time.Duration(0)
	for n := 0; time.Since(began) < time.Minute; n++ { // and 100 a second to all
		time.Sleep(10 * time.Millisecond)
		must(t, send(uint32(rand.IntN(w.Segments()))))
		if n%1000 == 0 {
			p.Router.Update(w.View().Workload)
		}
		if lacks := wait[false].Load(); lacks > 10 {
			t.Fatalf("after %v %d messages to other hosts wait", time.Since(began), lacks)
		}
		if held := heldBy(p.Router.Current().sinks); held > p.total {
			t.Fatalf("messages hold %d bytes", held)
		}
		if darkened == 0 && count(dark) >= len(past)*95/100 {
			darkened = time.Since(began)
		}
	}
	if darkened > c.within || c.within > 0 && darkened == 0 {
		t.Errorf("dark after %v", darkened)
	}
	if n := w.Logged("level=WARN"); n > 12 {
		t.Errorf("%d warnings", n)
	}
	fault.Remove()
	w.Within(time.Minute, "all queues are well", func() bool {
		time.Sleep(time.Second)
		p.Router.Update(w.View().Workload)
		for s := range past { // probes are messages
			must(t, send(s))
		}
		return count(well) == len(past)
	})
	p.Wait()
	proof.Same(t, wait[true].Load()+wait[false].Load(), 0, "messages are not acknowledged")
}
