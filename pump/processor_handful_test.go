package pump

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// quickBacklog is one whose tasks have been quick, and the hands of its slots. No slot is at work.
func quickBacklog(slots int) (*backlog, []*handful) {
	b := newBacklog(&ProcessorOptions{Concurrency: slots, MaxBytes: 1 << 30}, false, func() {})
	b.took = 1e-6
	hands := make([]*handful, slots)
	for i := range hands {
		hands[i] = &handful{at: i, ended: time.Now()}
	}
	return b, hands
}

// bring puts an opened message of so many tasks into the backlog.
func (b *backlog) bring(t failer, tasks int) *delivery {
	d := &delivery{count: tasks, place: opening, unstarted: tasks}
	b.unstarted += tasks
	if !b.open(d) {
		t.Fatalf("the message was not taken")
	}
	return d
}

type failer interface {
	Fatalf(format string, args ...any)
}

// Whatever is begun, given back, withdrawn, held and finished in whatever order: every task is begun
// at most once, and either begun or given to whoever withdraws its message; nothing is begun while a
// message is to be split or one is alone, after a withdrawal or after the end; and the sums
// are those of the deliveries.
func TestEveryTaskOfAHandfulIsBegunOnceOrGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 4).Draw(t, "slots")
		b, hands := quickBacklog(slots)
		var all []*delivery
		working := make([]bool, slots)
		begun := map[*delivery][]int{}
		given := map[*delivery]int{}
		begin := func(h *handful) {
			begun[h.d] = append(begun[h.d], h.begun()-1)
			switch {
			case h.d.withdrawn:
				t.Fatalf("a task of a withdrawn message was begun")
			case b.holds > 0:
				t.Fatalf("a task was begun while a message is to be split")
			case b.closed:
				t.Fatalf("a task was begun after the end")
			}
		}
		withdraw := func(d *delivery) {
			n, _ := b.withdraw(d)
			given[d] += n
		}
		steps := map[string]func(*rapid.T){
			"bring": func(*rapid.T) {
				if !b.closed {
					all = append(all, b.bring(t, rapid.IntRange(1, 300).Draw(t, "tasks")))
				}
			},
			"next": func(*rapid.T) {
				i := rapid.IntRange(0, slots-1).Draw(t, "slot")
				if working[i] || !b.mayStart() && !b.closed {
					return // it would wait
				}
				if _, working[i] = b.next(hands[i]); working[i] {
					begin(hands[i])
				}
			},
			"another": func(*rapid.T) {
				i := rapid.IntRange(0, slots-1).Draw(t, "slot")
				if working[i] && hands[i].another() {
					begin(hands[i])
				}
			},
			"end": func(*rapid.T) { // of a handful, or of a task that failed: the next call of next gives back the rest
				i := rapid.IntRange(0, slots-1).Draw(t, "slot")
				if working[i] {
					working[i] = false
					hands[i].starts, hands[i].took, hands[i].ended = hands[i].begun()-hands[i].first, time.Microsecond, time.Now()
				}
			},
			"regain": func(*rapid.T) { b.regain(hands[rapid.IntRange(0, slots-1).Draw(t, "slot")]) },
			"hold":   func(*rapid.T) { b.mu.Lock(); b.holds++; b.regainAll(); b.mu.Unlock() },
			"go on":  func(*rapid.T) { b.holds = 0 },
			"withdraw": func(*rapid.T) {
				if len(all) > 0 {
					withdraw(rapid.SampledFrom(all).Draw(t, "message"))
				}
			},
			"close": func(*rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "close") == 0 {
					for _, d := range b.close() {
						withdraw(d)
					}
				}
			},
			"": func(*rapid.T) {
				unstarted, ready := 0, 0
				for _, d := range all {
					if !d.withdrawn {
						unstarted += d.unstarted
					}
					if d.place == inReady {
						ready += d.unstarted
					}
					inHand := 0
					for _, h := range hands {
						if h.d == d {
							left := h.unbegun()
							inHand += left.to - left.from
						}
					}
					all := slices.Sorted(slices.Values(begun[d]))
					if len(slices.Compact(all)) != len(begun[d]) {
						t.Fatalf("a task was begun twice: %v", begun[d])
					}
					rest := given[d]
					if !d.withdrawn {
						rest = d.unstarted
					}
					if sum := len(begun[d]) + inHand + rest; sum != d.count {
						t.Fatalf("%d begun, %d in hand and %d not started of %d tasks", len(begun[d]), inHand, rest, d.count)
					}
				}
				if b.unstarted != unstarted || b.readyTasks != ready {
					t.Fatalf("%d tasks not started and %d ready, want %d and %d", b.unstarted, b.readyTasks, unstarted, ready)
				}
			},
		}
		t.Repeat(steps)
	})
}

