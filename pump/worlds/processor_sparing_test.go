package worlds

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// C9: 20,000 rejected tasks made 20,000 lines.
func TestQuarantinedMessagesMakeFewLinesWhichCountThemAll(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		n := w.Spread(300, 1)
		began := time.Now()
		s := w.drain(pump.HandlerFunc(func(context.Context, *pump.Task) error { return pump.Reject(testworld.ErrFlop) }), processor.Options{})
		w.Mu.Lock()
		lines := regexp.MustCompile(`msg=quarantined .*tasks=(\d+)`).FindAllStringSubmatch(w.Log.String(), -1)
		w.Mu.Unlock()
		told := 0
		for _, l := range lines {
			tasks, err := strconv.Atoi(l[1])
			must(t, err)
			told += tasks
		}
		if most := 2 + int(time.Since(began)/(10*time.Second)); s.Quarantined != int64(n) || told != n || len(lines) < 2 || len(lines) > most {
			t.Errorf("%d tasks quarantined, %d lines tell of %d of %d; at most %d lines", s.Quarantined, len(lines), told, n, most)
		}
	})
}
