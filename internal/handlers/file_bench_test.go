package handlers

import (
	"fmt"
	"testing"

	"github.com/queuepump/queuepump/pump"
)

// nowhere is a disk that costs nothing.
type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Sync() error                 { return nil }
func (nowhere) Truncate(int64) error        { return nil }
func (nowhere) Close() error                { return nil }

// BenchmarkFile is what --out costs a task, without the disk: envelopes of 500 tasks whose bodies
// are lines of JSON.
func BenchmarkFile(b *testing.B) {
	f := newFile("nowhere", nowhere{}, 0, true, FileOptions{})
	tasks := make([]*pump.Task, 500)
	bytes := 0
	for i := range tasks {
		tasks[i] = &pump.Task{
			N: uint64(i), Key: fmt.Appendf(nil, "customer %d", i%40), Segment: 7,
			Body: fmt.Appendf(nil, `{"id":%d,"customer":"customer %d","amount":%d.5,"items":["a","b"],"note":"some words about it, as there often are"}`, i, i%40, i*3),
		}
		bytes += len(tasks[i].Body)
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	for b.Loop() {
		if errs := f.HandleBatch(b.Context(), tasks); errs != nil {
			b.Fatal(errs)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(tasks)), "ns/task")
}
