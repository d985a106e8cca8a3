package closing

import (
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
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
		proof.Must(t, proof.ErrOf(table.Write(t.Context(), damaged)))
		left := func() (n int) {
			for part := range workload.ClaimParts {
				for _, err := range table.Query(t.Context(), storage.Query{Partition: workload.ClaimsPartition("work", part)}) {
					proof.Must(t, err)
					n++
				}
			}
			return n
		}
		time.Sleep(time.Hour)
		set := &queues.Set{Control: table, Allowance: queues.NewAllowance(&pump.Config{})}
		set.SetValues(queues.Values{Retention: 7 * 24 * time.Hour})
		c := &Closer{workload: "work", queues: set}
		if err := c.retireClaims(t.Context(), time.Now().Add(-2*time.Hour)); err != nil || c.retired.claims.more || left() != 101 {
			t.Errorf("%v, more %v: %d of 101 claims are left that are not old", err, c.retired.claims.more, left())
		}
		for pass := range 3 {
			if err := c.retireClaims(t.Context(), time.Now()); err != nil || c.retired.claims.more != (pass < 2) {
				t.Errorf("pass %d: %v, more %v", pass, err, c.retired.claims.more)
			}
		}
		proof.Same(t, left(), 1, "claims are left")
	})
}

// A key of a post is kept for as long as its row says, whatever the retention is.
func TestOldKeysOfPostsAreRemoved(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		table := testkit.OverTheWire(t, sim, "p")
		keep := func(n int, keep time.Duration) {
			for range n {
				left := len(keysLeft(t, table))
				p := &workload.Posted{
					Key: workload.KeyOf(fmt.Sprint(keep, left)), Print: []byte("x"), Run: testkit.RunID(1),
					Firsts: []uint64{1}, Keep: keep,
				}
				if known, err := workload.InsertPosted(t.Context(), table, "work", []*workload.Posted{p}); err != nil || len(known) > 0 {
					t.Fatal(known, err)
				}
			}
		}
		keep(40, time.Hour)
		keep(10, 24*time.Hour)
		time.Sleep(2 * time.Hour)
		keep(5, time.Hour)
		set := &queues.Set{Control: table, Allowance: queues.NewAllowance(&pump.Config{})}
		set.SetValues(queues.Values{Retention: 7 * 24 * time.Hour})
		c := &Closer{workload: "work", queues: set}
		for range workload.ClaimParts + workload.KeyParts {
			proof.Must(t, c.retireClaims(t.Context(), time.Now().Add(-c.retain())))
		}
		proof.Same(t, len(keysLeft(t, table)), 15, "keys are left")
	})
}

func keysLeft(t *testing.T, table storage.Table) (left []storage.Entity) {
	t.Helper()
	for part := range workload.KeyParts {
		for e, err := range table.Query(t.Context(), storage.Query{Partition: workload.KeysPartition("work", part)}) {
			proof.Must(t, err)
			left = append(left, e)
		}
	}
	return left
}
