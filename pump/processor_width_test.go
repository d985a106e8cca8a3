package pump

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// served is what a width finds when it looks at handlers whose times are spread like an
// exponential's around mean, so long apart from each other that it goes on for an hour.
func served(seed uint64, began time.Time, w *width, hours float64, behind func(width int) (mean time.Duration, good float64), use float64) (widths []int) {
	r := rand.New(rand.NewPCG(seed, 1))
	var done work
	now := began
	for now.Before(began.Add(time.Duration(hours * float64(time.Hour)))) {
		now = now.Add(widthEvery)
		mean, good := behind(w.now)
		n := use * float64(w.now) * widthEvery.Seconds() / mean.Seconds()
		ended := int64(n)
		if r.Float64() < n-float64(ended) {
			ended++
		}
		if ended > 0 {
			// The mean of so many.
			spread := 1 + r.NormFloat64()/math.Sqrt(float64(ended))
			done.busy += time.Duration(float64(ended) * float64(mean) * max(spread, 0.1))
		}
		finished := int64(good * float64(ended))
		done.finished += finished
		done.failed += ended - finished
		done.starts += ended
		widths = append(widths, w.look(now, done))
	}
	return widths
}

// As many handlers are at work as do the most, and no more of them than that takes.
func TestAWidthIsFoundThatDoesTheMost(t *testing.T) {
	// limited slows down when more than so many are at work, so that they do no more in all.
	limited := func(most float64, alone time.Duration) func(int) (time.Duration, float64) {
		return func(width int) (time.Duration, float64) {
			return time.Duration(float64(alone) * max(1, float64(width)/most)), 1
		}
	}
	for _, c := range []struct {
		name        string
		behind      func(int) (time.Duration, float64)
		use         float64
		least, most int
	}{
		{"waiting for something without a limit", limited(1e9, 100*time.Millisecond), 1, 1024, 1024},
		{"a minute each", limited(1e9, time.Minute), 1, 1024, 1024},
		{"a pool of 300 connections", limited(300, 50*time.Millisecond), 1, 200, 500},
		{"64 is right", limited(64, 50*time.Millisecond), 1, 42, 96},
		{"two processors, a second each", limited(2, time.Second), 1, 8, 20},
		{"too quick to matter", limited(1e9, 100*time.Microsecond), 1, 64, 64},
		{"little to do", limited(1e9, 100*time.Millisecond), 0.5, 64, 64},
		{"what is beyond 150 is refused at once", func(width int) (time.Duration, float64) {
			if width <= 150 {
				return 100 * time.Millisecond, 1
			}
			good, refused := 1500., float64(width-150)*1000 // a second
			return time.Duration(float64(width) / (good + refused) * float64(time.Second)), good / (good + refused)
		}, 1, 96, 150},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				w := newWidth(time.Unix(0, 0))
				widths := served(seed, time.Unix(0, 0), w, 6, c.behind, c.use)
				best := 0.0
				for n := leastWidth; n <= mostWidth; n++ {
					mean, good := c.behind(n)
					best = max(best, good*float64(n)/mean.Seconds())
				}
				// After the first hours, with the trials that go on.
				sum, late := 0.0, widths[len(widths)/2:]
				for _, n := range late {
					mean, good := c.behind(n)
					sum += good * float64(n) / mean.Seconds()
				}
				if part := sum / float64(len(late)) / best; c.use == 1 && c.most > 64 && part < 0.8 {
					t.Errorf("seed %d: %.2f of what is possible", seed, part)
				}
				if w.best < c.least || w.best > c.most {
					t.Errorf("seed %d: %d handlers, want %d to %d", seed, w.best, c.least, c.most)
				}
			}
		})
	}
}

// What handlers wait for changes, and the width with it.
func TestAWidthFollowsWhatChanges(t *testing.T) {
	most := 0.0
	behind := func(width int) (time.Duration, float64) {
		return time.Duration(float64(100*time.Millisecond) * max(1, float64(width)/most)), 1
	}
	w, now := newWidth(time.Unix(0, 0)), time.Unix(0, 0)
	for _, step := range []struct {
		limit       float64
		least, most int
	}{{1e9, 1024, 1024}, {100, 67, 160}, {1e9, 1024, 1024}} {
		most = step.limit
		w.from = work{}
		served(1, now, w, 2, behind, 1)
		now = now.Add(2 * time.Hour)
		if w.best < step.least || w.best > step.most {
			t.Errorf("%d handlers at a limit of %.0f, want %d to %d", w.best, step.limit, step.least, step.most)
		}
	}
}

// A processor without a concurrency lets more handlers be at work while there is more to do
// than they do; with one it never has more than that.
func TestAProcessorFindsItsConcurrency(t *testing.T) {
	for _, concurrency := range []int{0, 64} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, 8, nil, func(t *testing.T, w *world) {
				tasks := w.spread(100, 25)
				var mu sync.Mutex
				var now, most int
				began := time.Now()
				s := w.drain(HandlerFunc(func(context.Context, *Task) error {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					now--
					mu.Unlock()
					return nil
				}), ProcessorOptions{Concurrency: concurrency, UntilIdle: 10 * time.Second})
				took := time.Since(began)
				t.Logf("%d tasks of a second in %v, at most %d at once", s.Handled, took, most)
				if s.Handled != int64(tasks) {
					t.Errorf("%d tasks, want %d", s.Handled, tasks)
				}
				if concurrency > 0 && most > concurrency {
					t.Errorf("%d at once, want at most %d", most, concurrency)
				}
				if concurrency == 0 && (most < 2*firstWidth || took > time.Duration(tasks/firstWidth)*time.Second*2/3) {
					t.Errorf("%d at once, in %v", most, took)
				}
			})
		})
	}
}
