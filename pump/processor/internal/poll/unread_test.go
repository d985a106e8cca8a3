package poll

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// A get of as many messages as it asked for says no more than its oldest that was never delivered
// before.
func TestHowFarAQueueIsRead(t *testing.T) {
	at := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	lease := time.Minute
	message := func(age time.Duration, dequeued int64) storage.Message {
		m := storage.Message{Inserted: at.Add(-age), Dequeued: dequeued}
		m.NextVisible = at.Add(lease)
		return m
	}
	var q entry
	start := time.Now()
	for i, c := range []struct {
		msgs []storage.Message
		want time.Duration // before the get; -1: not known
	}{
		{[]storage.Message{message(9*time.Hour, 2), message(8*time.Hour, 3)}, -1},
		{[]storage.Message{message(time.Hour, 1), message(9*time.Hour, 2)}, time.Hour},
		{[]storage.Message{message(time.Hour, 1), message(2*time.Hour, 1)}, time.Hour + time.Second}, // it never goes back
		{[]storage.Message{message(time.Hour, 1)}, 0},
		{nil, 0},
	} {
		sent := start.Add(time.Duration(i) * time.Second)
		q.noteRead(c.msgs, sent, lease, 2)
		if c.want < 0 && !q.read.IsZero() || c.want >= 0 && sent.Sub(q.read) != c.want {
			t.Errorf("get %d: it is read to %v before it, want %v", i, sent.Sub(q.read), c.want)
		}
	}
}
