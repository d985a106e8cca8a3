package scenario

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// times are all due times of loads with a schedule.
func times(loads ...load) (at []time.Duration) {
	s := schedule{loads: loads}
	for {
		d, ok := s.next(0)
		if !ok {
			return at
		}
		at = append(at, d.at)
	}
}

func TestAScheduleInPhasesIsThatOfTheWhole(t *testing.T) {
	const rate = 500
	whole := times(load{until: 20 * time.Second, rate: rate})
	if len(whole) != 10_000 {
		t.Fatalf("%d tasks in 20 s at %d a second", len(whole), rate)
	}
	rapid.Check(t, func(t *rapid.T) {
		var loads []load
		for end := 0; end < 20_000; {
			end = min(end+rapid.IntRange(1, 15_000).Draw(t, "ms"), 20_000)
			loads = append(loads, load{until: time.Duration(end) * time.Millisecond, rate: rate})
		}
		got := times(loads...)
		if len(got) != len(whole) {
			t.Fatalf("%d tasks, want %d", len(got), len(whole))
		}
		for i := range got {
			if d := got[i] - whole[i]; d < -time.Microsecond || d > time.Microsecond {
				t.Fatalf("task %d is due at %v, want %v", i, got[i], whole[i])
			}
		}
	})
}

func TestATaskThatALoadHasBegunIsNotDueAgainInTheNext(t *testing.T) {
	// 2.5 tasks a second for a second are due at 0, 400 and 800 ms: half of the third one
	// belongs to the next load, whose first is due half of its own time later.
	got := times(load{until: time.Second, rate: 2.5}, load{until: 2 * time.Second, rate: 5})
	want := []time.Duration{0, 400, 800, 1100, 1300, 1500, 1700, 1900}
	if len(got) != len(want) {
		t.Fatalf("due at %v", got)
	}
	for i := range want {
		proof.Same(t, got[i], want[i]*time.Millisecond, "task", i, "due at")
	}
}
