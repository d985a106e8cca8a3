package service

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// aloneInGroup is the part of a control group's memory that the garbage collector may take if its
	// process is alone there: stacks, buffers of the kernel and pages of files need the rest.
	aloneInGroup = 0.8
	// withChildren is that part if children, which do the work, share the group.
	withChildren = 0.4
	// memoryEvery is how often the group's limit is looked at, which may be changed while it is in use
	// (systemctl set-property, a resized pod).
	memoryEvery = time.Minute
)

// LimitMemory gives the garbage collector a soft limit: the limit of this process's control group,
// or goal if the group has none. A goal of 0 means no limit. If children share the group, the limit
// is at most goal. GOMEMLIMIT in the environment takes precedence. LimitMemory follows the group
// and the goal until ctx ends.
func LimitMemory(ctx context.Context, goal func() int64, children bool, log *slog.Logger) {
	limit := memoryLimit(memlimit.FromCgroup, goal, children)
	_, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(1),
		memlimit.WithRefreshInterval(ctx, memoryEvery))
	if err != nil {
		log.Warn("the memory limit cannot be set", "error", err)
	}
}

// memoryLimit makes a provider of a limit by that of the control group.
func memoryLimit(group memlimit.Provider, goalNow func() int64, children bool) memlimit.Provider {
	part := aloneInGroup
	if children {
		part = withChildren
	}
	return func() (uint64, error) {
		of, err := group()
		goal := uint64(goalNow())
		switch {
		case err == nil && of < math.MaxInt64:
			limit := uint64(part * float64(of))
			if children && goal > 0 {
				limit = min(limit, goal)
			}
			return limit, nil
		case goal > 0:
			return goal, nil
		}
		return 0, memlimit.ErrNoLimit // also without control groups
	}
}
