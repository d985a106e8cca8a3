package worlds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// The others pass the messages of an owner that died on and on, with growing delays,
// until one of them has its segments; from then on each must soon come to the new owner, though it
// has been delivered many times and there are many others to get it first.
func TestP7WhatADeadOwnerLeavesInASharedQueueIsDoneSoonAfterItsLease(t *testing.T) {
	for _, processors := range []int{4, 16} {
		t.Run(fmt.Sprintf("%d processors", processors), func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				var hs testworld.Handlings
				var all []*started
				for i := range processors {
					name := fmt.Sprintf("p%02d", i)
					all = append(all, w.join(name, hs.Handler(name, 0), processor.Options{}))
				}
				v := w.Settled(processors)
				time.Sleep(10 * time.Second)
				dead := testworld.Owns(v, "p01")
				w.Fault(azsim.Rule{Instance: "p01", Fault: azsim.FailBefore})
				began := time.Now()
				tasks := 0
				for range 200 / len(dead) {
					tasks += w.PutHome(dead, 1)
				}
				for hs.Tasks() < tasks && time.Since(began) < 20*time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				var delays delays
				for _, h := range hs.Get() {
					delays = append(delays, h.Began.Sub(began))
				}
				slices.Sort(delays)
				t.Logf("done after its last sign of life: %v", delays)
				hs.Check(t)
				// Lease and margin, a beat until somebody looks and one until the others know,
				// and the longest that a message is hidden. Without nudges a delivery is to the
				// owner by one chance in n, so the last of 200 may be passed on for minutes.
				soon := 23*time.Second + 2*member.DefaultBeat*5/4 + passMost + 2*time.Second
				most := delays.percentile(95)
				if hs.Tasks() != tasks || most > soon || delays.percentile(100) > 5*time.Minute {
					t.Errorf("%d of %d tasks, 95%% after %v, all after %v", hs.Tasks(), tasks, most, delays.percentile(100))
				}
				stopAll(all)
			})
		})
	}
}
