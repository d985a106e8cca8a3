package message_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/shardmap"
)

// These are figures of the code under test, which no caller can name.
const (
	namesKept   = 15 * time.Minute
	namesWaited = 5 * time.Minute
)

// foreignBound was once the number of foreign messages that a segment recognised, whatever their
// end.
const foreignBound = 8192

// A14: messages whose deletes an account does not take are recognised when it is back, however many
// others of their segment have passed meanwhile, and by the next process too.
func TestForeignMessagesOfADarkAccountAreRecognisedHoweverManyOthersPassMeanwhile(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		const early, more = 40, foreignBound + 200
		for range early {
			w.PutText("accountb", "work-00", []byte("hello"))
		}
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Grace: 5 * time.Second})
		dark := w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.HangBefore}, "DeleteMessage")
		w.Within(time.Minute, "the first are recorded", func() bool { return p.Of.State().Done.Recorded == early })
		all := w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.HangBefore})
		went := time.Now()
		for range more {
			w.PutText("accounta", "work-00", []byte("hello"))
		}
		w.Within(time.Minute, "the others are recorded", func() bool { return h.Tasks() == early+more && w.Count("accounta", "work-00") == 0 })
		time.Sleep(time.Until(went.Add(3 * time.Minute)))
		p.End()
		p = testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(time.Until(went.Add(4 * time.Minute)))
		all.Remove()
		dark.Remove()
		w.Within(10*time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		s := p.End()
		h.Expect(t, early+more, early+more)
		if s.Duplicates != early || dark.Hits() == 0 || all.Hits() == 0 {
			t.Errorf("%d recognised; %v, %v", s.Duplicates, dark, all)
		}
	})
}

// fillNames records so many names of foreign messages in the segment of the greeting.
func fillNames(w *testworld.World, names int) {
	w.T.Helper()
	s := w.Scribe()
	for n := 0; n < names; n += 1024 {
		var entries []*ledger.Entry
		for i := n; i < min(n+1024, names); i++ {
			entries = append(entries, &ledger.Entry{Segment: testworld.Greeted, Epoch: 1, Foreign: fmt.Sprint("of before/", i)})
		}
		s.Ledger.Commit(w.T.Context(), entries)
		for _, e := range entries {
			if e.Err != nil {
				w.T.Fatal(e.Err)
			}
		}
	}
}

// A14: at the bound foreign messages wait, loudly and without suspicion, and go on when deletes are
// acknowledged.
func TestForeignMessagesWaitWhereNamesAreTooManyAndGoOnWhenDeletesAreAcknowledged(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		const room, all = 20, 40
		fillNames(w, ledger.MaxForeign-room)
		account, queue := w.Home(testworld.Greeted)
		refused := w.Fault(azsim.Rule{Fault: azsim.FailBefore}, "DeleteMessage")
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(time.Minute)
		for range all {
			w.PutText(account, queue, testworld.Greeting)
		}
		w.PutTasks(testworld.Greeted, 0, 1) // tasks of runs do not wait
		time.Sleep(3 * time.Minute)
		s := p.Of.State()
		if n := h.Tasks(); n != room+2 || s.ForeignWaits != 1 || s.Ready || !strings.Contains(strings.Join(s.Reasons, "; "), "foreign messages of 1 of its segments wait") {
			t.Errorf("%d handled, %d segments wait, it says %q", n, s.ForeignWaits, s.Reasons)
		}
		if w.Logged("half full or more") == 0 || w.Logged("foreign messages wait") == 0 {
			t.Error("nothing is said of it")
		}
		refused.Remove()
		w.Within(8*time.Minute, "all are handled", func() bool { return h.Tasks() == all+2 && w.Left() == 0 })
		time.Sleep(namesWaited + time.Minute)
		if s := p.Of.State(); s.ForeignWaits != 0 || len(s.Reasons) != 0 {
			t.Errorf("it says %q", s.Reasons)
		}
		sum := p.End()
		h.Expect(t, all+2, all+2)
		if sum.Split != 0 || sum.Quarantined != 0 || w.Logged("suspiciously") != 0 {
			t.Errorf("%+v", sum)
		}
	})
}

// A14: names that no delete confirms do not keep foreign messages waiting for ever.
func TestForeignMessagesGoOnWhenTheOldestNamesAreOldEnough(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		fillNames(w, ledger.MaxForeign)
		account, queue := w.Home(testworld.Greeted)
		for range 40 {
			w.PutText(account, queue, testworld.Greeting)
		}
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		time.Sleep(namesKept - 2*time.Minute)
		h.Expect(t, 0, 0)
		w.Within(6*time.Minute, "all are handled", func() bool { return h.Tasks() == 40 && w.Left() == 0 })
		sum := p.End()
		h.Expect(t, 40, 40)
		if sum.Split != 0 || sum.Quarantined != 0 || w.Logged("suspiciously") != 0 {
			t.Errorf("%+v", sum)
		}
	})
}

// A14: while a queue does not answer, no name goes for its age: its message may be in that queue.
func TestNoNameGoesForItsAgeWhileAQueueDoesNotAnswer(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		fillNames(w, ledger.MaxForeign)
		w.Fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.HangBefore})
		for range 3 {
			w.PutText("accounta", "work-00", testworld.Greeting)
		}
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Grace: 5 * time.Second})
		time.Sleep(2 * namesKept)
		h.Expect(t, 0, 0)
		p.End()
	})
}

