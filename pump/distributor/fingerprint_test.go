package distributor

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/source"
)

// A18: whether a task fits decides its number and those behind it, so nothing may decide it that
// changes between two readings of one source.
func TestWhetherATaskFitsDependsOnTheTaskAlone(t *testing.T) {
	body := make([]byte, 49<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body)
	verdicts := func(mapVersion uint64, format uint8) (fits string) {
		s := &pack.Segmenter{Whole: codec.Header{Workload: "work", MapVersion: mapVersion, Version: format}, Trial: codec.NewBuilder(0), Counts: make([]uint64, 64)}
		for size := 48_200; size < 48_400; size++ {
			if s.TryLarge(7, 0, &source.Record{Key: []byte("k"), Body: body[:size]}, false) == nil {
				fits += "y"
			} else {
				fits += "n"
			}
		}
		return fits
	}
	want := verdicts(1, codec.Version)
	if !strings.Contains(want, "yn") {
		t.Fatal("the sizes do not reach across the bound")
	}
	for _, c := range []struct {
		mapVersion uint64
		format     uint8
	}{{1 << 20, codec.Version}, {1 << 62, codec.Version}, {1, 1}} {
		if got := verdicts(c.mapVersion, c.format); got != want {
			t.Errorf("map version %d, format %d: %d fit instead of %d", c.mapVersion, c.format, strings.Count(got, "y"), strings.Count(want, "y"))
		}
	}
}

// A18: a new format of envelopes numbers nothing in another way, so it breaks no run.
func TestTheFormatOfEnvelopesIsNotInTheFingerprint(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		d := testworld.Made(w, New, "d", &testworld.ListSource{Print: "a", N: 10}, Options{})
		s, err := d.Run(context.Background())
		proof.Must(t, err)
		proof.Same(t, w.RunRow(s.Run).Fingerprint, "v2 S=64 bad=fail a", "the fingerprint is")
	})
}
