package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestLeaveHandsOverAtOnceAndRemovesTheRow(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a, b, _ := c.joinTwo(5 * time.Second)
		time.Sleep(time.Minute)
		holds := a.held()
		begun := time.Now()
		a.Leave(t.Context())
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(a.drained()) < 32 || len(a.held()) > 0 || a.trusted() > 0 {
			t.Errorf("drained %d, held %d, trusted %d", len(a.drained()), len(a.held()), a.trusted())
		}
		for _, h := range holds {
			if !errors.Is(context.Cause(h.Context()), ErrHandedOver) {
				t.Fatalf("segment %d: %v", h.Segment, context.Cause(h.Context()))
			}
		}
		v := c.settle(2 * time.Second)
		if got := shares(v); got != "b:64" || v.Index("a") >= 0 {
			t.Errorf("shares %s, members %d", got, len(v.Members))
		}
		a.Leave(t.Context()) // once more is nothing
		proof.Same(t, b.trusted(), 64, "b trusts")
	})
}

func TestLeaveEndsWithItsContextWhenTheTableIsDark(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a", func(o *Options) { o.BestEffort = true })
		c.settle(5 * time.Second)
		holds := a.held()
		for s := range uint32(64) {
			a.busy(true, s)
		}
		c.isolate("a")
		time.Sleep(7 * time.Second) // a beat hangs
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		begun := time.Now()
		time.AfterFunc(time.Second, func() {
			if len(a.drained()) != 64 || len(a.held()) != 0 {
				t.Errorf("drained %d, held %d while the table hangs", len(a.drained()), len(a.held()))
			}
		})
		a.Leave(ctx)
		if took := time.Since(begun); took > 8*time.Second {
			t.Errorf("it took %v", took)
		}
		if holds[0].Context().Err() == nil || a.trusted() != 0 {
			t.Error("a hold outlives Leave")
		}
	})
}

func TestLeaveGivesUpWhatIsStillInHandInTimeToSaySo(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a, _, _ := c.joinTwo(5 * time.Second)
		for s := range uint32(64) {
			a.busy(true, s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		begun := time.Now()
		a.Leave(ctx)
		if took := time.Since(begun); took < 6*time.Second || took > 7*time.Second {
			t.Errorf("it took %v", took)
		}
		proof.Same(t, shares(c.settle(time.Second)), "b:64", "shares")
	})
}

// A process that gives up joining while its insert is under way leaves no row behind: with none to
// evict it, as when a short run was alone, it would stay for good.
func TestAJoinGivenUpOnTheWayLeavesNoRow(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		ctx, cancel := context.WithCancel(t.Context())
		c.setTamper(func(_ context.Context, name string, w storage.Write, acted bool) error {
			if name != "a" || !acted || w.Mode != storage.Insert {
				return nil
			}
			cancel()
			return errNoAnswer
		})
		w, err := workload.Load(t.Context(), c.table("a"), "city")
		must(t, err)
		o := Options{Instance: "a", Role: RoleDistributor, Host: "host", Version: "test"}
		if _, err := Join(ctx, w, o); err == nil || ctx.Err() == nil {
			t.Fatalf("joining: %v", err)
		}
		if v := c.load(); v.Index("a") >= 0 {
			t.Error("its row is there")
		}
	})
}
