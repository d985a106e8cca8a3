package closing

import (
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Old claims of all parts go within two passes, however they are spread, and where none is left one
// page is looked at.
func TestOldClaimsAreRemovedUntilNoneIsLeft(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		table := testkit.OverTheWire(t, sim, "p")
		claims := coordination.NewClaims(table, "work", time.Minute, "p")
		for i := range 100 {
			if _, verdict, _, err := claims.Claim(t.Context(), fmt.Append(nil, "key ", i), coordination.TaskRef{Foreign: "o/1"}); err != nil || verdict != coordination.Granted {
				t.Fatal(verdict, err)
			}
		}
		// A damaged one stays, for an operator to look at.
		damaged := storage.Write{Mode: storage.Insert, Entity: storage.Entity{
			Partition: workload.ClaimsPartition("work", 0), Row: "damaged",
			Properties: map[string]any{row.FormatProperty: int64(row.Format), "Task": "o/1", "Owner": "", "Interval": int64(time.Minute)},
		}}
		if _, err := table.Write(t.Context(), damaged); err != nil {
			t.Fatal(err)
		}
		left := func() (n int) {
			for part := range workload.ClaimParts {
				for _, err := range table.Query(t.Context(), storage.Query{Partition: workload.ClaimsPartition("work", part)}) {
					if err != nil {
						t.Fatal(err)
					}
					n++
				}
			}
			return n
		}
		time.Sleep(time.Hour)
		c := &Closer{workload: "work", queues: &queues.Set{Control: table}}
		if err := c.retireClaims(t.Context(), time.Now().Add(-2*time.Hour)); err != nil || c.retired.more || left() != 101 {
			t.Errorf("%v, more %v: %d of 101 claims are left that are not old", err, c.retired.more, left())
		}
		for pass := range 3 {
			if err := c.retireClaims(t.Context(), time.Now()); err != nil || c.retired.more != (pass < 2) {
				t.Errorf("pass %d: %v, more %v", pass, err, c.retired.more)
			}
		}
		if n := left(); n != 1 {
			t.Errorf("%d claims are left, want the damaged one", n)
		}
	})
}
