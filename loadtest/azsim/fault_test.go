package azsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// A rule's effect on the client and on the server, for every kind that decides
// the answer. The put is the request; the peek tells whether it acted.
func TestFaultsFailBeforeOrAfterActing(t *testing.T) {
	for _, c := range []struct {
		rule   Rule
		status int    // of the answer; 0: none
		code   string // of the answer
		err    error  // in its place
		acted  bool
	}{
		{Rule{Fault: Answer}, 503, "ServerBusy", nil, false},
		{Rule{Fault: Answer, Status: 403, Code: "AccountIsDisabled"}, 403, "AccountIsDisabled", nil, false},
		{Rule{Fault: FailBefore}, 0, "", syscall.ECONNRESET, false},
		{Rule{Fault: AnswerAfter}, 500, "InternalError", nil, true},
		{Rule{Fault: AnswerLost}, 0, "", syscall.ECONNRESET, true},
		{Rule{Fault: CutBody}, 0, "", io.ErrUnexpectedEOF, true},
		{Rule{Fault: HangBefore}, 0, "", context.DeadlineExceeded, false},
		{Rule{Fault: HangAfter}, 0, "", context.DeadlineExceeded, true},
		{Rule{Fault: DelayBefore, Delay: 20 * time.Second}, 0, "", context.DeadlineExceeded, false},
		{Rule{Fault: DelayAfter, Delay: 20 * time.Second}, 0, "", context.DeadlineExceeded, true},
		{Rule{Fault: DelayAfter, Delay: 5 * time.Second}, 201, "", nil, true},
	} {
		t.Run(c.rule.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newQueue(t)
				c.rule.Operations, c.rule.First = []string{"PutMessage"}, 1
				i := s.Inject(c.rule)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				a, err := w.within(ctx, "POST", "/queue/messages", text("x"))
				if !errors.Is(err, c.err) || a.status != c.status || a.code != c.code {
					t.Errorf("%d %q, %v; want %d %q, %v", a.status, a.code, err, c.status, c.code, c.err)
				}
				took := time.Since(start)
				if c.err == context.DeadlineExceeded && took != 10*time.Second || c.status == 201 && took != c.rule.Delay {
					t.Errorf("took %v", took)
				}
				if acted := len(w.peek("queue")) == 1; acted != c.acted {
					t.Errorf("acted: %v, want %v", acted, c.acted)
				}
				w.put("queue", "y", "") // the rule was for one request
				if n := s.Stats().Faults[c.rule.Fault]; n != 1 || i.Hits() != 1 {
					t.Errorf("counted %d, hits %d", n, i.Hits())
				}
			})
		})
	}
}

// within is try with a context of its own.
func (w raw) within(ctx context.Context, method, target, body string) (seen, error) {
	w.t.Helper()
	return w.send(w.request(ctx, method, target, body))
}

func TestRulesMatchWhatTheySay(t *testing.T) {
	w, s := newRaw(t, Config{Accounts: []Account{{Name: "acct"}, {Name: "other"}}})
	w.create("one")
	w.create("two")
	other := w
	other.at = "https://other.queue.core.windows.net"
	other.create("one")
	named := w
	named.tr = s.Transport().As("worker-7")
	failing := func(r Rule) string {
		r.Fault = Answer
		i := s.Inject(r)
		defer i.Remove()
		var hit []string
		for name, f := range map[string]func() seen{
			"put one":    func() seen { return w.do("POST", "/one/messages", text("x")) },
			"peek one":   func() seen { return w.do("GET", "/one/messages?peekonly=true", "") },
			"put two":    func() seen { return w.do("POST", "/two/messages", text("x")) },
			"other's":    func() seen { return other.do("POST", "/one/messages", text("x")) },
			"worker-7's": func() seen { return named.do("POST", "/one/messages", text("x")) },
		} {
			if f().status == 503 {
				hit = append(hit, name)
			}
		}
		proof.Same(t, int(i.Hits()), len(hit), r, i.Hits(), "hits failed")
		return sorted(hit)
	}
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{}, "other's, peek one, put one, put two, worker-7's"},
		{Rule{Account: "other"}, "other's"},
		{Rule{Account: "acct", Object: "one"}, "peek one, put one, worker-7's"},
		{Rule{Object: "two"}, "put two"},
		{Rule{Operations: []string{"PeekMessages", "ListQueues"}}, "peek one"},
		{Rule{Instance: "worker-7"}, "worker-7's"},
		{Rule{Service: "table"}, ""},
		{Rule{Service: "queue", Operations: []string{"PutMessage"}, Account: "acct", Object: "two"}, "put two"},
	} {
		proof.Same(t, failing(c.rule), c.want, c.rule)
	}
	proof.Same(t, s.Faults(), "", "left in force")
}

