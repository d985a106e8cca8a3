package worlds

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/sim"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

// Eight processors that share a partition of the ledger, and one that has all of it, commit as often
// as they may: in no second is it asked for more than a third of its 2,000 entities by many, and two
// thirds by one. Many ask for a tenth by the mean; by their phases, a second may have over twice that.
// (Two hundred stand in record.TestTwoHundredProcessorsAskAPartitionForAQuarter.)
func TestCommitsLeaveAPartitionOfTheLedgerMostOfItsLimit(t *testing.T) {
	for processors, most := range map[int]int64{8: 667, 1: 1333} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) {
			count := func(c *azsim.Config) { c.CountPartitions, c.Limits.Queue = true, azsim.Unlimited }
			testworld.In(t, testworld.Once, 1, 8, count, func(t *testing.T, w *testworld.World) {
				h := &testworld.Seen{}
				var all []*started
				for i := range processors {
					all = append(all, testworld.Begun(w, processor.New, fmt.Sprintf("p%03d", i), h, processor.Options{}))
				}
				w.Settled(processors)
				time.Sleep(20 * time.Second) // budgets are shared, ledgers fenced
				const rounds, seconds = 100, 4
				var putters sync.WaitGroup
				for s := range uint32(64) { // one partition of four
					account, queue := w.Home(s)
					texts := make([][]byte, rounds)
					for i := range texts {
						texts[i] = w.Envelope(s, 1)
					}
					putters.Go(func() {
						for _, text := range texts {
							w.PutText(account, queue, text)
							time.Sleep(seconds * time.Second / rounds)
						}
					})
				}
				watchPartitions(w, fmt.Sprint(processors, " processors"), 2*seconds*time.Second, most)
				putters.Wait()
				w.Within(time.Minute, "all is done", func() bool { return w.Left() == 0 })
				w.ExpectBook(64*rounds, 0)
				testworld.StopAll(all)
			})
		})
	}
}

// watchPartitions looks for a while at what each partition of the tables is asked for, and demands
// that none is for more than so many entities in any second.
func watchPartitions(w *testworld.World, phase string, d time.Duration, most int64) {
	w.T.Helper()
	entities := func() map[string]int64 {
		n := map[string]int64{}
		for _, p := range w.Sim.PartitionLoads() {
			n[p.Partition] = p.Entities
		}
		return n
	}
	first, peaks := entities(), map[string]int64{}
	last := first
	for began := time.Now(); time.Since(began) < d; {
		time.Sleep(time.Second)
		now := entities()
		for p, n := range now {
			peaks[p] = max(peaks[p], n-last[p])
		}
		last = now
	}
	for p, n := range last {
		w.T.Logf("%s: %-15s %6.1f entities a second, %d at most", phase, p, float64(n-first[p])/d.Seconds(), peaks[p])
		if peaks[p] > most {
			w.T.Errorf("%s: partition %s was asked for %d entities in a second, want %d at most", phase, p, peaks[p], most)
		}
	}
}

// A thousand programs that each hold a sender and send once a minute, as a web service's
// instances do: no partition is asked for more than half of what it gives.
func TestAThousandSendersAskNoPartitionForMuch(t *testing.T) {
	proof.Only(t)
	const n = 1000
	testworld.In(t, testworld.Plain, 1, 4, func(c *azsim.Config) {
		c.Limits = azsim.PublishedLimits()
		c.Limits.QueryCost = 1000
		c.CountPartitions = true
	}, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		var procs []*started
		for i := range 4 {
			procs = append(procs, testworld.Begun(w, processor.New, fmt.Sprintf("p%d", i), h, processor.Options{}))
		}
		w.Settled(4)
		var all sync.WaitGroup
		var sent atomic.Int64
		stop := make(chan struct{})
		for i := range n {
			cfg := w.Config(fmt.Sprintf("s%04d", i), 4)
			cfg.Log, sim.In(&cfg).Lanes = slog.New(slog.DiscardHandler), 1
			s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
			must(t, err)
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Minute / n)
				for more := true; more; {
					r := source.Record{Key: fmt.Append(nil, "task of ", i), Body: []byte("body")}
					proof.Is(t, s.Send(t.Context(), r), nil)
					sent.Add(1)
					select {
					case <-stop:
						more = false
					case <-time.After(time.Minute):
					}
				}
				proof.Is(t, proof.ErrOf(s.Close(t.Context())), nil)
			})
		}
		watchPartitions(w, "start", time.Minute, 1000)
		watchPartitions(w, "rest", time.Minute, 1000)
		f := queues.Open(&w.Cfg)
		v, err := cluster.LoadView(t.Context(), f.Control, w.Cfg.Workload)
		if err != nil || len(v.Members) != len(procs) {
			t.Errorf("%d members of %d processors and %d senders that send seldom, %v", len(v.Members), len(procs), n, err)
		}
		close(stop)
		all.Wait()
		time.Sleep(10 * time.Second)
		for _, p := range procs {
			p.End()
		}
		if tasks := h.Deliveries(); tasks < int(sent.Load()) {
			t.Errorf("%d of %d tasks were handled", tasks, sent.Load())
		}
	})
}

// Each open Sender is a run that lives in the segments of its tasks. 2,500 of them with one key, as
// the instances of a service have it, fit a segment, and a late copy of a task that is done is
// recognised while its run is open.
func TestManyOpenSendersWithOneKeyFitASegment(t *testing.T) {
	proof.Only(t)
	const n, starts = 2500, 5 * time.Minute
	testworld.In(t, testworld.Once, 1, 2, func(c *azsim.Config) { c.Seed = 3 }, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		p, q := testworld.Begun(w, processor.New, "p", hs.Handler("p", 0), processor.Options{}), testworld.Begun(w, processor.New, "q", hs.Handler("q", 0), processor.Options{})
		w.Settled(2)
		copies := w.Sim.Inject(azsim.Rule{
			Fault: azsim.DeliverTwice, Probability: 0.2, Operations: []string{"GetMessages"},
		})
		var all sync.WaitGroup
		stop := make(chan struct{})
		for i := range n {
			cfg := w.Config(fmt.Sprintf("s%04d", i), 2)
			cfg.Delivery, cfg.Log, sim.In(&cfg).Lanes = pump.Once, slog.New(slog.DiscardHandler), 1
			s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
			must(t, err)
			all.Go(func() {
				time.Sleep(time.Duration(i) * starts / n)
				r := source.Record{Key: []byte("the key"), Body: []byte("body")}
				proof.Is(t, s.Send(t.Context(), r), nil)
				<-stop
				proof.Is(t, proof.ErrOf(s.Close(t.Context())), nil)
			})
		}
		time.Sleep(starts + time.Minute)
		proof.Same(t, hs.Tasks(), n, "tasks are handled a minute after the last was sent")
		if use := p.Of.State().Ledger.Used + q.Of.State().Ledger.Used; use >= 0.5 {
			t.Errorf("%.2f of what a segment may have is used", use)
		}
		copies.Remove()
		time.Sleep(2 * time.Minute)
		hs.Check(t)
		proof.Same(t, w.Left(), 0, "messages are left")
		close(stop)
		all.Wait()
		p.End()
		q.End()
	})
}
