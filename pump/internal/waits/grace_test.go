package waits

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestAPeriodIsShortenedBeforeItBeginsAndWhileItPasses(t *testing.T) {
	for _, tt := range []struct {
		name        string
		usual, most time.Duration
		hurry       time.Duration // after the begin; negative: before it, 0: never
		want        time.Duration
	}{
		{"there is no hurry", 20 * time.Second, 5 * time.Second, 0, 20 * time.Second},
		{"before it begins", 20 * time.Second, 5 * time.Second, -time.Minute, 5 * time.Second},
		{"while it passes", time.Minute, 5 * time.Second, 10 * time.Second, 15 * time.Second},
		{"near its end", 20 * time.Second, 5 * time.Second, 17 * time.Second, 20 * time.Second},
		{"a short one", 2 * time.Second, 5 * time.Second, -time.Minute, 2 * time.Second},
		{"there is no time", 20 * time.Second, -1, 10 * time.Second, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p Grace
				if tt.hurry < 0 {
					p.Hurry(tt.most)
					time.Sleep(-tt.hurry)
				}
				began := time.Now()
				ctx, cancel := p.Begin(t.Context(), tt.usual)
				defer cancel()
				if tt.hurry > 0 {
					time.Sleep(tt.hurry)
					p.Hurry(tt.most)
					p.Hurry(time.Hour) // the first counts
				}
				<-ctx.Done()
				proof.Same(t, time.Since(began), tt.want, "it took")
				if of := p.Of(tt.usual); tt.hurry != 0 && of != min(tt.usual, max(tt.most, 0)) {
					t.Errorf("it says that it takes %v", of)
				}
			})
		})
	}
}
