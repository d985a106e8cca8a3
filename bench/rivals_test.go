package bench

import "testing"

// BenchmarkWays is the comparison with the rivals for those who change something: one
// run of each way that a round of `make bench` has, a quarter as long. The ratios are worth
// more than the figures. Run it with -benchtime=1x.
func BenchmarkWays(b *testing.B) {
	if testing.Short() {
		b.Skip("starts processes")
	}
	dir := b.TempDir()
	for _, r := range compared(4) {
		name := string(r.Way)
		if r.Over != Nowhere {
			name += " " + r.Over
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				m, err := Measure(b.Context(), dir, r)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(1e9*m.CPUPerTask(), "cpu-ns/task")
				b.ReportMetric(m.AllocsPerTask(), "allocs/task")
				b.ReportMetric(m.RequestsPerThousand(), "requests/ktask")
			}
		})
	}
}
