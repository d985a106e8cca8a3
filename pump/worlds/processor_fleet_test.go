package worlds

import (
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestUntilIdleWaitsForSegmentsThatAreOnTheirWay(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		var hs testworld.Handlings
		p := w.join("p", hs.Handler("p", 30*time.Second), processor.Options{Concurrency: 256})
		w.Settled(1)
		tasks := w.PutHome(w.EverySegment(), 2)
		time.Sleep(2 * time.Second)
		// p has it all in hand for half a minute; q is to have half of the segments.
		q := w.join("q", hs.Handler("q", 0), processor.Options{UntilIdle: 5 * time.Second})
		time.Sleep(10 * time.Second)
		select {
		case <-q.Done:
			t.Errorf("q has left while segments were on their way to it: %+v", q.Summary)
		default:
		}
		p.Stop()
		<-p.Done
		more := w.PutHome(w.EverySegment(), 1)
		<-q.Done
		if hs.Tasks() != tasks+more || w.Left() != 0 || q.Err != nil {
			t.Errorf("%d of %d tasks, %d messages left, %v", hs.Tasks(), tasks+more, w.Left(), q.Err)
		}
		hs.Check(t)
	})
}

func TestUntilIdleAProcessorWithoutSegmentsLeaves(t *testing.T) {
	proof.Only(t)
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		p := w.join("p", &testworld.Seen{}, processor.Options{})
		w.Settled(1)
		// More processors than segments there are to share.
		var rest []*started
		for i := range 70 {
			rest = append(rest, w.join(fmt.Sprintf("q%02d", i), &testworld.Seen{}, processor.Options{UntilIdle: 20 * time.Second}))
		}
		began := time.Now()
		for _, q := range rest {
			<-q.Done
			if q.Err != nil {
				t.Error(q.Err)
			}
		}
		if d := time.Since(began); d > 3*time.Minute {
			t.Errorf("the last has left after %v", d)
		}
		v := w.Settled(1)
		if n := len(testworld.Owns(v, "p")); n != 64 {
			t.Errorf("%d segments are p's", n)
		}
		p.End()
	})
}

func TestP82ANudgeMakesAQueueDueAndCostsLittleHoweverManyArrive(t *testing.T) {
	inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		h := &testworld.Seen{}
		p := w.join("p", h, processor.Options{})
		w.Settled(1)
		time.Sleep(5 * time.Minute) // to the longest back-off
		for range 5 {
			w.Put("accounta", "work-02", 1, 1)
			before := h.Deliveries()
			put := time.Now()
			p.Of.Nudged(pump.Nudge{Queue: "accounta/work-02"})
			for h.Deliveries() == before {
				time.Sleep(time.Millisecond)
			}
			if d := time.Since(put); d > 50*time.Millisecond {
				t.Errorf("begun %v after the nudge", d)
			}
			time.Sleep(time.Minute)
		}
		before := w.Requests("GetMessages")
		for range 10_000 {
			p.Of.Nudged(pump.Nudge{Queue: "accounta/work-02"})
			p.Of.Nudged(pump.Nudge{Queue: "accounta/work-99"})
			p.Of.Nudged(pump.Nudge{Queue: "elsewhere/work-02"})
			time.Sleep(time.Millisecond)
		}
		if n := w.Requests("GetMessages") - before; n < 20 || n > 60 {
			t.Errorf("%d gets in 10 s of a thousand nudges a second", n)
		}
		// A queue in trouble is left to its back-off.
		dark := w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "GetMessages")
		time.Sleep(time.Minute)
		hits := dark.Hits()
		for range 10_000 {
			p.Of.Nudged(pump.Nudge{Queue: "accounta/work-02"})
			time.Sleep(time.Millisecond)
		}
		if n := dark.Hits() - hits; n > 4*10*2/3 { // four queues, each half of pollTroubled apart or more
			t.Errorf("%d gets in 10 s of queues in trouble", n)
		}
		p.End()
		p.Of.Nudged(pump.Nudge{Queue: "accounta/work-02"}) // no process is there
	})
}

func TestAnIdleFleetCostsABoundedNumberOfGetsTogether(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct{ accounts, queues, processors int }{{8, 4, 10}, {1, 1, 16}, {1, 4, 40}} {
		t.Run(fmt.Sprintf("%d queues, %d processors", c.accounts*c.queues, c.processors), func(t *testing.T) {
			inWorld(t, c.accounts, c.queues, nil, func(t *testing.T, w *world) {
				var all []*started
				for i := range c.processors {
					all = append(all, w.join(fmt.Sprintf("p%02d", i), &testworld.Seen{}, processor.Options{}))
				}
				w.Settled(c.processors)
				time.Sleep(3 * time.Minute)
				before := w.Requests("GetMessages")
				time.Sleep(5 * time.Minute)
				rate := float64(w.Requests("GetMessages")-before) / 300
				if rate > 1.2*pollIdleRate || rate < 0.1 {
					t.Errorf("%.1f gets a second", rate)
				}
				t.Logf("%.1f gets a second", rate)
				stopAll(all)
			})
		})
	}
}
