package handlers

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// nowhere is a disk that costs nothing.
type nowhere struct{ size int64 }

func (n *nowhere) Write(b []byte) (int, error) {
	n.size += int64(len(b))
	return len(b), nil
}
func (*nowhere) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }
func (n *nowhere) Stat() (os.FileInfo, error)      { return length(n.size), nil }
func (*nowhere) Sync() error                       { return nil }
func (*nowhere) Truncate(int64) error              { return nil }
func (*nowhere) Close() error                      { return nil }

// length is what a file of the tests tells of itself.
type length int64

func (l length) Size() int64      { return int64(l) }
func (length) Name() string       { return "" }
func (length) Mode() os.FileMode  { return 0 }
func (length) ModTime() time.Time { return time.Time{} }
func (length) IsDir() bool        { return false }
func (length) Sys() any           { return nil }

// BenchmarkFile is what --out costs a task, without the disk: envelopes of 500 tasks whose bodies
// are lines of JSON.
func BenchmarkFile(b *testing.B) {
	f := newFile("nowhere", &nowhere{}, 0, true, FileOptions{})
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
