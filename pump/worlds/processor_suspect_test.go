package worlds

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// mortals are processors that a guilty task kills, and that are started again, each time
// under another name, as a supervisor would.
type mortals struct {
	w      *world
	guilty func(t *pump.Task) bool
	o      processor.Options
	each   time.Duration // that an innocent task takes
	dying  time.Duration // that a guilty one takes to kill

	mu     sync.Mutex
	deaths int
	done   map[string]int
	split  int64
	ends   context.CancelFunc
	ctx    context.Context
	all    sync.WaitGroup
}

func (w *world) mortals(each time.Duration, o processor.Options, guilty func(*pump.Task) bool) *mortals {
	m := &mortals{w: w, guilty: guilty, o: o, each: each, done: map[string]int{}}
	m.ctx, m.ends = context.WithCancel(w.T.Context())
	return m
}

// start has one processor at work until the end, over and over.
func (m *mortals) start(name string) {
	m.all.Go(func() {
		for life := 1; m.ctx.Err() == nil; life++ {
			m.live(fmt.Sprintf("%s-%d", name, life))
			waits.Wait(m.ctx, 2*time.Second)
		}
	})
}

// live runs a processor until it is killed or all ends.
func (m *mortals) live(instance string) {
	var dead bool // guarded by m.mu
	died := make(chan struct{})
	h := pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		if m.guilty(t) {
			if err := testworld.Pause(ctx, m.dying); err != nil {
				return err
			}
			m.mu.Lock()
			if !dead {
				dead = true
				m.deaths++
				m.w.Crash(instance)
				close(died)
			}
			m.mu.Unlock()
		} else if err := testworld.Pause(ctx, m.each); err != nil {
			return err
		}
		m.mu.Lock()
		gone := dead
		if !gone {
			m.done[testworld.Identity(t)]++
		}
		m.mu.Unlock()
		if gone { // nothing that it does is seen by anybody
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	})
	o := m.o
	o.Grace = -1
	p := m.w.start(m.w.processorOf(instance, h, o))
	select {
	case <-died:
		p.Stop() // no other process hears of it
	case <-m.ctx.Done():
		p.Stop()
	}
	<-p.Done
	m.mu.Lock()
	m.split += p.Summary.Split
	m.mu.Unlock()
}

// until waits until what is asked for is so, and gives up after two virtual hours.
func (m *mortals) until(what string, ok func() bool) (took time.Duration) {
	m.w.T.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > 2*time.Hour {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.w.T.Fatalf("not within two hours: %s; %d deaths, %d tasks done, %d messages left", what, m.deaths, len(m.done), m.w.Left())
		}
		time.Sleep(time.Second)
	}
	return time.Since(began)
}

// end ends all processors.
func (m *mortals) end() {
	m.ends()
	m.all.Wait()
}

func (m *mortals) doneTasks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.done)
}

// P4.2, window 18: a task that kills its process among a thousand ends in quarantine, alone.
func TestP42TheOneTaskThatKillsItsProcessIsFoundBySplitting(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct {
		name                                           string
		accounts, queues, processors, perMessage, most int
		each                                           time.Duration
		in                                             func(*testing.T, int, int, func(*azsim.Config), func(*testing.T, *world))
	}{
		{"its own queue", 1, 1, 1, 100, 30, 5 * time.Millisecond, inWorld},
		{"own queues, slow tasks", 2, 2, 2, 100, 30, 2 * time.Second, inWorld},
		{"own queues, slow tasks, once", 2, 2, 2, 100, 30, 2 * time.Second, inOnceWorld},
		{"one queue with eight owners", 1, 1, 8, 10, 80, 5 * time.Millisecond, inWorld},
		{"one queue with eight owners, once", 1, 1, 8, 10, 80, 5 * time.Millisecond, inOnceWorld},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in(t, c.accounts, c.queues, nil, func(t *testing.T, w *world) {
				segments := w.EverySegment()
				tasks := 0
				for i := 0; tasks < 1000; i++ {
					tasks += w.PutHome(segments[i%len(segments):i%len(segments)+1], c.perMessage)
				}
				victim := fmt.Sprintf("%v/%d/%d", w.Run, segments[3], c.perMessage/2)
				m := w.mortals(c.each, processor.Options{Visibility: 30 * time.Second}, func(t *pump.Task) bool { return testworld.Identity(t) == victim })
				for i := range c.processors {
					m.start(fmt.Sprintf("p%d", i))
				}
				took := m.until("all are done or condemned", func() bool { return m.doneTasks() == tasks-1 && len(w.Condemned()) == 1 && w.Left() == 0 })
				m.end()
				got := w.Condemned()
				cause, ok := got[victim]
				if len(got) != 1 || !ok || cause.Reason != codec.ReasonEndsProcess || cause.Attempts != 8 {
					t.Errorf("condemned: %v, want %s alone", got, victim)
				}
				if m.done[victim] != 0 || len(m.done) != tasks-1 {
					t.Errorf("%d tasks done, the guilty one %d times", len(m.done), m.done[victim])
				}
				windowHit(t, m.deaths)
				if m.deaths > c.most {
					t.Errorf("%d deaths, want at most %d", m.deaths, c.most)
				}
				again := 0
				for n := range maps.Values(m.done) {
					again += n - 1
				}
				t.Logf("%d deaths, %d messages split, %d innocent tasks done again, %v", m.deaths, m.split, again, took.Round(time.Second))
			})
		})
	}
}

