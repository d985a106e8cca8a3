package worlds

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// W5: a processor that handles 20 tasks a second gets envelopes of 100, which take envelopeFor. A
// fast one gets full ones.
func TestThePackerFollowsTheMeasuredTimeOfHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  int64 // envelopes of the run of 1,000 tasks
	}{"slow": {200 * time.Millisecond, 10}, "fast": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, c.takes) }}
				p := w.start(w.processor(h, processor.Options{Concurrency: 4}))
				w.Spread(1, 20)
				time.Sleep(20 * time.Second) // measured, and said in a beat
				s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond, Key: func(int) string { return "one" }}
				summary, err := w.distributor("d", s, distributor.Options{}).Run(t.Context())
				must(t, err)
				// The handlers' time is measured to a few thousandths, so the last envelope may hold little.
				if n := summary.Envelopes; n < c.want || n > c.want+1 {
					t.Errorf("%d envelopes of 1,000 tasks, want %d", n, c.want)
				}
				p.End()
			})
		})
	}
}
