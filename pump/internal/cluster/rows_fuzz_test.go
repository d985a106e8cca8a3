package cluster

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// FuzzRow reads the rows of a cluster, whatever they hold.
func FuzzRow(f *testing.F) {
	table := testkit.NewServer().Client("a")
	started := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	owners := make([]Owner, 64)
	owners[3], owners[4] = Owner{"a-1", "0a", 7}, Owner{"b-1", "0b", row.MaxEpoch}
	testkit.Fuzz(f, []testkit.Kind{
		testkit.KindOf("member", memberRowOf(table, "work", "a-1", time.Second), memberRow{
			Member: Member{
				Instance: "a-1", Incarnation: "0a", Host: "host", Version: "v1", Role: RoleProcessor, Started: started, Holds: SegmentSet{1, 0, 2},
				Report: Report{
					Admin: "host:1", Accounts: []string{"alpha", "beta"}, Reads: 1, Demand: map[string]float64{"alpha": 1.5}, Tasks: 7, Rate: 1, Seconds: 0.5,
					Throttled: 3, Throttles: map[string]uint64{"beta": 3}, Queues: 2, Trouble: "none",
					Unread: 1.5, UnreadQueue: "alpha/work-00",
					Cannot: []string{"beta"},
					Asked:  map[string]Asked{"alpha": {7, 1 << 40}, "beta": {1, 0}}, AskedSince: started, Operations: []byte{1, 3, 7, 1, 1, 7, 2, 1},
					Day: &Day{20_000, 1.25, new(0.001), map[DayKind]DayCount{{"queue", "get"}: {7, new(0.5)}, {"table", ""}: {1, nil}}}, Spends: 1e-6, Slower: 1.5, HoldsBack: true, NotNow: 7, NotNowSince: time.Unix(1_700_000_000, 0).UTC(), NotNowError: "429",
				},
			},
			Times: row.Times{Beat: 5 * time.Second, Lease: 20 * time.Second, Margin: time.Second}, beats: 9,
		}),
		testkit.KindOf("owners", ownerRowOf(table, "work", 0, 64, time.Second), owners),
		testkit.KindOf("spill", spillRowOf(table, "work", 64, time.Second), make([]uint8, 64)),
	})
}
