package processor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/trial"
)

// deliveryCounts notes how often the messages of what is handled were delivered.
type deliveryCounts struct {
	mu  sync.Mutex
	all []int64
}

func (c *deliveryCounts) note(p *Processor, t *pump.Task) {
	for _, d := range p.running.Load().segments.of([]uint32{t.Segment}) {
		if d.Header.Run == t.Run && d.Header.Tasks.Contains(t.N) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.all = append(c.all, d.Dequeued)
			return
		}
	}
}

func (c *deliveryCounts) at(share float64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.all)
	return c.all[min(len(c.all)-1, int(share*float64(len(c.all))))]
}

// P4.2: a count of deliveries says nothing of a message but where to look. Among many
// owners of one queue healthy ones reach counts that would be suspicious elsewhere.
func TestP42HealthyMessagesAreHardlyEverSuspected(t *testing.T) {
	proof.Only(t)
	for _, c := range []struct{ owners, messages int }{{1, 1000}, {8, 1000}, {16, 1000}} {
		t.Run(fmt.Sprintf("%d owners", c.owners), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				var counts deliveryCounts
				var all []*started
				for i := range c.owners {
					var p *Processor
					h := pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
						counts.note(p, task)
						return testworld.Pause(ctx, 5*time.Millisecond)
					})
					p = testworld.Made(w, New, fmt.Sprintf("p%d", i), h, Options{})
					all = append(all, testworld.Start(w.T, p))
				}
				w.Settled(c.owners)
				time.Sleep(10 * time.Second)
				segments := w.EverySegment()
				for i := range c.messages {
					w.PutHome(segments[i%len(segments):i%len(segments)+1], 2)
				}
				for range 3600 {
					if w.Left() == 0 {
						break
					}
					time.Sleep(time.Second)
				}
				var split, handled int64
				for _, p := range all {
					s := p.End()
					split, handled = split+s.Split, handled+s.Handled
				}
				t.Logf("%d owners: deliveries of a message: median %d, 90 %% %d, 99 %% %d, 99.9 %% %d, most %d; suspicious from %d on; %d of %d messages split",
					c.owners, counts.at(0.5), counts.at(0.9), counts.at(0.99), counts.at(0.999), counts.at(1), trial.SuspiciousAfter(c.owners)+1, split, c.messages)
				if handled != int64(2*c.messages) || w.Left() != 0 || len(w.Condemned()) != 0 {
					t.Errorf("%d of %d tasks handled, %d messages left, %d condemned", handled, 2*c.messages, w.Left(), len(w.Condemned()))
				}
				if most := c.messages / 20; split > int64(most) || c.owners == 1 && split > 0 {
					t.Errorf("%d of %d healthy messages were split", split, c.messages)
				}
			})
		})
	}
}
