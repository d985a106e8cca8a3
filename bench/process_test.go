package bench

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/queuepump/queuepump/pump/control"
)

// What the delivery mode `once` may cost beside at-least-once, with the default packing.
const (
	mostExtraRequests = 0.02
	leastThroughput   = 0.9
	rounds            = 3
)

// BenchmarkCostOfOnce puts ten million tasks through both binaries in either delivery mode, turn
// by turn, and compares the medians. It takes minutes and 1.3 GB of disk: run it with -benchtime=1x.
func BenchmarkCostOfOnce(b *testing.B) { benchmarkCostOfOnce(b, 10_000_000) }

func benchmarkCostOfOnce(b *testing.B, lines int) {
	if testing.Short() {
		b.Skip("runs the binaries as processes")
	}
	dir := b.TempDir()
	p := Passage{Distribution: Distribution{Dir: dir, Lines: lines, Accounts: 4}}
	for name, path := range map[string]*string{"distributor": &p.Binary, "processor": &p.Processor} {
		var err error
		if *path, err = BuildBinary(b.Context(), "github.com/queuepump/queuepump/cmd/"+name, filepath.Clean(dir)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		results := map[string][]PassageResult{}
		for range rounds {
			for _, mode := range []string{control.DeliverAtLeastOnce, control.DeliverOnce} {
				p.Delivery = mode
				r, err := p.Run(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				b.Logf("%-13s %d tasks in %.1f s (%.0f/s), %d requests, %.1f s of CPU, %d MiB",
					mode, r.Handled, r.Seconds, float64(r.Handled)/r.Seconds, r.Requests, r.CPUSeconds, r.PeakBytes>>20)
				results[mode] = append(results[mode], r)
			}
		}
		least, once := results[control.DeliverAtLeastOnce], results[control.DeliverOnce]
		extra := median(once, requests)/median(least, requests) - 1
		throughput := median(least, seconds) / median(once, seconds)
		b.ReportMetric(100*extra, "%extra-requests")
		b.ReportMetric(throughput, "x-throughput")
		b.ReportMetric(median(once, cpu)/median(least, cpu), "x-cpu")
		if extra >= mostExtraRequests || throughput < leastThroughput {
			b.Errorf("once costs %.1f %% more requests and gives %.2f times the throughput", 100*extra, throughput)
		}
	}
}

func requests(r PassageResult) float64 { return float64(r.Requests) }
func seconds(r PassageResult) float64  { return r.Seconds }
func cpu(r PassageResult) float64      { return r.CPUSeconds }

// median is the middle value of what several runs gave.
func median(rs []PassageResult, of func(PassageResult) float64) float64 {
	var values []float64
	for _, r := range rs {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}
