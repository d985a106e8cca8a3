package engine

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// W5: a processor that handles 20 tasks a second gets envelopes of 100, which take envelopeFor; a fast one gets full ones.
func TestThePackerFollowsTheMeasuredTimeOfHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  int64 // envelopes of the run of 1,000 tasks
	}{"slow": {200 * time.Millisecond, 10}, "fast": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, c.takes) }}
				p := w.start(w.processor(h, ProcessorOptions{Concurrency: 4}))
				w.spread(1, 20)
				time.Sleep(20 * time.Second) // measured, and said in a beat
				s := &listSource{print: "a", n: 1000, pace: 10 * time.Millisecond, key: func(int) string { return "one" }}
				summary, err := w.distributor("d", s, DistributorOptions{}).Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				// The handlers' time is measured to a few thousandths, so the last envelope may hold little.
				if n := summary.Envelopes; n < c.want || n > c.want+1 {
					t.Errorf("%d envelopes of 1,000 tasks, want %d", n, c.want)
				}
				p.end()
			})
		})
	}
}
