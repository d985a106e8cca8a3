package codec

import (
	"math/rand/v2"
	"testing"
)

// perTask reports what one task cost.
func perTask(b *testing.B, tasks int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(tasks), "ns/task")
	b.ReportMetric(float64(tasks), "tasks/envelope")
}

// BenchmarkBuilder fills and seals one envelope of 131-byte JSON tasks.
func BenchmarkBuilder(b *testing.B) { benchmarkBuilder(b, jsonTasks(1, 3000)) }

func benchmarkBuilder(b *testing.B, tasks []Task) {
	builder := NewBuilder(0)
	dst := make([]byte, 0, maxText)
	var n int
	b.ReportAllocs()
	for b.Loop() {
		builder.Reset(testHeader())
		n = fill(b, builder, tasks)
		if _, _, err := builder.Seal(dst); err != nil {
			b.Fatal(err)
		}
	}
	perTask(b, n)
}

// BenchmarkBuilderRandom packs tasks that do not compress.
func BenchmarkBuilderRandom(b *testing.B) {
	tasks := jsonTasks(1, 1000)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range tasks {
		tasks[i].Body = bytesOf(r, 0, 131)
	}
	benchmarkBuilder(b, tasks)
}

// BenchmarkOpen unpacks one full envelope of 131-byte JSON tasks.
func BenchmarkOpen(b *testing.B) {
	tasks := jsonTasks(1, 1000)
	text := seal(b, testHeader(), tasks)
	b.ReportAllocs()
	for b.Loop() {
		e, err := Open(text, Limits{})
		if err != nil {
			b.Fatal(err)
		}
		e.Release()
	}
	perTask(b, len(tasks))
}

// BenchmarkReadHeader is what a message costs that is only sorted.
func BenchmarkReadHeader(b *testing.B) {
	text := seal(b, testHeader(), jsonTasks(1, 1000))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadHeader(text); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkQuarantined changes the header of a full envelope.
func BenchmarkQuarantined(b *testing.B) {
	text := seal(b, testHeader(), jsonTasks(1, 1000))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Quarantined(text, testCause()); err != nil {
			b.Fatal(err)
		}
	}
}
