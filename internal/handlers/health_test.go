package handlers

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// scarceFor is so many starts without a file descriptor.
func scarceFor(times int) func(*health) {
	return func(h *health) {
		for range times {
			h.doesNotStart(&os.SyscallError{Syscall: "pipe2", Err: syscall.EMFILE})
		}
	}
}

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
	after := func(d time.Duration) func(*health) { return func(*health) { time.Sleep(d) } }
	for name, tt := range map[string]struct {
		broken bool
		events []func(*health)
	}{
		"two poisoned tasks, nothing done yet":          {false, []func(*health){dies(8, 2), after(time.Hour), dies(8, 2)}},
		"the first tasks all kill it":                   {true, []func(*health){dies(4, 3), after(unusableTime), dies(1, 3)}},
		"all within a moment":                           {false, []func(*health){dies(64, 64)}},
		"one less":                                      {false, []func(*health){dies(3, 3), after(unusableTime), dies(1, 3)}},
		"many poisoned tasks after one was done":        {false, []func(*health){works, dies(49*8, 49), after(time.Hour), dies(49, 49)}},
		"many poisoned tasks, and done ones in between": {false, []func(*health){works, dies(49, 49), works, after(time.Hour), dies(49, 49)}},
		"all tasks kill it after one was done":          {true, []func(*health){works, dies(49, 49), after(usedTime), dies(50, 50)}},
		"64 children die at once after one was done":    {false, []func(*health){works, dies(64, 64), after(usedTime - 1), dies(64, 64)}},
		"it is never started":                           {true, []func(*health){starts(3), after(unusableTime), starts(1)}},
		"64 children are not started at once":           {false, []func(*health){starts(64)}},
		"no process for a moment":                       {false, []func(*health){works, starts(64), after(usedTime - 1), starts(64)}},
		"no process any more":                           {true, []func(*health){works, starts(64), after(usedTime), starts(1)}},
		"no descriptors for an hour":                    {false, []func(*health){scarceFor(64), after(time.Hour), scarceFor(64)}},
		"no descriptors for an hour after one was done": {false, []func(*health){works, scarceFor(64), after(time.Hour), scarceFor(64)}},
		"not found by the shell":                        {true, []func(*health){cannot(3), after(unusableTime), cannot(1)}},
		"not found for one task":                        {false, []func(*health){works, cannot(100), after(time.Hour), cannot(100)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where time passes only as the test says
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
		})
	}
}

// TestACommandThatCannotBeStartedIsReportedWithItsMend, if there is one.
func TestACommandThatCannotBeStartedIsReportedWithItsMend(t *testing.T) {
	for _, why := range []syscall.Errno{syscall.ENOENT, syscall.EACCES} {
		synctest.Test(t, func(t *testing.T) {
			var reported error
			h := newHealth(func(err error) { reported = err })
			for range unusableStarts {
				time.Sleep(unusableTime)
				h.doesNotStart(fmt.Errorf("starting the command: %w", &os.PathError{Op: "fork/exec", Path: "x", Err: why}))
			}
			if !errors.Is(reported, why) || !strings.HasSuffix(reported.Error(), why.Error()+"; "+fixes[why]) {
				t.Errorf("reported %v", reported)
			}
		})
	}
}

func TestAStartThatHangsIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(func(err error) { t.Error(err) })
		begins := make(chan error)
		done := make(chan error)
		go func() { done <- h.timed(discard(), func() error { return <-begins }) }()
		time.Sleep(10 * time.Second)
		proof.Same(t, h.Amiss(), "starting the command has not returned, for 5s", "amiss")
		begins <- nil
		if err := <-done; err != nil || h.Amiss() != "" {
			t.Errorf("%v, %q", err, h.Amiss())
		}
	})
}