// Several guilty tasks that take their time to kill: every death finds many innocent ones
// at work; none is condemned, whatever company they were in.
func TestP42OfSeveralGuiltyTasksEachIsFoundAndNobodyElse(t *testing.T) {
	proof.Only(t)
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		segments := w.EverySegment()
		const each = 20
		tasks := 0
		for i := 0; tasks < 1000; i++ {
			tasks += w.PutHome(segments[i%len(segments):i%len(segments)+1], each)
		}
		victims := map[string]bool{}
		for i := range 5 {
			victims[fmt.Sprintf("%v/%d/%d", w.Run, segments[7*i+1], 3*i)] = true
		}
		m := w.mortals(1500*time.Millisecond, processor.Options{Visibility: 30 * time.Second, Concurrency: 16}, func(t *pump.Task) bool { return victims[testworld.Identity(t)] })
		m.dying = time.Second
		m.start("p")
		m.start("q")
		took := m.until("all are done or condemned", func() bool { return m.doneTasks() == tasks-5 && len(w.Condemned()) >= 5 && w.Left() == 0 })
		m.end()
		got := w.Condemned()
		for id, cause := range got {
			if !victims[id] || cause.Reason != codec.ReasonEndsProcess {
				t.Errorf("condemned: %s, %+v", id, cause)
			}
		}
		if len(got) != 5 || m.deaths > 150 {
			t.Errorf("%d condemned, %d deaths", len(got), m.deaths)
		}
		t.Logf("%d deaths, %d messages split, %v", m.deaths, m.split, took.Round(time.Second))
	})
}

// P4.2, window 18: who came through a trial alone is recorded before the next one begins. A result
// that still waited for its commit when the next suspect ended the process would leave
// a mark on a task that is innocent.
func TestP42WhoCameThroughATrialIsRecordedBeforeTheNextBegins(t *testing.T) {
	inOnceWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		const guilty = 10 // the tenth to be tried ends the process
		w.PutSuspects(testworld.SomeSegment, 16, 5)
		var begun atomic.Int64
		died := make(chan struct{})
		h := pump.HandlerFunc(func(ctx context.Context, _ *pump.Task) error {
			switch n := begun.Add(1); {
			case n == guilty:
				w.Crash("p")
				close(died)
				fallthrough
			case n > guilty:
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		p := w.start(w.processor(h, processor.Options{Visibility: 30 * time.Second, Grace: -1}))
		<-died
		p.Stop()
		<-p.Done
		w.ExpectBook(guilty-1, 0)
		windowHit(t, 1)
	})
}

// fenceOff makes another the writer of a segment's ledger, under an epoch above which there is
// none.
func (w *world) fenceOff(segment uint32) {
	w.T.Helper()
	w.fenceAt(segment, 1<<53)
}

// fenceAt makes another the writer of a segment's ledger under an epoch.
func (w *world) fenceAt(segment uint32, epoch uint64) {
	w.T.Helper()
	workload, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
	if err != nil {
		w.T.Error(err)
		return
	}
	l := ledger.Open(w.Table(), workload, ledger.Options{Instance: "another", Record: true})
	if _, err := l.Fence(w.T.Context(), []cluster.Hold{{Segment: segment, Epoch: epoch}}); err != nil {
		w.T.Error(err)
	}
}
