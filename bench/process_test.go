package bench

import "testing"

// BenchmarkCostOfOnce puts ten million tasks through both binaries in either delivery mode, turn
// by turn. It takes minutes and 1.3 GB of disk: run it with -benchtime=1x.
func BenchmarkCostOfOnce(b *testing.B) {
	if testing.Short() {
		b.Skip("runs the binaries as processes")
	}
	for b.Loop() {
		r, err := Suite{Dir: b.TempDir(), Binaries: 10_000_000, BinaryRounds: 3, Log: func(line string) { b.Log(line) }}.Measure(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range r.Figures() {
			b.Logf("%s: %s", f.What, f.value())
			if !f.Kept() {
				b.Errorf("%s: %s, want %s", f.What, f.value(), f.Wanted)
			}
		}
	}
}
