package processor

import (
	"bytes"
	"context"
	"encoding/base64"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/shardmap"
)

// A key that stands in its message once, as the body, is there in each delivery, also when the
// message was rewritten with other tasks of it done.
func TestAKeyThatIsStoredOnceIsInEachDelivery(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		body := base64.StdEncoding.AppendEncode(nil, testworld.Incompressible(33_000))
		segment := shardmap.Segment(body, w.Segments())
		other := []byte("other")
		for i := 0; shardmap.Segment(other, w.Segments()) != segment; i++ {
			other = append(other[:5], byte(i), byte(i>>8))
		}
		mark := shardmap.StoredKey(body, body, w.Segments())
		account, queue := w.Home(segment)
		h := codec.Header{Workload: w.Cfg.Workload, Run: w.Run, Segment: segment}
		w.PutText(account, queue, w.Sealed(h, codec.Task{N: 0, Key: mark, Body: body}, codec.Task{N: 1, Key: other, Body: other}))
		seen := &testworld.Seen{}
		seen.Work = func(_ context.Context, task *pump.Task) error {
			if len(seen.Order) < 4 && task.N == 0 {
				return testworld.ErrFlop
			}
			return nil
		}
		p := testworld.Begun(w, New, "p", seen, Options{})
		w.Within(10*time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		p.End()
		if last := seen.Order[len(seen.Order)-1]; len(mark) != 1 || len(seen.Order) != 4 || last.Attempt != 3 {
			t.Errorf("%d deliveries, the last %d, a mark of %d", len(seen.Order), last.Attempt, len(mark))
		}
		for _, task := range seen.Order {
			if want := [][]byte{body, other}[task.N]; !bytes.Equal(task.Key, want) || !bytes.Equal(task.Body, want) {
				t.Errorf("attempt %d at %d: a key of %d bytes", task.Attempt, task.N, len(task.Key))
			}
		}
	})
}
