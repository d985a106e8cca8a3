package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// holder is a member that was told nothing yet. It was given some of eight segments.
func holder(t *testing.T, bestEffort bool, segments ...uint32) *Presence {
	t.Helper()
	p := &Presence{options: Options{BestEffort: bestEffort}, times: row.Times{Beat: 5 * time.Second, Lease: 20 * time.Second, Margin: 3 * time.Second}, holds: make([]*holding, 8)}
	p.alarm = time.AfterFunc(time.Hour, p.expire)
	p.renew(row.Version[memberRow]{Sent: time.Now()})
	var claims []change
	for _, s := range segments {
		claims = append(claims, change{segment: s, to: Owner{Epoch: uint64(s) + 100}})
	}
	if !p.take(claims) {
		t.Fatal("the claims of a member that is trusted were not taken")
	}
	t.Cleanup(func() { p.alarm.Stop() })
	return p
}

// P5.2: what Hold gives is a segment that is held, not handed over, and trusted; with a best effort
// it need not be trusted.
func TestWhatHoldGives(t *testing.T) {
	for what, c := range map[string]struct {
		then                 func(p *Presence)
		trusted, anyhow      bool // given: by a member that needs trust, and as a best effort
		endsTrusted, endsAny error
	}{
		"claimed":        {func(*Presence) {}, true, true, nil, nil},
		"just before":    {func(p *Presence) { time.Sleep(p.times.Trust() - time.Nanosecond) }, true, true, nil, nil},
		"without a beat": {func(p *Presence) { time.Sleep(p.times.Trust()) }, false, true, ErrSegmentLost, nil},
		"the alarm is late": {func(p *Presence) {
			p.alarm.Stop() // of a process that was stopped and goes on, Hold may come first
			time.Sleep(p.times.Trust())
		}, false, true, nil, nil},
		"evicted":         {func(p *Presence) { p.voidAll(errEvicted) }, false, true, ErrSegmentLost, nil},
		"being drained":   {func(p *Presence) { p.drainAll() }, false, false, nil, nil},
		"handed over":     {func(p *Presence) { p.end([]uint32{3}, ErrHandedOver) }, false, false, ErrHandedOver, ErrHandedOver},
		"taken by others": {func(p *Presence) { p.end([]uint32{3}, errTakenOver) }, false, false, ErrSegmentLost, ErrSegmentLost},
		"another is":      {func(p *Presence) { p.end([]uint32{4}, errTakenOver) }, true, true, nil, nil},
		"claimed again too late": {func(p *Presence) {
			time.Sleep(p.times.Trust())
			p.renew(row.Version[memberRow]{Sent: time.Now()})
		}, false, true, ErrSegmentLost, nil},
	} {
		for _, bestEffort := range []bool{false, true} {
			given, ends := c.trusted, c.endsTrusted
			if bestEffort {
				given, ends = c.anyhow, c.endsAny
			}
			synctest.Test(t, func(t *testing.T) {
				p := holder(t, bestEffort, 3, 4)
				before, ok := p.Hold(3)
				if !ok || before.Segment != 3 || before.Epoch != 103 || before.Context().Err() != nil {
					t.Fatalf("%+v, %v", before, ok)
				}
				c.then(p)
				synctest.Wait() // for the alarm
				after, ok := p.Hold(3)
				if ok != given || ok && (after.Epoch != 103 || after.Context() != before.Context()) {
					t.Errorf("%s, best effort %v: %+v, %v, want %v", what, bestEffort, after, ok, given)
				}
				proof.Is(t, context.Cause(before.Context()), ends,
					what, "best effort", bestEffort, "what was given ends")
				// A segment that is being handed over is trusted until it is given up.
				if want := c.trusted || what == "being drained"; p.Trusted(3) != want {
					t.Errorf("%s, best effort %v: trusted %v, want %v", what, bestEffort, !want, want)
				}
			})
		}
	}
}

func TestHoldGivesNothingThatIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := holder(t, true, 3)
		for _, s := range []uint32{0, 2, 4, 7, 8, 1 << 31} {
			if h, ok := p.Hold(s); ok {
				t.Errorf("segment %d is given: %+v", s, h)
			}
		}
		p.holds = nil // a shared workload
		if _, ok := p.Hold(3); ok {
			t.Error("a segment of a shared workload is given")
		}
	})
}

// A segment that is claimed again after trust was lost has another epoch. A handler that worked as
// a best effort goes on; one that needs trust has lost the one before for good.
func TestWhatIsClaimedAgainIsHeldWithTheNewEpoch(t *testing.T) {
	for _, bestEffort := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := holder(t, bestEffort, 3)
			before, _ := p.Hold(3)
			time.Sleep(p.times.Trust())
			p.renew(row.Version[memberRow]{Sent: time.Now()})
			if !p.take([]change{{segment: 3, to: Owner{Epoch: 200}}}) {
				t.Fatal("it was not taken")
			}
			after, ok := p.Hold(3)
			if !ok || after.Epoch != 200 || !p.Trusted(3) || after.Context().Err() != nil || (after.Context() == before.Context()) != bestEffort {
				t.Errorf("best effort %v: %+v, %v", bestEffort, after, ok)
			}
		})
	}
}

// A Hold that no Presence gave, as of a segment in a shared workload, never ends.
func TestAHoldOfNobodyNeverEnds(t *testing.T) {
	if ctx := (Hold{Segment: 1}).Context(); ctx == nil || ctx.Done() != nil {
		t.Errorf("it may end: %v", ctx)
	}
}
