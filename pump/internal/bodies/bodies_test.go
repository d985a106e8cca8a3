package bodies_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// large gives every second task a body that fits no message.
func large(i int) []byte {
	if i%2 == 1 {
		return fmt.Appendf(nil, "small %d", i)
	}
	return append(testworld.Incompressible(60_000), fmt.Sprint(i)...)
}

func listOf(tasks int) *testworld.ListSource {
	return &testworld.ListSource{Print: "a", N: tasks, Body: large}
}

var inBlobs = distributor.Options{BlobAbove: 40 << 10, Name: "large"}

// blobs is how many bodies are there.
func blobs(w *testworld.World) (n int) {
	for _, name := range w.Sim.Accounts() {
		n += len(w.Sim.Blobs(name, "work-bodies"))
	}
	return n
}

// expectBodies checks that the handlers saw the bodies that were sent.
func expectBodies(w *testworld.World, seen *testworld.Seen, tasks int) {
	w.T.Helper()
	seen.Mu.Lock()
	defer seen.Mu.Unlock()
	of := map[string]bool{}
	for i := range seen.Order {
		t, n := &seen.Order[i], 0
		fmt.Sscan(t.ID, &n)
		if !bytes.Equal(t.Body, large(n)) || string(t.Key) != fmt.Sprintf("key %d", n%97) {
			w.T.Errorf("task %s has key %q and a body of %d bytes", t.ID, t.Key, len(t.Body))
		}
		of[t.ID] = true
	}
	if len(of) != tasks {
		w.T.Errorf("%d of %d tasks were handled", len(of), tasks)
	}
}

// swept waits until the run is closed and its bodies are gone.
func swept(w *testworld.World) {
	w.T.Helper()
	w.Within(10*time.Minute, "the run is closed", func() bool {
		return w.RunRow(w.Newest()).State == workload.RunClosed
	})
	time.Sleep(2 * time.Hour)
	if n := blobs(w); n != 0 {
		w.T.Errorf("%d bodies are left", n)
	}
}

func TestHandlersSeeLargeBodiesAndTheSweepRemovesThem(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		seen := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", seen, processor.Options{})
		w.Settled(1)
		testworld.Ran(w, distributor.New, "d", listOf(20), inBlobs)
		if n := blobs(w); n != 10 {
			t.Errorf("%d bodies", n)
		}
		w.Within(time.Minute, "all is done", func() bool { return w.Left() == 0 })
		seen.Expect(t, 20, 20)
		expectBodies(w, seen, 20)
		swept(w)
		p.End()
	})
}

// Each process ends in turn after each of its requests, before the answer; another goes on. No task
// is lost or recorded twice, and no body is left.
func TestACrashAfterEachRequestLosesNoBodyAndLeavesNone(t *testing.T) {
	const tasks = 4
	for _, who := range []string{"d", "p"} {
		last := false
		for k := 0; !last; k++ {
			testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
				seen := &testworld.Seen{}
				p := testworld.Begun(w, processor.New, "p", seen, processor.Options{})
				w.Settled(1)
				time.Sleep(5 * time.Second)
				var cut *azsim.Injection
				crash := func() {
					lost := azsim.Rule{Instance: who, Fault: azsim.AnswerLost, Skip: k, First: 1}
					w.Sim.Inject(lost)
					cut = w.Sim.Inject(azsim.Rule{Instance: who, Fault: azsim.FailBefore, Skip: k + 1})
				}
				crash()
				d := testworld.Begun(w, distributor.New, "d", listOf(tasks), inBlobs)
				time.Sleep(10 * time.Second)
				last = cut.Hits() == 0 || k > 200
				other := testworld.Begun(w, processor.New, "q", seen, processor.Options{})
				if who == "d" {
					d.Stop()
					testworld.Ran(w, distributor.New, "e", listOf(tasks), distributor.Options{
						BlobAbove: 40 << 10, Name: "large", Wait: &pump.WaitOptions{},
					})
				}
				p.Stop()
				w.Within(10*time.Minute, "all is done", func() bool { return w.Left() == 0 })
				expectBodies(w, seen, tasks)
				swept(w)
				if run := w.RunRow(w.Newest()); run.Tasks != tasks || run.Rest != 0 {
					t.Errorf("%s ends after %d requests: %+v", who, k, run)
				}
				other.End()
				<-p.Done
				<-d.Done
			})
			if t.Failed() {
				t.Fatalf("%s ended after %d requests", who, k)
			}
		}
	}
}

var _ = proof.Must
