package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/shardmap"
)

// foreignBound is how many foreign messages of a segment were recognised once, whatever became of them.
const foreignBound = 8192

// A14: messages whose deletes an account does not take are recognised when it is back, however many
// others of their segment have passed meanwhile, and by the next process too.
func TestForeignMessagesOfADarkAccountAreRecognisedHoweverManyOthersPassMeanwhile(t *testing.T) {
	verify.Only(t)
	inOnceWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		const early, more = 40, foreignBound + 200
		for range early {
			w.putText("accountb", "work-00", []byte("hello"))
		}
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{Grace: 5 * time.Second}))
		dark := w.fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.HangBefore}, "DeleteMessage")
		w.within(time.Minute, "the first are recorded", func() bool { return p.of.State().Done.Recorded == early })
		all := w.fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.HangBefore})
		went := time.Now()
		for range more {
			w.putText("accounta", "work-00", []byte("hello"))
		}
		w.within(time.Minute, "the others are recorded", func() bool { return h.tasks() == early+more && w.count("accounta", "work-00") == 0 })
		time.Sleep(time.Until(went.Add(3 * time.Minute)))
		p.end()
		p = w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(time.Until(went.Add(4 * time.Minute)))
		all.Remove()
		dark.Remove()
		w.within(10*time.Minute, "nothing is left", func() bool { return w.left() == 0 })
		s := p.end()
		h.expect(t, early+more, early+more)
		if s.Duplicates != early || dark.Hits() == 0 || all.Hits() == 0 {
			t.Errorf("%d recognised; %v, %v", s.Duplicates, dark, all)
		}
	})
}

// fillNames records so many names of foreign messages in the segment of the greeting.
func (w *world) fillNames(names int) {
	w.t.Helper()
	s := w.scribe()
	for n := 0; n < names; n += 1024 {
		var entries []*ledger.Entry
		for i := n; i < min(n+1024, names); i++ {
			entries = append(entries, &ledger.Entry{Segment: greeted, Epoch: 1, Foreign: fmt.Sprint("of before/", i)})
		}
		s.ledger.Commit(w.t.Context(), entries)
		for _, e := range entries {
			if e.Err != nil {
				w.t.Fatal(e.Err)
			}
		}
	}
}

// A14: at the bound foreign messages wait, loudly and without suspicion, and go on when deletes are acknowledged.
func TestForeignMessagesWaitWhereNamesAreTooManyAndGoOnWhenDeletesAreAcknowledged(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		const room, all = 20, 40
		w.fillNames(ledger.MaxForeign - room)
		account, queue := w.home(greeted)
		refused := w.fault(azsim.Rule{Fault: azsim.FailBefore}, "DeleteMessage")
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(time.Minute)
		for range all {
			w.putText(account, queue, greeting)
		}
		w.putTasks(greeted, 0, 1) // tasks of runs do not wait
		time.Sleep(3 * time.Minute)
		s := p.of.State()
		if n := h.tasks(); n != room+2 || s.ForeignWaits != 1 || s.Ready || !strings.Contains(strings.Join(s.Reasons, "; "), "foreign messages of 1 of its segments wait") {
			t.Errorf("%d handled, %d segments wait, it says %q", n, s.ForeignWaits, s.Reasons)
		}
		if w.logged("half full or more") == 0 || w.logged("foreign messages wait") == 0 {
			t.Error("nothing is said of it")
		}
		refused.Remove()
		w.within(8*time.Minute, "all are handled", func() bool { return h.tasks() == all+2 && w.left() == 0 })
		time.Sleep(knownNamesWaited + time.Minute)
		if s := p.of.State(); s.ForeignWaits != 0 || len(s.Reasons) != 0 {
			t.Errorf("it says %q", s.Reasons)
		}
		sum := p.end()
		h.expect(t, all+2, all+2)
		if sum.Split != 0 || sum.Quarantined != 0 || w.logged("suspiciously") != 0 {
			t.Errorf("%+v", sum)
		}
	})
}

