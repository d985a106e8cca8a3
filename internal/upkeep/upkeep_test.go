package upkeep

import (
	"math"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestIdleQueuesTogetherAreAskedTenTimesASecond(t *testing.T) {
	for pairs, want := range map[int]time.Duration{8: 5 * time.Second, 50: 5 * time.Second, 96: 9600 * time.Millisecond} {
		proof.Same(t, IdlePause(pairs), want, pairs, "pairs are idle")
	}
	proof.Same(t, IdleGets(1000), IdleRate, "1,000 idle queues cost … gets a second")
}

func TestPausesGrowUpToABound(t *testing.T) {
	for _, c := range []struct {
		pause  time.Duration
		slower float64
		want   time.Duration
	}{
		{5 * time.Second, 1, 5 * time.Second},
		{5 * time.Second, MostSlower, time.Minute},
		{100 * time.Second, MostSlower, SlowestPause},
		{10 * time.Minute, MostSlower, 10 * time.Minute}, // never shorter than without
	} {
		proof.Same(t, SlowPause(c.pause, c.slower), c.want, c.pause, c.slower, "times as slow")
	}
}

// By hand: 8 queues a minute; two processes with two requests in 5 s, and a row a minute; 8 queues
// and 2 quarantines counted a minute.
func TestTheLeastIsWhatCannotBeSlowed(t *testing.T) {
	queues, tables := Fleet{Processors: 1, Distributors: 1, Accounts: 2, Queues: 8, Sample: 15 * time.Second}.Least()
	if want := 8./60 + 10./60; math.Abs(queues-want) > 1e-9 {
		t.Errorf("%v requests a second to queues, want %v", queues, want)
	}
	if want := 0.8 + 1./60; math.Abs(tables-want) > 1e-9 {
		t.Errorf("%v requests a second to tables, want %v", tables, want)
	}
	_, once := Fleet{Processors: 1, Distributors: 1, Accounts: 2, Queues: 8, Segments: 256, Once: true}.Least()
	if want := 0.8 + 1./60 + 6./15; math.Abs(once-want) > 1e-9 {
		t.Errorf("once: %v requests a second to tables, want %v", once, want)
	}
}
