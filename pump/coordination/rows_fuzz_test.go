package coordination

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/faketable"
	"github.com/queuepump/queuepump/pump/internal/rowtest"
)

// FuzzRow reads the rows of claims, gates and ranges of ids, whatever they hold.
func FuzzRow(f *testing.F) {
	table := faketable.NewServer().Client("a")
	rowtest.Fuzz(f, []rowtest.Kind{
		rowtest.KindOf("claim", claimRowAt(table, "work.claims.0", "00"), claimRow{key: "Oslo", bytes: 4, task: "t", owner: "a-1#1", took: time.Second, interval: time.Hour}),
		rowtest.KindOf("gate", gateRowOf(table, "work", "morning"), gateRow{true, "somebody"}),
		rowtest.KindOf("ids", idRowOf(table, "work", "numbers"), uint64(1001)),
	})
}
