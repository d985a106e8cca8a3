package coordination

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// A claim in hand whose row is gone is recorded when its work has stopped.
func TestAClaimWhoseRowIsGoneIsRecordedByItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("a")
		c := claimsOf(client, "a", time.Minute)
		claim, _, _, err := c.Claim(t.Context(), []byte("k"), taskN(1))
		must(t, err)
		time.Sleep(10 * time.Second)
		for key := range client.Server.Rows {
			if strings.Contains(key, ".claims.") && !strings.HasSuffix(key, "clock") {
				delete(client.Server.Rows, key)
			}
		}
		mustEnd(t, claim, false)
		_, verdict, wait, err := claimsOf(client, "b", time.Minute).Claim(t.Context(), []byte("k"), taskN(2))
		if verdict != Fresh || wait > 51*time.Second || err != nil {
			t.Errorf("%v for %v, %v", verdict, wait, err)
		}
	})
}

// The service's clock goes back, by more than an interval. An interval later a key is held again.
func TestClaimsHoldAgainSoonAfterTheServicesClockWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		a, b := claimsOf(server.Client("a"), "a", time.Minute), claimsOf(server.Client("b"), "b", time.Minute)
		mustEnd(t, mustClaim(t, a, "k", taskN(1), Granted, 0), false)
		mustClaim(t, b, "k", taskN(2), Fresh, time.Minute)
		server.Offset = -2 * time.Minute
		time.Sleep(3 * time.Minute)
		mustEnd(t, mustClaim(t, a, "k", taskN(3), Granted, 0), false)
		mustClaim(t, b, "k", taskN(4), Fresh, time.Minute)
	})
}