// A14: a message and the copies with which sweepers bring it home are one task, whichever comes
// first.
func TestAForeignMessageAndItsForwardedCopiesAreOneTask(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		const all = 60
		first := &testworld.Seen{}
		ps := []*testworld.Started[*processor.Processor, processor.Summary]{testworld.Begun(w, processor.New, "p", first, processor.Options{}), testworld.Begun(w, processor.New, "q", first, processor.Options{})}
		time.Sleep(time.Minute)
		var lost []*azsim.Injection
		for _, op := range []string{"DeleteMessage", "PutMessage"} {
			for _, instance := range []string{"p", "q"} {
				lost = append(lost, w.Fault(azsim.Rule{Instance: instance, Fault: azsim.AnswerAfter, Every: 3, First: 30}, op))
				if op == "DeleteMessage" {
					lost = append(lost, w.Fault(azsim.Rule{Instance: instance, Fault: azsim.FailBefore, Every: 2, First: 60}, op))
				}
			}
		}
		for i := range all {
			text := fmt.Append(nil, "text ", i)
			_, home := w.Home(shardmap.Segment(text, 64))
			account, _ := w.Home(shardmap.Segment(text, 64))
			w.PutText(map[string]string{"accounta": "accountb", "accountb": "accounta"}[account], home, text)
		}
		w.Within(5*time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		forwarded := int64(0)
		for _, p := range ps {
			forwarded += p.End().Forwarded
		}
		first.Expect(t, all, all)
		if forwarded < all/2 {
			t.Errorf("%d were forwarded; %v", forwarded, lost)
		}
	})
}

// A task of an ended run that was redriven is recognised after its message was deleted, and by the
// next process.
func TestACopyOfARedrivenTaskOfAnEndedRunIsRecognisedAfterItsMessageWasDeleted(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		ended := w.NewRun()
		proof.Must(t, w.AllRuns().End(t.Context(), ended, false, "by hand"))
		account, queue := w.Home(3)
		redriven := func() {
			w.PutText(account, queue, w.Text(3, func(h *codec.Header) { h.Run, h.Generation = ended, 1 }, 5, 6))
		}
		redriven()
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
		w.Within(time.Minute, "they are done", func() bool { return h.Tasks() == 2 && w.Left() == 0 })
		w.PutTasks(3, 0) // and recorded with a commit that would take names along
		w.Within(time.Minute, "it is done", func() bool { return h.Tasks() == 3 && w.Left() == 0 })
		redriven()
		w.Within(time.Minute, "nothing is left", func() bool { return w.Left() == 0 })
		p.End()
		redriven()
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 10 * time.Second})
		h.Expect(t, 3, 3)
		proof.Same(t, s.Duplicates, 2, s)
	})
}

// A message of a foreign queue that was brought home, and whose delete was lost, may come again
// when its reader can read the queue again. The owner of its segment is another process, whose
// queues all answer. It must know the message's name until then.
func TestNoNameGoesForItsAgeWhileAnotherProcessorCannotReadAForeignQueue(t *testing.T) {
	testworld.In(t, testworld.Once, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		foreign := []string{"orders-1", "orders-2"} // neighbours by name have different readers
		m := w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard {
			for _, queue := range foreign {
				proof.Must(t, w.Queue("accountb", queue).Create(t.Context()))
				shards = append(shards, shardmap.Shard{Account: "accountb", Queue: queue, State: shardmap.Foreign})
			}
			return shards
		})
		fillNames(w, ledger.MaxForeign)
		for range 3 {
			account, queue := w.Home(testworld.Greeted)
			w.PutText(account, queue, testworld.Greeting)
		}
		h := &testworld.Seen{}
		o := processor.Options{Grace: 5 * time.Second}
		p, q := testworld.Begun(w, processor.New, "p", h, o), testworld.Begun(w, processor.New, "q", h, o)
		time.Sleep(time.Minute)
		v := w.View()
		var dark, puts *azsim.Injection
		for i, s := range m.Shards {
			switch {
			case s.State != shardmap.Foreign:
			case v.Sweeper(i) != v.Owners[testworld.Greeted].Instance:
				// It is told to slow down, for which no other one takes its place.
				dark = w.Sim.Inject(azsim.Rule{
					Account: s.Account, Object: s.Queue, Fault: azsim.Answer, Operations: []string{"GetMessages"},
					Instance: v.Sweeper(i),
				})
			default: // what waits there is put back again and again, and never anew
				for range 3 {
					w.PutText(s.Account, s.Queue, testworld.Greeting)
				}
				puts = w.Fault(azsim.Rule{Account: s.Account, Object: s.Queue, Fault: azsim.FailBefore}, "PutMessage")
			}
		}
		time.Sleep(2 * namesKept)
		h.Expect(t, 0, 0)
		dark.Remove()
		w.Within(namesKept+10*time.Minute, "all are handled", func() bool { return h.Tasks() == 6 && w.Left() == 0 })
		p.End()
		q.End()
		h.Expect(t, 6, 6)
		if dark.Hits() == 0 || puts.Hits() > 0 {
			t.Errorf("%v; %v", dark, puts)
		}
	})
}
