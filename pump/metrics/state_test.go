package metrics

import (
	"maps"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/queuepump/queuepump/pump/processor"
)

func TestLatencyCountsForEverAndItsQuantilesAreOfLate(t *testing.T) {
	all := processor.Latency{Tasks: 200, Mean: 0.5, P50: 0.4, P99: 9, Max: 10}
	for name, tt := range map[string]struct {
		lately    processor.Latency
		quantiles map[float64]float64
	}{
		"busy": {
			processor.Latency{Tasks: 10, Mean: 0.1, P50: 0.05, P90: 0.2, P99: 0.3, P999: 0.35, Max: 0.4},
			map[float64]float64{0.5: 0.05, 0.9: 0.2, 0.99: 0.3, 0.999: 0.35, 1: 0.4},
		},
		"quiet": {processor.Latency{}, map[float64]float64{}},
	} {
		var m dto.Metric
		if err := latencySummary(all, tt.lately).Write(&m); err != nil {
			t.Fatal(err)
		}
		got := map[float64]float64{}
		for _, q := range m.Summary.Quantile {
			got[q.GetQuantile()] = q.GetValue()
		}
		if m.Summary.GetSampleCount() != 200 || m.Summary.GetSampleSum() != 100 || !maps.Equal(got, tt.quantiles) {
			t.Errorf("%s: %v", name, &m)
		}
	}
}
