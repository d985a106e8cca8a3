package handlers

import (
	"errors"
	"testing"

	"github.com/queuepump/queuepump/pump"
)

// TestWhenACommandIsBroken: what happens to it, in order, and whether that makes it so.
func TestWhenACommandIsBroken(t *testing.T) {
	why := errors.New("why")
	number := func(n int) *pump.Task { return &pump.Task{N: uint64(n)} }
	dies := func(times, tasks int) func(*health) {
		return func(h *health) {
			for i := range times {
				h.dies(number(i%tasks), why)
			}
		}
	}
	refuses := func(times, tasks int) func(*health) {
		return func(h *health) {
			for i := range times {
				h.refuses(number(i%tasks), why)
			}
		}
	}
	starts := func(times int) func(*health) {
		return func(h *health) {
			for range times {
				h.doesNotStart(why)
			}
		}
	}
	cannot := func(times int) func(*health) {
		return func(h *health) {
			for range times {
				h.cannotRun(number(1), why)
			}
		}
	}
	works := (*health).works
	for name, tt := range map[string]struct {
		broken bool
		events []func(*health)
	}{
		"two poisoned tasks, nothing done yet":          {false, []func(*health){dies(16, 2)}},
		"the first tasks all kill it":                   {true, []func(*health){dies(5, 3)}},
		"one less":                                      {false, []func(*health){dies(4, 3)}},
		"many poisoned tasks after one was done":        {false, []func(*health){works, dies(49*8, 49)}},
		"many poisoned tasks, and done ones in between": {false, []func(*health){works, dies(49, 49), works, dies(49, 49)}},
		"all tasks kill it after one was done":          {true, []func(*health){works, dies(50, 50)}},
		"it is never started":                           {true, []func(*health){starts(4)}},
		"no process for a moment":                       {false, []func(*health){works, starts(19)}},
		"no process any more":                           {true, []func(*health){works, starts(20)}},
		"not found by the shell":                        {true, []func(*health){cannot(4)}},
		"not found for one task":                        {false, []func(*health){works, cannot(100)}},
		"20 different tasks fail, none done":            {true, []func(*health){refuses(20, 20)}},
		"19 different tasks fail again and again":       {false, []func(*health){refuses(19*8, 19)}},
		"tasks fail after one was done":                 {false, []func(*health){works, refuses(1000, 1000)}},
	} {
		t.Run(name, func(t *testing.T) {
			reports := 0
			h := newHealth(func(error) { reports++ })
			for _, event := range tt.events {
				event(h)
			}
			broken := false
			select {
			case <-h.broken:
				broken = true
			default:
			}
			if broken != tt.broken || reports > 1 || broken != (reports == 1) {
				t.Errorf("broken: %v, reported %d times", broken, reports)
			}
		})
	}
}
