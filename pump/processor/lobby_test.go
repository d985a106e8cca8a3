package processor

import (
	"testing"

	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// settledMessages notes what is to be settled.
type settledMessages struct{ added []*message.Delivery }

func (s *settledMessages) Add(d *message.Delivery) { s.added = append(s.added, d) }

func (s *settledMessages) Park(*message.Delivery) {}

func (s *settledMessages) Unpark(*message.Delivery) {}

// A message that the lobby has taken is its own at once: whatever happens to it there must not be
// undone by the get that brought it, or it is settled without a verdict, or worked on here though
// its segment is another's.
func TestAMessageWhoseLeaseEndsOnItsWayToTheLobbyIsPutBack(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		r := testworld.Made(w, New, "p", &testworld.Seen{}, Options{}).newProcessing(t.Context())
		r.backlog = message.NewBacklog(r.o.room(), false, func() {})
		s := &settledMessages{}
		d := &message.Delivery{ID: "late", Text: []byte("late"), Settler: s, Waits: true}
		r.backlog.Withdraw(d)
		if !r.lobby.add(d) {
			t.Fatal("the lobby has room, and refused it")
		}
		if len(s.added) != 1 || d.Whole == nil || !d.Whole.Ours || d.Whole.Delay == 0 {
			t.Errorf("%d messages are put back, this one with the verdict %+v", len(s.added), d.Whole)
		}
		r.lobby.close()
		late := &message.Delivery{ID: "later", Text: []byte("later"), Settler: s, Waits: true}
		if r.lobby.add(late) || late.Whole == nil || !late.Whole.PassOn {
			t.Errorf("a lobby that is closed took a message, verdict %+v", late.Whole)
		}
	})
}
