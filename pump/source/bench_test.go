package source

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkReadLine is what a line costs before it is packed.
func BenchmarkReadLine(b *testing.B) {
	const tasks = 20_000
	var lines []byte
	for i := range tasks {
		lines = fmt.Appendf(lines, `{"id":"task-%09d","city":"city-%06d","country":"CH","kind":"refresh","amount":%d,"at":"2026-11-%02dT00:00:00Z","try":100}`+"\n",
			i, i*7919%100_000, 100_000+i*31%900_000, i%28+1)
	}
	source, format := bytes.NewReader(lines), newJSONLines("city", "id")
	cut := newLineReader(source, 1<<20)
	var rec Record
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(lines)
		cut.jump(0, 1)
		for range tasks {
			must(b, format.next(cut, &rec))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tasks, "ns/task")
}
