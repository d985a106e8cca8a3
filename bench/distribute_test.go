package bench

import "testing"

// The distributor claims of its defaults that it packs at least 400 small tasks into a
// message, and that its memory does not grow with its input (mostMemory).
const leastPacked = 400

func BenchmarkDistributeMillion(b *testing.B) { benchmarkDistribute(b, 1_000_000) }

// BenchmarkDistributeTenMillion takes minutes and 1.3 GB of disk: run it with -benchtime=1x.
func BenchmarkDistributeTenMillion(b *testing.B) { benchmarkDistribute(b, 10_000_000) }

func benchmarkDistribute(b *testing.B, lines int) {
	if testing.Short() {
		b.Skip("runs the distributor as a process")
	}
	dir := b.TempDir()
	binary, err := BuildBinary(b.Context(), "github.com/queuepump/queuepump/cmd/distributor", dir)
	if err != nil {
		b.Fatal(err)
	}
	d := Distribution{Binary: binary, Dir: dir, Lines: lines, Accounts: 4}
	for b.Loop() {
		r, err := d.Run(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		packed := float64(r.Tasks) / float64(r.Envelopes)
		b.ReportMetric(packed, "tasks/message")
		b.ReportMetric(float64(r.TotalRequests())/float64(r.Tasks)*1000, "requests/ktask")
		b.ReportMetric(float64(r.PeakBytes)/(1<<20), "MiB-peak")
		b.ReportMetric(float64(r.Tasks)/r.Seconds, "tasks/s")
		b.ReportMetric(r.CPUSeconds/float64(r.Tasks)*1e9, "cpu-ns/task")
		if packed < leastPacked {
			b.Errorf("%.0f tasks a message, want at least %d", packed, leastPacked)
		}
		if r.PeakBytes > mostMemory {
			b.Errorf("%d bytes resident, want at most %d", r.PeakBytes, mostMemory)
		}
	}
}
