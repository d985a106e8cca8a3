package trial_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

// What leaves no room for a header has what is known of "not now" in a row, which goes with it.
func TestAFullTextThatIsToldNotNowHasARow(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		text := testworld.Incompressible(64 << 10)
		id := w.PutText("accounta", "work-00", text)
		away := time.Now().Add(2 * time.Hour)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			proof.Same(t, task.Attempt, 1, "attempt")
			if time.Now().Before(away) {
				return pump.Busy(time.Minute, testworld.ErrFlop)
			}
			return nil
		}}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 3}})
		time.Sleep(time.Until(away) - time.Minute)
		row, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id)
		if n, _ := row.Properties["NotNow"].(int64); err != nil || n < 10 || n > 60 || row.Properties["Attempts"] != int64(0) {
			t.Errorf("its row says %v, %v", row.Properties, err)
		}
		time.Sleep(15 * time.Minute)
		s := p.End()
		if s.Handled != 1 || s.Quarantined+s.Failed > 0 || w.Left() != 0 || w.Logged("may have ended its processes") > 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
		if _, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id); !storage.Is(err, storage.Gone) {
			t.Errorf("its row is left: %v", err)
		}
	})
}

// P4.2: a text without room for a mark has its attempts counted in a row, and is
// quarantined by these, never by how often it was delivered.
func TestP42AFullForeignTextHasItsAttemptsInARow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) // so that it cannot be compressed into an envelope
	full := make([]byte, storage.MaxText)
	for i := range full {
		full[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,:;!?'()[]{}=+-*/%$#@_|~^"[random.IntN(88)]
	}
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		id := w.PutText("accounta", "work-00", full)
		w.PassAround("accounta", "work-00", 40)
		m := mortalsOf(w, 0, processor.Options{Visibility: 10 * time.Second}, func(t *pump.Task) bool { return t.Foreign == "work-00/"+id })
		m.start("p")
		m.until("it is quarantined", func() bool { return w.Left() == 0 })
		m.end()
		texts := w.Poisoned("accounta")
		if m.deaths != 8 || len(texts) != 1 || !bytes.Equal(texts[0], full) {
			t.Errorf("%d deaths, %d messages in quarantine", m.deaths, len(texts))
		}
		e, err := w.Table().Read(t.Context(), "work.quarantine", "accounta.work-00."+id)
		if err != nil || e.Properties["Reason"] != codec.ReasonEndsProcess || e.Properties["Attempts"] != int64(8) {
			t.Errorf("the cause's row: %v, %v", e.Properties, err)
		}
		if _, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id); !storage.Is(err, storage.Gone) {
			t.Errorf("the row of attempts is still there: %v", err)
		}
	})
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		id := w.PutText("accounta", "work-00", full)
		w.PassAround("accounta", "work-00", 40)
		n := 0
		h := pump.HandlerFunc(func(context.Context, *pump.Task) error {
			if n++; n < 20 {
				return pump.Release(nil)
			}
			return nil
		})
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
		if s.Handled != 1 || s.Quarantined != 0 || n != 20 {
			t.Errorf("released %d times: %+v", n, s)
		}
		if _, err := w.Table().Read(t.Context(), "work.attempts", "accounta.work-00."+id); !storage.Is(err, storage.Gone) {
			t.Errorf("the row of attempts is still there: %v", err)
		}
	})
}

// A19, P4.2: a task that failed under a larger --max-attempts is no task that ended processes.
// After a restart with a smaller one the processor quarantined it as such, without a trial.
func TestP42FewerAttemptsAfterARestartCondemnNobodyWithoutATrial(t *testing.T) {
	for name, attempts := range map[string]uint32{"as many as the attempts that it made": 3, "fewer": 5} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				w.PutSuspects(testworld.SomeSegment, 1, attempts)
				s := testworld.Ran(w, processor.New, "p", &testworld.Seen{}, processor.Options{Retry: pump.RetryPolicy{MaxAttempts: 3}, UntilIdle: 2 * time.Minute})
				if s.Handled != 1 || s.Quarantined != 0 || w.Left() != 0 {
					t.Errorf("%+v", s)
				}
				proof.Same(t, w.Logged("was written down before it begins"), 1, "trials")
			})
		})
	}
}

// mortals are processors that a guilty task kills, and that are started again, each time
// under another name, as a supervisor would.
type mortals struct {
	w      *testworld.World
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

func mortalsOf(w *testworld.World, each time.Duration, o processor.Options, guilty func(*pump.Task) bool) *mortals {
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
	p := testworld.Begun(m.w, processor.New, instance, h, o)
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
		spec                                           workload.Spec
	}{
		{"its own queue", 1, 1, 1, 100, 30, 5 * time.Millisecond, testworld.Plain},
		{"own queues, slow tasks", 2, 2, 2, 100, 30, 2 * time.Second, testworld.Plain},
		{"own queues, slow tasks, once", 2, 2, 2, 100, 30, 2 * time.Second, testworld.Once},
		{"one queue with eight owners", 1, 1, 8, 10, 80, 5 * time.Millisecond, testworld.Plain},
		{"one queue with eight owners, once", 1, 1, 8, 10, 80, 5 * time.Millisecond, testworld.Once},
	} {
		t.Run(c.name, func(t *testing.T) {
			testworld.In(t, c.spec, c.accounts, c.queues, nil, func(t *testing.T, w *testworld.World) {
				segments := w.EverySegment()
				tasks := 0
				for i := 0; tasks < 1000; i++ {
					tasks += w.PutHome(segments[i%len(segments):i%len(segments)+1], c.perMessage)
				}
				victim := fmt.Sprintf("%v/%d/%d", w.Run, segments[3], c.perMessage/2)
				m := mortalsOf(w, c.each, processor.Options{Visibility: 30 * time.Second}, func(t *pump.Task) bool { return testworld.Identity(t) == victim })
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
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
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
		m := mortalsOf(w, 1500*time.Millisecond, processor.Options{Visibility: 30 * time.Second, Concurrency: 16}, func(t *pump.Task) bool { return victims[testworld.Identity(t)] })
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
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
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
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Visibility: 30 * time.Second, Grace: -1})
		<-died
		p.Stop()
		<-p.Done
		w.ExpectBook(guilty-1, 0)
	})
}
