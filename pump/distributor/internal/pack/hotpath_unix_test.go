//go:build unix

package pack

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/source"
)

// BenchmarkFileToEnvelopes is the whole way of a distributor up to the put, as it goes there: a
// file, the reader, lanes that pack the many segments of four accounts. It tells
// CPU time, because the lanes run beside the reader.
func BenchmarkFileToEnvelopes(b *testing.B) {
	const lanes, segments, copies = 2, 1024, 10
	path := filepath.Join(b.TempDir(), "lines")
	f, err := os.Create(path)
	must(b, err)
	lines := newWayOut(b).lines
	for range copies {
		must(b, proof.ErrOf(f.Write(lines)))
	}
	must(b, f.Close())
	var spent time.Duration
	for b.Loop() {
		source, err := source.JSONLines(path, "city").Open(b.Context(), nil)
		must(b, err)
		s := &Segmenter{Source: source, Counts: make([]uint64, segments), Tracker: NewTracker(lanes), Count: new(Tally), Trial: codec.NewBuilder(0)}
		var sealed [lanes]int
		for i := range lanes {
			p := newTestPacker(segments/lanes+1, 0, DefaultMaxOpen/lanes, func(c *Message) error {
				sealed[i] += c.Tasks
				Texts.Put(&c.Text)
				return nil
			})
			p.Stride = lanes
			l := NewLane(p)
			l.Passed = func(int) {}
			s.Lanes = append(s.Lanes, l)
		}
		before := cpuTime(b)
		var g sync.WaitGroup
		for _, l := range s.Lanes {
			g.Go(func() {
				if err := l.Run(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
		must(b, s.Read(b.Context(), b.Context()))
		for _, l := range s.Lanes {
			l.Close()
		}
		g.Wait()
		spent += cpuTime(b) - before
		if n := sealed[0] + sealed[1]; n != copies*wayTasks {
			b.Fatalf("%d of %d tasks were sealed", n, copies*wayTasks)
		}
		source.Close()
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/wayTasks/copies, "cpu-ns/task")
}

// cpuTime is what this process has used so far.
func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	must(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