func TestRulesHitAsOftenAsTheySay(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{First: 2}, "xx--------"},
		{Rule{Skip: 3}, "---xxxxxxx"},
		{Rule{Every: 3}, "--x--x--x-"},
		{Rule{Skip: 1, First: 4, Every: 2}, "--x-x-----"},
	} {
		w, s := newQueue(t)
		c.rule.Fault = Answer
		s.Inject(c.rule)
		got := ""
		for range 10 {
			if w.do("GET", "/queue/messages", "").status == 503 {
				got += "x"
			} else {
				got += "-"
			}
		}
		proof.Same(t, got, c.want, c.rule)
	}
}

// P9 (docs/protocols.md): a choice depends on the seed and the occasion, not on what
// other objects are asked in between.
func TestTheSameSeedMakesTheSameChoicesWhateverElseGoesOn(t *testing.T) {
	history := func(seed uint64, noise bool) string {
		w, s := newRaw(t, Config{Seed: seed})
		w.create("queue")
		w.create("noise")
		s.Inject(Rule{Fault: Answer, Probability: 0.3})
		h := ""
		for i := range 200 {
			if noise && i%3 == 0 {
				w.do("GET", "/noise/messages", "")
			}
			h += fmt.Sprint(w.do("GET", "/queue/messages", "").status/100, " ")
		}
		return h
	}
	one := history(1, false)
	proof.Same(t, one, history(1, false), "the histories of one seed")
	proof.Same(t, one, history(1, true), "the histories of one seed")
	if one == history(2, false) {
		t.Error("two seeds, one history")
	}
	if n := strings.Count(one, "5"); n < 40 || n > 80 {
		t.Errorf("%d of 200 failed at a probability of 0.3", n)
	}
}

func TestARulePrintsWhatItDoes(t *testing.T) {
	w, s := newQueue(t)
	s.Inject(Rule{Fault: Answer, Status: 500, Code: "InternalError", Account: "acct", Operations: []string{"PutMessage", "GetMessages"}, Every: 2})
	s.Inject(Rule{Fault: DelayBefore, Delay: time.Nanosecond, Probability: 0.25, Instance: "i", Object: "q", Service: "queue", Skip: 1, First: 9})
	w.do("POST", "/queue/messages", text("x"))
	w.do("POST", "/queue/messages", text("x"))
	want := "answer 500 InternalError account=acct operations=PutMessage,GetMessages every=2 (1 of 2 matching)\n" +
		"delay-before 1ns service=queue object=q instance=i skip=1 first=9 probability=0.25 (0 of 0 matching)\n"
	proof.Same(t, s.Faults(), want)
	for _, r := range []Rule{{}, {Fault: "nosuch"}, {Fault: DelayAfter}, {Fault: Answer, Probability: 2}, {Fault: Answer, Skip: -1}, {Fault: Answer, Service: "file"}, {Fault: Answer, Status: 99}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", r)
				}
			}()
			s.Inject(r)
		}()
	}
}

// get-messages: a message "can reappear before that timeout has elapsed"
// (window 12); at-least-once delivery (windows 2, 11).
func TestDeliverTwiceAndReappearEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newQueue(t)
		w.put("queue", "x", "")
		s.Inject(Rule{Fault: DeliverTwice, First: 1})
		one, two := w.get("queue", ""), w.get("queue", "")
		if len(one) != 1 || len(two) != 1 || one[0].ID != two[0].ID || two[0].Dequeued != 2 || one[0].Next != two[0].Next {
			t.Fatalf("%+v, %+v", one, two)
		}
		w.want(404, "MessageNotFound", "DELETE", one[0].target("queue", ""), "")
		w.want(204, "", "DELETE", two[0].target("queue", ""), "")

		w.put("queue", "y", "")
		s.Inject(Rule{Fault: ReappearEarly, First: 1})
		m := w.get("queue", "?visibilitytimeout=100")
		proof.Has(t, m[0].Next, time.Now().Add(100*time.Second).UTC().Format("15:04:05"), "promised until")
		start := time.Now()
		for len(w.peek("queue")) == 0 {
			time.Sleep(time.Second)
		}
		if d := time.Since(start); d < 10*time.Second || d > 91*time.Second {
			t.Errorf("came back after %v", d)
		}
		w.want(204, "", "DELETE", m[0].target("queue", ""), "") // no other client took it
	})
}

// "generally first in, first out": no order is promised (window 37).
func TestReorderTakesOtherMessagesThanTheFirst(t *testing.T) {
	order := func(seed uint64) string {
		w, s := newRaw(t, Config{Seed: seed})
		w.create("queue")
		for i := range 40 {
			w.put("queue", fmt.Sprint(i), "")
		}
		s.Inject(Rule{Fault: Reorder})
		got := texts(w.get("queue", "?numofmessages=32")) + " " + texts(w.get("queue", "?numofmessages=32"))
		all := strings.Fields(got)
		if len(all) != 40 {
			t.Fatalf("got %d messages", len(all))
		}
		seen := map[string]bool{}
		for _, m := range all {
			if seen[m] {
				t.Fatalf("%s came twice", m)
			}
			seen[m] = true
		}
		return got
	}
	one := order(1)
	if strings.HasPrefix(one, "0 1 2 3 4 5") || one != order(1) || one == order(2) {
		t.Errorf("order: %s", one)
	}
}

