package worlds

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

func TestAnAccountIsNotRemovedWhileAnythingMayBeInItsQueues(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		ctx, cfg := t.Context(), w.Operator()
		must(t, proof.ErrOf(accounts.Add(ctx, cfg, "accountc")))
		testworld.Refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{Wait: true})), "it is active")
		w.PutText("accountc", "town-01", []byte("a"))
		w.PutText("accountc", "town-01", []byte("b"))
		if _, err := w.Queue("accountc", "town-01").Get(ctx, 1, time.Hour); err != nil { // invisible, and there
			t.Fatal(err)
		}
		w.PutText("accountc", "town-poison", []byte("c"))
		must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountc")))
		time.Sleep(queues.RemoveAfter)
		e := testworld.Refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{})), "2 in town-01, 1 in town-poison (quarantine)")
		want := []accounts.QueueLeft{{Queue: "town-01", Messages: 2}, {Queue: "town-poison", Messages: 1, Poison: true}}
		proof.Alike(t, e.Left, want, "left")
		windowHit(t, len(e.Left)) // queues that are not empty, whatever can be seen in them
		must(t, w.Queue("accountc", "town-01").Clear(ctx))
		// No process empties the quarantine, so it is not waited for.
		testworld.Refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{Wait: true})), "quarantined messages are left: 1 in town-poison")
		must(t, w.Queue("accountc", "town-poison").Clear(ctx))
		// Any change of the map may be the one that a writer has not noticed.
		must(t, proof.ErrOf(accounts.Drain(ctx, cfg, "accountb")))
		testworld.Refused(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{})), "not been draining for long enough")
		time.Sleep(queues.RemoveAfter)
		// A queue that cannot be counted proves nothing.
		dark := w.Sim.Inject(azsim.Rule{Account: "accountc", Service: "queue", Fault: azsim.FailBefore})
		proof.Says(t, proof.ErrOf(accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{})), "could not be learned")
		dark.Remove()
		// One that is not there is empty.
		must(t, w.Queue("accountc", "town-00").Drop(ctx))
		if c, err := accounts.Remove(ctx, cfg, "accountc", accounts.RemoveOptions{}); err != nil || !c.Changed {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
