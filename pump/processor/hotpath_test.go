package processor

import (
	"fmt"
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// envelopes are the texts of full messages, and how many tasks are in them.
func envelopes(tb testing.TB, n int) (texts [][]byte, tasks int) {
	b := codec.NewBuilder(0)
	for i := range n {
		b.Reset(codec.Header{Workload: "work", Run: pump.RunID{1}, Segment: uint32(i)})
		for fits := true; fits; {
			var err error
			k := uint64(b.Len())
			fits, err = b.Add(codec.Task{
				N: k, Key: fmt.Appendf(nil, "city-%06d", k*7919%100_000), ID: fmt.Appendf(nil, "task-%09d", k),
				Body: fmt.Appendf(nil, `{"id":"task-%09d","city":"city-%06d","country":"CH","kind":"refresh","amount":%d,"try":100}`, k, k*7919%100_000, 100_000+k*31%900_000),
			})
			must(tb, err)
		}
		tasks += b.Len()
		text, _, err := b.Seal(nil)
		must(tb, err)
		texts = append(texts, text)
	}
	return texts, tasks
}

// open is the way of a message's tasks from its text to what handlers are given, and back.
func open(tb testing.TB, text []byte) int {
	h, err := codec.ReadHeader(text)
	must(tb, err)
	env, err := codec.Open(text, codec.Limits{})
	must(tb, err)
	d := &message.Delivery{Header: h, Env: env}
	d.Tasks = d.Unpacked(env.Tasks)
	n := len(d.Tasks)
	if t := &d.Tasks[n-1]; len(t.Body) == 0 || len(t.ID) == 0 || t.N != uint64(n-1) {
		tb.Fatalf("the last task became %+v", t)
	}
	d.Env.Release()
	message.ReuseTasks(d.Tasks)
	return n
}

// BenchmarkEnvelopeToTasks is what a task costs a processor between the get and the handler.
func BenchmarkEnvelopeToTasks(b *testing.B) {
	texts, tasks := envelopes(b, 8)
	b.ReportAllocs()
	for b.Loop() {
		for _, text := range texts {
			open(b, text)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(tasks), "ns/task")
}

// From message to handler a task costs no allocation of its own.
func TestNoAllocationOfATaskThatIsReceived(t *testing.T) {
	if testworld.RaceDetector {
		t.Skip("the race detector drops what pools hold")
	}
	const most = 0.05
	texts, tasks := envelopes(t, 8)
	if got := testing.AllocsPerRun(5, func() {
		for _, text := range texts {
			open(t, text)
		}
	}) / float64(tasks); got > most {
		t.Errorf("%.3f allocations a task from envelope to handler", got)
	} else {
		t.Logf("%.4f allocations a task from envelope to handler, %d tasks a message", got, tasks/len(texts))
	}
}
