package worlds

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestDiscardSettlesWithoutHandlerAndCountsTheTasks(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		tasks := w.Spread(40, 30)
		w.PutText("accounta", "work-00", []byte("a foreign one"))
		s := w.drain(nil, processor.Options{Discard: true, UntilIdle: 5 * time.Second})
		if s.Handled != int64(tasks+1) || s.Foreign != 1 || w.Left() != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
	})
}

// While its queues are full, who discards gets all that a get may bring: a get for each message
// would cost as much as its delete.
func TestDiscardGetsAsManyAsAGetBringsWhileQueuesAreFull(t *testing.T) {
	for _, delivery := range []pump.Delivery{pump.AtLeastOnce, pump.Once} {
		t.Run(string(delivery), func(t *testing.T) {
			in := inWorld
			if delivery == pump.Once {
				in = inOnceWorld
			}
			in(t, 2, 2, nil, func(t *testing.T, w *world) {
				w.Spread(1000, 1)
				all := w.Left()
				gets := w.Requests("GetMessages")
				p := w.start(w.processor(nil, processor.Options{Discard: true}))
				left := all
				for left > all/4 {
					time.Sleep(100 * time.Millisecond)
					left = w.Left()
				}
				gets = w.Requests("GetMessages") - gets
				each := float64(all-left) / float64(gets)
				t.Logf("%d messages were discarded with %d gets: %.1f a get", all-left, gets, each)
				if each < 0.8*storage.MaxGet {
					t.Errorf("a get brought %.1f messages, of the %d that it may", each, storage.MaxGet)
				}
				p.End()
			})
		})
	}
}
