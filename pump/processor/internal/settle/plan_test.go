package settle

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestGroupingOfRetriesLosesNoTaskAndMakesNoneEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "tasks")
		wanted := map[int]retryGroup{}
		var rest []retryGroup
		for i := range n {
			a := retryGroup{
				attempt: rapid.Uint32Range(0, 1).Draw(t, "attempt"),
				delay:   time.Duration(rapid.Int64Range(0, int64(storage.MaxVisibility)).Draw(t, "delay")),
				tasks:   []int{i},
			}
			wanted[i] = a
			rest = append(rest, a)
		}
		groups := groupRetries(rest)
		if len(groups) > 44 {
			t.Fatalf("%d groups", len(groups))
		}
		for _, g := range groups {
			if g.delay%time.Second != 0 || g.delay > storage.MaxVisibility {
				t.Fatalf("delay %v", g.delay)
			}
			if !slices.IsSorted(g.tasks) { // envelopes are packed in the order of n
				t.Fatalf("tasks %v", g.tasks)
			}
			for _, i := range g.tasks {
				w, ok := wanted[i]
				if !ok {
					t.Fatalf("task %d twice", i)
				}
				delete(wanted, i)
				if g.attempt != w.attempt || g.delay < w.delay.Truncate(time.Second) || g.delay > 2*w.delay+2*time.Second {
					t.Fatalf("task that asked for %v (attempt %d) comes back after %v (attempt %d)", w.delay, w.attempt, g.delay, g.attempt)
				}
				if g.delay < w.delay && g.delay != storage.MaxVisibility {
					t.Fatalf("task that asked for %v comes back after %v", w.delay, g.delay)
				}
			}
		}
		if len(wanted) != 0 {
			t.Fatalf("lost %v", wanted)
		}
	})
}

func TestJitterIsAFunctionOfWhoWhatAndHowOften(t *testing.T) {
	a, b := waits.Jitter("a"), waits.Jitter("b")
	proof.Same(t, a.Float("x", "y", 1), a.Float("x", "y", 1), "not a function")
	for _, other := range []float64{b.Float("x", "y", 1), a.Float("z", "y", 1), a.Float("x", "z", 1), a.Float("x", "y", 2), a.Float("xy", "", 1)} {
		if other == a.Float("x", "y", 1) {
			t.Error("another occasion draws the same")
		}
	}
	sum := 0.0
	for n := range uint64(10_000) {
		s := a.Float("x", "y", n)
		if s < 0 || s >= 1 {
			t.Fatalf("%v", s)
		}
		sum += s
		if d := a.Around(time.Second, "x", "y", n); d < 750*time.Millisecond || d > 1250*time.Millisecond {
			t.Fatalf("around a second: %v", d)
		}
		if d := a.Full(time.Second, time.Minute, "x", "y", n); d < 0 || d >= time.Minute {
			t.Fatalf("at most a minute: %v", d)
		}
	}
	if sum < 4900 || sum > 5100 {
		t.Errorf("the mean of 10,000 draws is %v", sum/10_000)
	}
	proof.Same(t, waits.Doubled(time.Second, time.Minute, 1<<40), time.Minute, "doubled often")
	proof.Same(t, waits.Doubled(0, time.Minute, 1<<40), 0, "nothing doubled")
}
