package pump

import (
	"testing"
	"time"
)

func TestOnceHandlesAndRecordsEachTask(t *testing.T) {
	inOnceWorld(t, 2, 4, nil, func(t *testing.T, w *world) {
		n := w.spread(10, 20)
		h := &seen{}
		began := time.Now()
		s := w.drain(h, ProcessorOptions{UntilIdle: 10 * time.Second})
		t.Logf("%v: %+v", time.Since(began), s)
		h.expect(t, n, n)
		if s.Recorded != int64(n) || w.left() != 0 {
			t.Errorf("%d of %d tasks were recorded, %d messages left", s.Recorded, n, w.left())
		}
	})
}
