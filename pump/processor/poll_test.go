package processor

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

func TestMemoryForWhatWasFetchedIsBounded(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 4, func(c *azsim.Config) { c.Limits = azsim.NoLimits() }, func(t *testing.T, w *testworld.World) {
		for range 20 {
			for _, s := range setup.Shards(w.Cfg) {
				w.PutText(s.Account, s.Queue, testworld.Incompressible(60<<10))
			}
		}
		h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Second) }}
		pr := testworld.Made(w, New, "p", h, Options{MaxBytes: 4 << 20, Concurrency: 1000})
		r := pr.newProcessing(t.Context())
		ready(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var most int64
		watch := make(chan struct{})
		go func() {
			defer close(watch)
			for ctx.Err() == nil {
				r.backlog.Mu.Lock()
				most = max(most, r.backlog.Bytes)
				r.backlog.Mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		}()
		must(t, r.poller.Run(ctx))
		r.stop()
		<-watch
		h.Expect(t, 160, 160)
		if most > 4<<20 || most < 2<<20 {
			t.Errorf("%d bytes were held, the bound is 4 MiB", most)
		}
		if r.backlog.Bytes != 0 || r.backlog.Unstarted != 0 || r.backlog.Opened != 0 || r.backlog.Reserved != 0 || r.backlog.Promised != 0 {
			t.Errorf("not everything was given back: %+v", r.backlog)
		}
	})
}
