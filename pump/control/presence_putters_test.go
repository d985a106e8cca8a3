package control

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// What the members read grows with their number, not with its square: four of them
// look in each beat and sixteen others in turn, and each beats.
func TestManyDistributorsReadInProportionToTheirNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := azsim.PublishedLimits()
		limits.QueryCost = 1000
		c := &crowd{t: t, members: map[string]*testMember{}, sim: azsim.New(azsim.Config{
			Accounts: []azsim.Account{{Name: "north"}}, Seed: 7, Latency: 20 * time.Millisecond, Limits: limits, CountPartitions: true,
		})}
		c.ensure(c.table("setup"), WorkloadSpec{Name: "city", Segments: 64, Delivery: DeliverAtLeastOnce, Shards: queuesOf(8)})
		const n = 160
		for i := range n {
			c.join(fmt.Sprintf("m%03d", i), func(o *PresenceOptions) {
				if o.Role = RoleDistributor; i%20 == 0 {
					o.Role = RoleProcessor
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		entities := func() int64 {
			for _, l := range c.sim.PartitionLoads() {
				if l.Partition == "city" {
					return l.Entities
				}
			}
			return 0
		}
		time.Sleep(2 * time.Minute)
		before, began := entities(), time.Now()
		time.Sleep(3 * time.Minute)
		each := float64(entities()-before) / time.Since(began).Seconds()
		t.Logf("%.0f entities a second", each)
		if each > 5*n {
			t.Errorf("%d members read and write %.0f entities a second, want 4 and a beat for each at most", n, each)
		}
		for _, m := range c.members {
			go m.Leave(t.Context())
		}
		for _, m := range c.members {
			<-m.done
		}
	})
}
