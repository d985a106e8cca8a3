package processor

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// splitter is a processor that makes tasks of arrays.
func splitter(w *testworld.World, instance string, h pump.Handler, o Options) *started {
	cfg := w.Config(instance, w.Cfg.Accounts[0].Queues)
	cfg.ForeignSplit, cfg.ForeignKey = true, "city"
	p, err := New(cfg, h, o)
	must(w.T, err)
	return testworld.Start(w.T, p)
}

// An array of another program is tasks of their own, each in the segment of its key, with names that
// stay. What failed of them comes back without the others, and in mode once none is done twice,
// although deletes are lost and the message is cut again.
func TestAnArrayOfAnotherProgramIsTasksOfTheirOwn(t *testing.T) {
	for _, delivery := range []pump.Delivery{pump.AtLeastOnce, pump.Once} {
		spec := workload.Spec{Delivery: string(delivery), ForeignKey: "city"}
		testworld.In(t, spec, 2, 2, nil, func(t *testing.T, w *testworld.World) {
			var all []string
			for i := range 12 {
				all = append(all, fmt.Sprintf(`{"city":"city %d"}`, i%5))
			}
			all = append(all, `["in",["it"]]`, `"word"`, `{"n":1}`)
			array := []byte(" [" + strings.Join(all, " ,\n") + "]")
			id := w.PutText("accounta", "work-00", base64.StdEncoding.AppendEncode(nil, array))
			empty := w.PutText("accountb", "work-01", []byte("[]"))
			object := w.PutText("accountb", "work-00", []byte(`{"a":[1,2]}`))
			lost := w.Fault(azsim.Rule{Service: "queue", Fault: azsim.FailBefore, First: 20}, "DeleteMessage")
			seen := &testworld.Seen{}
			seen.Work = func(_ context.Context, task *pump.Task) error {
				if strings.HasSuffix(task.Foreign, "/3") && task.Attempt == 1 {
					return testworld.ErrFlop
				}
				if strings.HasSuffix(task.Foreign, "/13") {
					return pump.Reject(testworld.ErrFlop)
				}
				return nil
			}
			p, q := splitter(w, "p", seen, Options{}), splitter(w, "q", seen, Options{})
			w.Within(20*time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
			sum := p.End()
			other := q.End()
			want := map[string]string{"work-01/" + empty: "[]", "work-00/" + object: `{"a":[1,2]}`}
			for i, body := range all {
				want[fmt.Sprintf("work-00/%s/%d", id, i)] = body
			}
			deliveries := map[string]int{}
			for _, task := range seen.Order {
				deliveries[task.Foreign]++
				if body, is := want[task.Foreign]; !is || body != string(task.Body) {
					t.Errorf("%s was given %q, want %q", task.Foreign, task.Body, body)
				}
				keyed := len(task.Key) > 0
				if keyed != strings.Contains(string(task.Body), "city") ||
					keyed && task.Segment != shardmap.Segment(task.Key, w.Segments()) {
					t.Errorf("%s has the key %q and segment %d", task.Foreign, task.Key, task.Segment)
				}
			}
			if len(deliveries) != len(want) || sum.Quarantined+other.Quarantined < 1 || lost.Hits() == 0 {
				t.Errorf("%v: %d tasks of %d, %+v, %+v", delivery, len(deliveries), len(want), sum, other)
			}
			deliveries["work-00/"+id+"/3"]-- // which failed once
			for name, n := range deliveries {
				if delivery == pump.Once && n > 1 {
					t.Errorf("%s was handled %d times", name, n)
				}
			}
		})
	}
}

// An array that came back suspiciously often, or that was done as a whole before, is cut no less,
// or not again.
func TestAnArrayIsCutWhateverBecameOfItBefore(t *testing.T) {
	spec := workload.Spec{Delivery: string(pump.Once), ForeignKey: "city"}
	testworld.In(t, spec, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		text := []byte(`[1,2,3]`)
		account, queue := w.Home(shardmap.Segment(text, w.Segments()))
		w.PutText(account, queue, text)
		w.PassAround(account, queue, 6)
		seen := &testworld.Seen{}
		p := splitter(w, "p", seen, Options{})
		w.Within(10*time.Minute, "the suspect is done", func() bool { return seen.Tasks() == 3 && w.Left() == 0 })
		p.End()
		seen.Expect(t, 3, 3)
		w.PutText(account, queue, text)
		kept := w.Fault(azsim.Rule{Service: "queue", Fault: azsim.FailBefore}, "DeleteMessage")
		cfg := w.Config("p", 2)
		cfg.ForeignKey = "city"
		whole, err := New(cfg, seen, Options{Grace: time.Second})
		must(t, err)
		p = testworld.Start(w.T, whole)
		w.Within(10*time.Minute, "it is done as a whole", func() bool { return seen.Tasks() == 4 })
		time.Sleep(10 * time.Second)
		p.End()
		kept.Remove()
		p = splitter(w, "p", seen, Options{})
		w.Within(10*time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		p.End()
		seen.Expect(t, 4, 4)
	})
}

// Elements whose homes are well are not put, and done, again and again while another account is
// dark.
func TestElementsAreNotRepeatedWhileAnAccountIsDark(t *testing.T) {
	spec := workload.Spec{ForeignKey: "city"}
	testworld.In(t, spec, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		seen := &testworld.Seen{}
		p := splitter(w, "p", seen, Options{})
		w.Settled(1)
		dark := w.Sim.Inject(azsim.Rule{Account: "accounta", Service: "queue", Fault: azsim.HangBefore})
		var all []string
		for i := range 40 {
			all = append(all, fmt.Sprintf(`{"city":"city %d"}`, i))
		}
		w.PutText("accountb", "work-00", []byte("["+strings.Join(all, ",")+"]"))
		time.Sleep(30 * time.Minute)
		if seen.Tasks() == 0 { // or the test shows nothing: a piece for the dark account comes first
			t.Error("no element was put before one whose home is dark")
		}
		dark.Remove()
		w.Within(10*time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		p.End()
		if n := seen.Deliveries(); seen.Tasks() != 40 || n > 2*40 {
			t.Errorf("%d of 40 elements, %d deliveries", seen.Tasks(), n)
		}
	})
}
