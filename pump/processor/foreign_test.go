package processor

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// A14: a text keeps its name wherever it goes, unless it fills a message and does not compress.
func TestAWrappedForeignTextKeepsItsName(t *testing.T) {
	noise := make([]byte, 49000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	full := []byte(base64.StdEncoding.EncodeToString(noise))
	for size, fits := range map[int]bool{5: true, 60 << 10: true, 63 << 10: true, 65330: false} {
		d := &message.Delivery{Body: full[:size], Foreign: "work-00/1", Header: codec.Header{Workload: "work", Tasks: codec.MakeNSet(0), Segment: 3}}
		text, ok := d.Wrap(2)
		proof.Same(t, ok, fits, size, "bytes")
		if !ok {
			continue
		}
		env, err := codec.Open(text, codec.Limits{})
		if err != nil || string(env.Tasks[0].ID) != "work-00/1" || string(env.Tasks[0].Body) != string(full[:size]) || env.Header.Attempt != 2 || env.Header.Segment != 3 {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// A14: a message that somebody else got before may have been forwarded, so its name outlives its
// delete.
func TestTheNameOfAMessageThatOthersGotBeforeOutlivesItsDelete(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		account, queue := w.Home(testworld.Greeted)
		id := w.PutText(account, queue, testworld.Greeting)
		if ms, err := w.Queue(account, queue).Get(t.Context(), 1, time.Second); err != nil || len(ms) != 1 { // a sweeper
			t.Fatal(ms, err)
		}
		foreign := message.Delivery{Body: testworld.Greeting, Foreign: queue + "/" + id, Header: codec.Header{
			Workload: w.Cfg.Workload, Tasks: codec.MakeNSet(0), Segment: testworld.Greeted,
		}}
		copied, ok := foreign.Wrap(0)
		if !ok {
			t.Fatal("it does not fit")
		}
		h := &testworld.Seen{}
		p := testworld.Begun(w, New, "p", h, Options{})
		w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 1 && w.Left() == 0 })
		w.PutTasks(testworld.Greeted, 0) // and recorded with a commit that would take the name along
		w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 2 && w.Left() == 0 })
		w.PutText(account, queue, copied) // what the sweeper put, from an account that was dark
		w.Within(time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		p.End()
		h.Expect(t, 2, 2)
	})
}

// P1.4: what a handler does with its task does not change the name that the task is known by.
func TestAHandlerThatClearsATaskWithANameDoesNotLoseIt(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		account, queue := w.Home(testworld.Greeted)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			first := task.Attempt == 1
			clear(task.Body)
			*task = pump.Task{}
			if first {
				return testworld.ErrFlop
			}
			return nil
		}}
		must(t, w.AllRuns().End(t.Context(), w.Run, false, "by hand"))
		w.PutText(account, queue, testworld.Greeting)
		w.PutText(account, queue, w.Text(testworld.Greeted, func(h *codec.Header) { h.Generation = 1 }, 0)) // redriven
		p := testworld.Begun(w, New, "p", h, Options{})
		w.Within(5*time.Minute, "both are done", func() bool { return w.Left() == 0 })
		p.End()
		h.Expect(t, 2, 4)
		bodies := map[string]int{}
		for _, task := range h.Order {
			bodies[string(task.Body)]++
		}
		proof.Same(t, len(bodies), 2, "bodies", bodies)
	})
}

// The same of a handler that is given up.
func TestAHandlerThatClearsItsTaskAndHangsDoesNotLoseIt(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		account, queue := w.Home(testworld.Greeted)
		h := &testworld.Seen{Work: func(_ context.Context, task *pump.Task) error {
			first := task.Attempt == 1
			*task = pump.Task{}
			if first {
				time.Sleep(time.Minute)
			}
			return nil
		}}
		w.PutText(account, queue, testworld.Greeting)
		w.PutTasks(testworld.Greeted, 7)
		p := testworld.Begun(w, New, "p", h, Options{Timeout: time.Second})
		w.Within(5*time.Minute, "both are done", func() bool { return w.Left() == 0 })
		time.Sleep(time.Minute)
		p.End()
		h.Expect(t, 2, 4)
	})
}
