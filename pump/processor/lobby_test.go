package processor

import (
	"testing"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/backlog"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// A message that the lobby has taken is its own at once: whatever happens to it there must not be
// undone by the get that brought it, or it is settled without a verdict, or worked on here though
// its segment is another's.
func TestAMessageWhoseLeaseEndsOnItsWayToTheLobbyIsPutBack(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		r := w.processor(&testworld.Seen{}, Options{}).newProcessing(t.Context())
		r.backlog = backlog.New(r.o.room(), false, func() {})
		// As many settlers as there may be are busy: what is put back is seen in their queue.
		s := &settler{
			r: r, shard: &queues.Queue{Account: &queues.Account{Name: "accounta"}, Budget: quota.New(2000)},
			account: &unsettled{mostBytes: storage.MaxText}, running: settlersMost,
		}
		d := &message.Delivery{ID: "late", Text: []byte("late"), Settler: s, Waits: true}
		r.backlog.Withdraw(d)
		if !r.lobby.add(d) {
			t.Fatal("the lobby has room, and refused it")
		}
		if len(s.queue) != 1 || d.Whole == nil || !d.Whole.Ours || d.Whole.Delay == 0 {
			t.Errorf("%d messages are put back, this one with the verdict %+v", len(s.queue), d.Whole)
		}
		r.lobby.close()
		late := &message.Delivery{ID: "later", Text: []byte("later"), Settler: s, Waits: true}
		if r.lobby.add(late) || late.Whole == nil || !late.Whole.Pass {
			t.Errorf("a lobby that is closed took a message, verdict %+v", late.Whole)
		}
	})
}