func TestABlackoutRefusesConnectionsAndLosesAnswersUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newRaw(t, Config{Accounts: []Account{{Name: "acct"}, {Name: "other"}}, Latency: 100 * time.Millisecond})
		w.create("queue")
		time.AfterFunc(80*time.Millisecond, func() { s.Blackout("acct", true) })
		proof.Is(t, proof.ErrOf(w.try("POST", "/queue/messages", text("x"))), syscall.ECONNRESET, "under way")
		proof.Is(t, proof.ErrOf(w.try("POST", "/queue/messages", text("y"))), syscall.ECONNREFUSED, "dark")
		other := w
		other.at = "https://other.queue.core.windows.net"
		other.create("queue") // is not dark
		s.Blackout("acct", false)
		proof.Same(t, texts(w.peek("queue")), "x", "what acted")
		s.Hang("acct", true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := w.within(ctx, "POST", "/queue/messages", text("z")); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("hanging: %v after %v", err, time.Since(start))
		}
		proof.Same(t, s.Stats().Blackouts["acct"], 2, "requests met the dark")
		s.Blackout("nosuch", true)
	})
}

// Who arranges a test knows what each of its requests has done.
func TestSparedRequestsMeetNoRuleAndNoBlackout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newRaw(t, Config{Accounts: []Account{{Name: "acct"}}})
		w.create("queue")
		lost := s.Inject(Rule{Fault: AnswerLost})
		spared := w
		spared.tr = s.Transport().Spared()
		s.Blackout("acct", true)
		if a, err := spared.try("POST", "/queue/messages", text("x")); err != nil || a.status != 201 {
			t.Errorf("%v, %v", a, err)
		}
		proof.Same(t, s.Stats().Blackouts["acct"], 0, "a spared request")
		proof.Same(t, lost.Hits(), 0, "a spared request")
	})
}

// P9: each hop has its own nanoseconds, the same for the same seed.
func TestLatencyIsTheSameForTheSameSeedAndNeverTies(t *testing.T) {
	took := func(seed uint64) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			w, _ := newRaw(t, Config{Seed: seed, Latency: 10 * time.Millisecond})
			w.create("queue")
			for range 50 {
				start := time.Now()
				w.do("GET", "/queue/messages", "")
				all = append(all, time.Since(start))
			}
		})
		return all
	}
	one := took(1)
	seen := map[time.Duration]bool{}
	for _, d := range one {
		if d < 10*time.Millisecond || d > 15*time.Millisecond || seen[d] {
			t.Errorf("%v", d)
		}
		seen[d] = true
	}
	proof.Same(t, fmt.Sprint(one), fmt.Sprint(took(1)), "one seed, two histories")
	if fmt.Sprint(one) == fmt.Sprint(took(2)) {
		t.Error("two seeds, one history")
	}
}

// A request that its client gave up before it arrived never acts.
func TestTheClientsContextIsHonouredOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newRaw(t, Config{Latency: time.Second})
		w.create("queue")
		for after, acted := range map[time.Duration]int{100 * time.Millisecond: 0, 900 * time.Millisecond: 1} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			proof.Is(t, proof.ErrOf(w.within(ctx, "POST", "/queue/messages", text("x"))), context.DeadlineExceeded, "after", after)
			cancel()
			proof.Same(t, len(w.peek("queue")), acted, "given up after", after, "messages")
			w.want(204, "", "DELETE", "/queue/messages", "")
		}
		proof.Same(t, s.Stats().Count("acct", "PutMessage"), 2, "puts counted")
	})
}

func TestLatencyChangesWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newQueue(t)
		takes := func(least, most time.Duration) {
			t.Helper()
			began := time.Now()
			w.want(201, "", "POST", "/queue/messages", text("x"))
			if d := time.Since(began); d < least || d > most {
				t.Errorf("a put took %v, want %v to %v", d, least, most)
			}
		}
		takes(0, 0)
		s.SetLatency(Latency{Queue: 10 * time.Millisecond, Table: time.Hour})
		takes(10*time.Millisecond, 15*time.Millisecond)
		s.SetLatency(Latency{Queue: 10 * time.Millisecond, Spread: time.Second})
		began := time.Now()
		for range 20 {
			takes(10*time.Millisecond, 1010*time.Millisecond)
		}
		if d := time.Since(began); d < 5*time.Second || d > 15*time.Second {
			t.Errorf("20 puts took %v, want about 10 s", d)
		}
		s.SetLatency(Latency{})
		takes(0, 0)
	})
}
