package election

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

func TestALeaderWhoseMachineWasSuspendedIsDeposedByItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s testkit.Sleeper
		server := testkit.NewServer()
		client := server.Client("a")
		term := standFor(t, candidate(row.Suspended(client, s.Ahead), "a"), time.Second)
		must(t, term.Begin(t.Context(), codec.NewRunID()))
		s.Sleep(30 * time.Second)
		before := client.Writes(electionKey)
		if err := term.Save(t.Context(), []byte("x")); !errors.Is(err, ErrTrustEnded) {
			t.Errorf("saved: %v", err)
			term.Abandon(t.Context()) // or it leads for ever
		}
		<-term.done
		proof.Same(t, client.Writes(electionKey)-before, 0,
			"writes by a leader that others may have followed")
	})
}
