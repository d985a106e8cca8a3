package send

import (
	"testing"
	"time"
)

// play feeds a health what happened at which second, and gives the state after each.
type play struct {
	h     health
	began time.Time
}

func (p *play) at(second float64) time.Time {
	return p.began.Add(time.Duration(second * float64(time.Second)))
}

func newPlay() *play { return &play{began: time.Unix(1000, 0)} }

// fail lets puts fail without an answer from one second to another, twice a second.
func (p *play) fail(from, to float64) {
	for s := from; s <= to; s += 0.5 {
		p.h.sent(p.at(s))
		p.h.lost(p.at(s))
	}
}

func TestAQueueIsDarkAfterSecondsOfNothingButFailures(t *testing.T) {
	p := newPlay()
	p.h.sent(p.at(0))
	p.h.acknowledged(p.at(0))
	p.fail(1, 5.5)
	if p.h.dark {
		t.Error("dark after 4.5 s")
	}
	p.fail(6, 6)
	if !p.h.dark {
		t.Error("not dark after 5 s")
	}
}

func TestAnAcknowledgementBetweenFailuresIsNoDarkness(t *testing.T) {
	p := newPlay()
	for s := 0.0; s < 100; s += 2 {
		p.fail(s, s+1.5)
		p.h.acknowledged(p.at(s + 1.9))
	}
	if p.h.dark {
		t.Error("dark though something is acknowledged every two seconds")
	}
}

// The one put of a slow source that hangs until its deadline is no dark queue yet.
func TestOneLostAnswerIsNoDarkness(t *testing.T) {
	p := newPlay()
	p.h.sent(p.at(0))
	p.h.lost(p.at(10))
	if p.h.dark {
		t.Error("dark after one lost answer")
	}
	p.h.sent(p.at(11))
	p.h.lost(p.at(21))
	if !p.h.dark {
		t.Error("not dark after two in a row")
	}
}

// What failed before an hour without a put, and went elsewhere then, does not make the queue dark
// with the first trouble after it.
func TestWhatFailedBeforeARestIsNoDarkness(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(p *play, at float64) }{
		"a lost answer": {
			func(p *play, at float64) { p.h.lost(p.at(at)) }, func(p *play, at float64) { p.h.lost(p.at(at + 3)) },
		},
		"a throttle": {
			func(p *play, at float64) { p.h.refused(p.at(at)) }, func(p *play, at float64) { p.h.refused(p.at(at)) },
		},
		"a burst whose first puts are slow": {
			func(p *play, at float64) { p.h.lost(p.at(at)) }, func(p *play, at float64) { p.h.look(p.at(at+1), true) },
		},
	} {
		p := newPlay()
		p.h.sent(p.at(0))
		c.before(p, 1)
		p.h.look(p.at(3600), true)
		p.h.sent(p.at(3601))
		c.after(p, 3601)
		if p.h.dark {
			t.Errorf("dark after %s", name)
		}
		p.fail(3602, 3607)
		if !p.h.dark {
			t.Errorf("not dark after seconds of failures, which came after %s", name)
		}
	}
}

func TestAQueueThatOnlyThrottlesIsDarkAfterHalfAMinute(t *testing.T) {
	p := newPlay()
	for s := 0.0; s < 30; s++ {
		p.h.sent(p.at(s))
		p.h.refused(p.at(s))
	}
	if p.h.dark {
		t.Error("dark after 29 s of throttles")
	}
	p.h.refused(p.at(30))
	if !p.h.dark {
		t.Error("not dark after 30 s of throttles")
	}
}

func TestADarkQueueIsProbedOneAtATimeAndComesBackWithTheFirstAcknowledgement(t *testing.T) {
	p := newPlay()
	p.fail(0, 5)
	if p.h.probe(p.at(6), "i", "q") {
		t.Error("probed a second after it turned dark")
	}
	if !p.h.probe(p.at(12), "i", "q") || p.h.probe(p.at(12), "i", "q") {
		t.Error("want one probe at a time")
	}
	p.h.lost(p.at(22))
	if p.h.probe(p.at(23), "i", "q") {
		t.Error("probed a second after the last probe failed")
	}
	if !p.h.probe(p.at(30), "i", "q") {
		t.Error("not probed again")
	}
	p.h.acknowledged(p.at(30.1))
	if p.h.dark || p.h.probe(p.at(60), "i", "q") {
		t.Error("still dark")
	}
}

// A probe that is turned down for another reason makes way for the next one.
func TestAProbeThatIsTurnedDownIsOver(t *testing.T) {
	p := newPlay()
	p.fail(0, 5)
	if !p.h.probe(p.at(12), "i", "q") {
		t.Fatal("not probed")
	}
	p.h.turnedDown(p.at(13))
	if !p.h.dark || !p.h.probe(p.at(21), "i", "q") {
		t.Error("want it dark and probed again")
	}
}

// A queue that comes and goes is left alone for longer each time.
func TestAQueueThatTurnsDarkAgainIsHeldDark(t *testing.T) {
	p := newPlay()
	now, returns := 0.0, 0
	for now < 1800 { // no answer for 6 s, then answers for 6 s, for half an hour
		p.fail(now, now+6)
		now += 6.5
		was := p.h.dark
		for s := now; s < now+6; s++ {
			if p.h.probe(p.at(s), "i", "q") || !p.h.dark {
				p.h.sent(p.at(s))
				p.h.acknowledged(p.at(s))
			}
		}
		if was && !p.h.dark {
			returns++
		}
		now += 6
	}
	if returns < 3 || returns > 15 {
		t.Errorf("came back %d times in half an hour of 144 outages", returns)
	}
}

func TestAQueueIsAtItsLimitWhenItThrottlesAndIsBusyForSeconds(t *testing.T) {
	p := newPlay()
	for s := 0.0; s < 10; s++ {
		p.h.look(p.at(s), true)
	}
	if p.h.atLimit {
		t.Error("at its limit without a throttle: this process is what is slow")
	}
	p.h.refused(p.at(10))
	p.h.acknowledged(p.at(10))
	p.h.look(p.at(10), false)
	p.h.look(p.at(11), true)
	p.h.look(p.at(15), true)
	if p.h.atLimit {
		t.Error("at its limit after 4 s of being busy")
	}
	p.h.look(p.at(16), true)
	if p.h.atLimit {
		t.Error("at its limit though nothing was throttled since it is busy, as where an account was just added")
	}
	p.h.refused(p.at(16))
	p.h.acknowledged(p.at(16))
	p.h.look(p.at(16), true)
	if !p.h.atLimit {
		t.Error("not at its limit after 5 s of being busy")
	}
}

// While others help it is not always busy; that is no reason to send them home.
func TestAQueueAtItsLimitStaysSoWhileItIsBusyNowAndThen(t *testing.T) {
	p := newPlay()
	p.h.look(p.at(0), true)
	p.h.refused(p.at(5))
	p.h.look(p.at(5), true)
	for s := 6.0; s < 100; s++ {
		p.h.look(p.at(s), int(s)%2 != 0)
		if int(s)%15 == 0 {
			p.h.refused(p.at(s))
			p.h.acknowledged(p.at(s))
		}
		if !p.h.atLimit {
			t.Fatalf("not at its limit any more at %v s", s)
		}
	}
	p.h.look(p.at(119), true)
	if !p.h.atLimit {
		t.Error("not at its limit 29 s after a throttle")
	}
	p.h.look(p.at(120), true)
	if p.h.atLimit {
		t.Error("still at its limit 30 s after the last throttle")
	}
}