// A14: names that nobody confirms do not keep foreign messages waiting for ever.
func TestForeignMessagesGoOnWhenTheOldestNamesAreOldEnough(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		w.fillNames(ledger.MaxForeign)
		account, queue := w.home(greeted)
		for range 40 {
			w.putText(account, queue, greeting)
		}
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{}))
		time.Sleep(knownNamesKept - 2*time.Minute)
		h.expect(t, 0, 0)
		w.within(6*time.Minute, "all are handled", func() bool { return h.tasks() == 40 && w.left() == 0 })
		sum := p.end()
		h.expect(t, 40, 40)
		if sum.Split != 0 || sum.Quarantined != 0 || w.logged("suspiciously") != 0 {
			t.Errorf("%+v", sum)
		}
	})
}

// A14: while a queue does not answer, no name goes for its age: its message may be in that queue.
func TestNoNameGoesForItsAgeWhileAQueueDoesNotAnswer(t *testing.T) {
	inOnceWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		w.fillNames(ledger.MaxForeign)
		w.fault(azsim.Rule{Account: "accountb", Service: "queue", Fault: azsim.HangBefore})
		for range 3 {
			w.putText("accounta", "work-00", greeting)
		}
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{Grace: 5 * time.Second}))
		time.Sleep(2 * knownNamesKept)
		h.expect(t, 0, 0)
		p.end()
	})
}

// A14: a message and the copies with which keepers bring it home are one task, whichever comes first.
func TestAForeignMessageAndItsForwardedCopiesAreOneTask(t *testing.T) {
	inOnceWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		const all = 60
		first := &seen{}
		ps := []*started{w.start(w.processorOf("p", first, ProcessorOptions{})), w.start(w.processorOf("q", first, ProcessorOptions{}))}
		time.Sleep(time.Minute)
		var lost []*azsim.Injection
		for _, op := range []string{"DeleteMessage", "PutMessage"} {
			for _, instance := range []string{"p", "q"} {
				lost = append(lost, w.fault(azsim.Rule{Instance: instance, Fault: azsim.AnswerAfter, Every: 3, First: 30}, op))
				if op == "DeleteMessage" {
					lost = append(lost, w.fault(azsim.Rule{Instance: instance, Fault: azsim.FailBefore, Every: 2, First: 60}, op))
				}
			}
		}
		for i := range all {
			text := fmt.Append(nil, "text ", i)
			_, home := w.home(shardmap.Segment(text, 64))
			account, _ := w.home(shardmap.Segment(text, 64))
			w.putText(map[string]string{"accounta": "accountb", "accountb": "accounta"}[account], home, text)
		}
		w.within(5*time.Minute, "nothing is left", func() bool { return w.left() == 0 })
		forwarded := int64(0)
		for _, p := range ps {
			forwarded += p.end().Forwarded
		}
		first.expect(t, all, all)
		if forwarded < all/2 {
			t.Errorf("%d were forwarded; %v", forwarded, lost)
		}
	})
}

// A task that was redriven of an ended run is recognised after its message was deleted, and by the next process.
func TestACopyOfARedrivenTaskOfAnEndedRunIsRecognisedAfterItsMessageWasDeleted(t *testing.T) {
	onceWorld(t, func(t *testing.T, w *world) {
		ended := w.newRun()
		if err := w.allRuns().End(t.Context(), ended, false, "by hand"); err != nil {
			t.Fatal(err)
		}
		account, queue := w.home(3)
		redriven := func() {
			w.putText(account, queue, w.text(3, func(h *codec.Header) { h.Run, h.Generation = ended, 1 }, 5, 6))
		}
		redriven()
		h := &seen{}
		p := w.start(w.processor(h, ProcessorOptions{}))
		w.within(time.Minute, "they are done", func() bool { return h.tasks() == 2 && w.left() == 0 })
		w.putTasks(3, 0) // and recorded with a commit that would take names along
		w.within(time.Minute, "it is done", func() bool { return h.tasks() == 3 && w.left() == 0 })
		redriven()
		w.within(time.Minute, "nothing is left", func() bool { return w.left() == 0 })
		p.end()
		redriven()
		s := w.drain(h, ProcessorOptions{UntilIdle: 10 * time.Second})
		h.expect(t, 3, 3)
		if s.Duplicates != 2 {
			t.Errorf("%+v", s)
		}
	})
}
