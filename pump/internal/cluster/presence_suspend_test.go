package cluster

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestAMemberWhoseMachineWasSuspendedTrustsNothingUntilItHasClaimedAnew(t *testing.T) {
	for name, c := range map[string]struct {
		slept time.Duration
		void  bool
	}{
		"a suspended machine":            {time.Minute, true},
		"a clock set forward an hour":    {time.Hour, true},
		"a clock stepped by a second":    {time.Second, false},
		"a clock set back by an hour":    {-time.Hour, false},
		"suspended for less than trust":  {5 * time.Second, false},
		"suspended for more than a beat": {18 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, 8, 64, func(t *testing.T, cr *crowd) {
				var s testkit.Sleeper
				cr.wrap = func(table storage.Table) storage.Table { return row.Suspended(table, s.Ahead) }
				a := cr.join("a")
				cr.settle(5 * time.Second)
				time.Sleep(7 * time.Second)
				s.Sleep(c.slept)
				if got := a.trusted() == 0; got != c.void {
					t.Fatalf("right after it trusts %d", a.trusted())
				}
				if _, ok := a.Hold(0); ok && !a.options.BestEffort && c.void {
					t.Error("it holds a segment")
				}
				time.Sleep(12 * time.Second) // a beat, and a look
				epoch := uint64(1)
				if c.void {
					epoch = 2
				}
				for segment, owner := range cr.load().Owners {
					if owner.Epoch != epoch || !a.Trusted(uint32(segment)) {
						t.Fatalf("segment %d: owner %+v, trusted %v; want epoch %d", segment, owner, a.Trusted(uint32(segment)), epoch)
					}
				}
			})
		})
	}
}

// A wall clock that steps again and again costs a claim round each time, and
// nothing else: no member is evicted, nothing is without an owner for long.
func TestAWallClockThatStepsCostsFewClaimRoundsABeat(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, cr *crowd) {
		began := time.Now()
		steps := func(at time.Time) time.Duration { return at.Sub(began) / time.Second * time.Minute } // a minute in each second
		a := cr.join("a")
		cr.wrap = func(table storage.Table) storage.Table { return row.Suspended(table, steps) }
		b := cr.join("b")
		cr.wrap = nil
		time.Sleep(5 * time.Minute)
		v := cr.load()
		if len(v.Members) != 2 || a.trusted() == 0 {
			t.Errorf("%d members, a trusts %d, b %d", len(v.Members), a.trusted(), b.trusted())
		}
		for _, owner := range v.Owners {
			// Beats of 15/16 of 5 s bring a claim each. A step between a claim and the beat that
			// tells of it costs a claim more, and that one too where the next step is as near.
			// Without a bound there would be one each 250 ms.
			if owner.Epoch > 2*5*60*16/(15*5) {
				t.Errorf("in five minutes a segment came to epoch %d", owner.Epoch)
				break
			}
		}
	})
}
