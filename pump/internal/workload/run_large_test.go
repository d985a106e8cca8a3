package workload

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/shardmap"
)

func TestTheCountersOf16384SegmentsAreStoredWhateverTheirSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer().Client("a")
		runs := NewRuns(server, "city")
		for i, each := range []uint64{1, 1 << 20, 1 << 48} {
			run := Run{ID: codec.RunID{byte(i + 1)}, Mode: "once", Fingerprint: "f", Instance: "d"}
			must(t, runs.Create(t.Context(), run))
			counts := slices.Repeat([]uint64{each}, shardmap.MaxSegments)
			must(t, runs.Seal(t.Context(), run.ID, counts))
			got, err := runs.Get(t.Context(), run.ID)
			if err != nil || !slices.Equal(got.Sealed, counts) {
				t.Errorf("%d tasks a segment: %d counts, %v", each, len(got.Sealed), err)
			}
		}
	})
}
