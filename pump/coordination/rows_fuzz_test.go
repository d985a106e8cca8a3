package coordination

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// FuzzRow reads the rows of claims, gates and ranges of ids, whatever they hold.
func FuzzRow(f *testing.F) {
	table := testkit.NewServer().Client("a")
	testkit.Fuzz(f, []testkit.Kind{
		testkit.KindOf("claim", claimRowAt(table, "work.claims.0", "00"), claimRow{key: "Oslo", bytes: 4, task: "t", owner: "a-1#1", took: time.Second, interval: time.Hour}),
		testkit.KindOf("gate", gateRowOf(table, "work", "morning"), gateRow{true, "somebody"}),
		testkit.KindOf("ids", idRowOf(table, "work", "numbers"), uint64(1001)),
	})
}
