package service

import (
	"errors"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestTheMemoryLimitFollowsTheControlGroup(t *testing.T) {
	const mib = 1 << 20
	none := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	unknown := func() (uint64, error) { return 0, errors.New("no control groups") }
	for _, tt := range []struct {
		name     string
		group    memlimit.Provider
		goal     int64
		children bool
		want     uint64 // 0: no limit
	}{
		{"no group", none, 160 * mib, false, 160 * mib},
		{"no group, no goal", none, 0, false, 0},
		{"no groups here", unknown, 160 * mib, true, 160 * mib},
		{"no groups here, no goal", unknown, 0, false, 0},
		{"a small group", memlimit.Limit(100 * mib), 160 * mib, false, 80 * mib},
		{"a large group", memlimit.Limit(1000 * mib), 160 * mib, false, 800 * mib},
		{"a large group, no goal", memlimit.Limit(1000 * mib), 0, false, 800 * mib},
		{"a large group with children", memlimit.Limit(1000 * mib), 160 * mib, true, 160 * mib},
		{"a small group with children", memlimit.Limit(200 * mib), 160 * mib, true, 80 * mib},
		{"a group with children, no goal", memlimit.Limit(1000 * mib), 0, true, 400 * mib},
	} {
		got, err := memoryLimit(tt.group, func() int64 { return tt.goal }, tt.children)()
		if tt.want == 0 && !errors.Is(err, memlimit.ErrNoLimit) || tt.want > 0 && err != nil || got != tt.want {
			t.Errorf("%s: %d, %v; want %d", tt.name, got, err, tt.want)
		}
	}
}