func TestAHandfulIsAShareOfWhatWaitsWhileTasksAreQuick(t *testing.T) {
	for _, c := range []struct {
		what        string
		slots, wait int
		change      func(*backlog)
		want        int
	}{
		{"much waits", 4, 1000, nil, mostInHand},
		{"half of an even share", 4, 80, nil, 10},
		{"fewer than slots", 4, 3, nil, 1},
		{"nothing was measured", 4, 1000, func(b *backlog) { b.took = 0 }, 1},
		{"tasks take long enough to hand out each", 4, 1000, func(b *backlog) { b.took = 21e-6 }, 1},
		{"one was slow lately", 4, 1000, func(b *backlog) { b.slow = time.Now().Add(-slowRest / 2) }, 1},
		{"one was slow long ago", 4, 1000, func(b *backlog) { b.slow = time.Now().Add(-slowRest - time.Second) }, mostInHand},
		{"one start after the other", 4, 1000, func(b *backlog) { b.paced = true }, 1},
	} {
		b, hands := quickBacklog(c.slots)
		b.bring(t, c.wait)
		if c.change != nil {
			c.change(b)
		}
		if _, more := b.next(hands[0]); !more {
			t.Fatal("nothing to start")
		}
		n := 1
		for hands[0].another() {
			n++
		}
		if n != c.want {
			t.Errorf("%s: %d tasks at once, want %d", c.what, n, c.want)
		}
	}
}

// Nothing but time tells a handler that waits from one that works, and what waits behind it need not.
func TestTasksBehindASlowOneOfTheirHandfulAreStartedByOthers(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 2000)
		var done atomic.Int64
		h := &seen{work: func(ctx context.Context, task *Task) error {
			if task.N == 1001 {
				return pause(ctx, 10*time.Minute)
			}
			done.Add(1)
			return nil
		}}
		p := w.start(w.processor(h, ProcessorOptions{Concurrency: 2}))
		w.within(10*time.Second, "all but the slow one are done", func() bool { return done.Load() == 1999 })
		time.Sleep(11 * time.Minute)
		if w.left() != 0 || h.deliveries() != 2000 {
			t.Errorf("%d messages left, %d deliveries", w.left(), h.deliveries())
		}
		p.end()
	})
}

// Each way of ending otherwise than well, in the midst of handfuls, is that of one task alone.
func TestATaskThatFailsInAHandfulFailsAlone(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		what          string
		fail          func(ctx context.Context) error
		failed, again int64
	}{
		{"error", func(context.Context) error { return boom }, 4, 4},
		{"panic", func(context.Context) error { panic(boom) }, 4, 4},
		{"release", func(context.Context) error { return Release(boom) }, 0, 4},
		{"timeout", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 4, 4},
	} {
		t.Run(c.what, func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				w.put("accounta", "work-00", 1, 2000)
				var calls atomic.Int64
				bad := map[uint64]bool{500: true, 501: true, 1100: true, 1999: true}
				first := make([]atomic.Int64, 2001)
				h := &seen{work: func(ctx context.Context, task *Task) error {
					calls.Add(1)
					if first[task.N].Add(1) == 1 && bad[task.N] {
						return c.fail(ctx)
					}
					return nil
				}}
				s := w.drain(h, ProcessorOptions{Concurrency: 1, Timeout: 5 * time.Second})
				if n := calls.Load(); n != 2000+c.again {
					t.Errorf("%d calls, want %d", n, 2000+c.again)
				}
				if s.Failed != c.failed || w.left() != 0 {
					t.Errorf("%d messages left: %+v", w.left(), s)
				}
			})
		})
	}
}

// A handler that never returns costs its own task an attempt: those before it in the handful
// are done, and those behind it are another's.
func TestAHandlerThatHangsInAHandfulIsGivenUpAlone(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 1, 2000)
		release := make(chan struct{})
		defer close(release)
		var hung atomic.Bool
		h := &seen{work: func(_ context.Context, task *Task) error {
			if task.N == 1001 && !hung.Swap(true) {
				<-release
			}
			return nil
		}}
		p := w.start(w.processor(h, ProcessorOptions{Concurrency: 2, Timeout: 5 * time.Second, Grace: time.Second}))
		time.Sleep(5 * time.Minute)
		if w.left() != 0 || h.deliveries() != 2001 || h.tasks() != 2000 {
			t.Errorf("%d messages left, %d deliveries of %d tasks", w.left(), h.deliveries(), h.tasks())
		}
		if s := p.end(); s.Failed != 1 || s.Handled != 2000 {
			t.Errorf("%+v", s)
		}
	})
}

// BenchmarkHandOut is what giving a quick task to a slot and noting its end costs.
func BenchmarkHandOut(bench *testing.B) {
	for _, quick := range []bool{true, false} {
		bench.Run(fmt.Sprintf("quick=%v", quick), func(bench *testing.B) {
			b, hands := quickBacklog(1)
			h := hands[0]
			for i := 0; i < bench.N; {
				if len(b.ready) == 0 {
					b.bring(bench, 1000)
				}
				if !quick {
					b.slow = h.ended
				}
				b.next(h)
				for i++; h.another(); i++ {
				}
				h.ended = time.Now()
				h.starts, h.took = h.begun()-h.first, time.Microsecond
			}
		})
	}
}
