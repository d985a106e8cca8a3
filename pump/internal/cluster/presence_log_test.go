package cluster

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
)

// told is how many lines of the log say something.
func (c *crowd) told(what string) int { return strings.Count(c.logged(), what) }

func TestEachLineOfTheLogNamesWorkloadAndInstanceOnce(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		_, b, _ := c.joinTwo(10 * time.Second)
		heal := c.isolate("a")
		time.Sleep(time.Minute)
		heal()
		c.settle(30 * time.Second)
		b.Leave(t.Context())
		lines := strings.Split(strings.TrimSpace(c.logged()), "\n")
		for _, line := range lines {
			if strings.Count(line, " workload=city") != 1 || strings.Count(line, " instance=") != 1 {
				t.Error(line)
			}
		}
		if len(lines) < 6 {
			t.Errorf("%d lines", len(lines))
		}
	})
}

// TestALateBeatIsToldOnce, although of the next one, too, the answer finds no trust.
func TestALateBeatIsToldOnce(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		c.settle(5 * time.Second)
		for range 2 {
			var late atomic.Bool
			c.setTamper(func(_ context.Context, _ string, w storage.Write, acted bool) error {
				if acted && w.Entity.Row == a.row.Key && !late.Swap(true) {
					time.Sleep(20 * time.Second) // trust is over after 17 s
				}
				return nil
			})
			time.Sleep(time.Minute)
		}
		proof.Same(t, c.told("a beat was answered too late"), 2, "told … times of two late beats")
	})
}

// TestWhatLastsIsToldWhenItBeginsOnceAMinuteAndWhenItIsOver for looks and for beats.
func TestWhatLastsIsToldWhenItBeginsOnceAMinuteAndWhenItIsOver(t *testing.T) {
	for _, tt := range []struct {
		rule          azsim.Rule
		during, after string
	}{
		{azsim.Rule{Operations: []string{"QueryEntities"}, Fault: azsim.Answer}, "the cluster could not be looked at", "the cluster could be looked at again"},
		{azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthorizationFailure"}, "a beat failed", "beats are answered again"},
	} {
		t.Run(tt.during, func(t *testing.T) {
			inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
				c.join("a")
				c.settle(5 * time.Second)
				for range 2 {
					rule := tt.rule
					rule.Instance = "a"
					before := c.told(tt.during)
					trouble := c.sim.Inject(rule)
					time.Sleep(20 * time.Second)
					proof.Same(t, c.told(tt.during)-before, 1, "told … times in the beginning")
					time.Sleep(160 * time.Second)
					trouble.Remove()
					time.Sleep(30 * time.Second)
					proof.Same(t, c.told(tt.during)-before, 3, "told … times in three minutes")
				}
				proof.Same(t, c.told(tt.after), 2, "told … times that it was over")
			})
		})
	}
}
