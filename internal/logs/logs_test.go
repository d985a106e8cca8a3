package logs

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestTheFirstLineOfAKindComesAtOnceAndTheOthersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := Kinds{Every: PerTask}
		var got []string
		add := func(kind string, n int) {
			k.Of(kind).Add(2, func(events, tasks int) {
				got = append(got, fmt.Sprintf("%s %d: %d events, %d tasks", kind, n, events, tasks))
			})
		}
		add("b", 0)
		for n := range 25 {
			add("a", n)
			time.Sleep(time.Second)
		}
		add("b", 1)
		add("b", 2)
		k.Flush()
		k.Flush() // nothing is left
		want := []string{
			"b 0: 1 events, 2 tasks", "a 0: 1 events, 2 tasks", "a 10: 10 events, 20 tasks", "a 20: 10 events, 20 tasks",
			"b 1: 1 events, 2 tasks", "a 24: 4 events, 8 tasks", "b 2: 1 events, 2 tasks",
		}
		proof.Alike(t, got, want)
	})
}

func TestALineIsWrittenAtOnceOnceAMinuteAndAtOnceAgainAfterItWasOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limited
		var got []string
		began := time.Now()
		log := func(msg string, attrs ...any) {
			got = append(got, fmt.Sprint(msg, " ", time.Since(began), " ", l.Lasts(), " ", attrs))
		}
		if _, was := l.Over(); was {
			t.Error("what has not begun is over")
		}
		for range 125 {
			l.Say(log, "queue does not answer", "n", 1)
			time.Sleep(time.Second)
		}
		if lasted, was := l.Over(); !was || lasted != 125*time.Second || l.Lasts() != 0 {
			t.Errorf("%v after %v, %v more", was, lasted, l.Lasts())
		}
		l.Say(log, "queue does not answer")
		want := []string{
			"queue does not answer 0s 0s [n 1]", "queue does not answer 1m0s 1m0s [n 1]",
			"queue does not answer 2m0s 2m0s [n 1]", "queue does not answer 2m5s 0s []",
		}
		proof.Alike(t, got, want)
	})
}
