package logs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
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
		proof.Alike(t, got, []string{
			"b 0: 1 events, 2 tasks", "a 0: 1 events, 2 tasks", "a 10: 10 events, 20 tasks",
			"a 20: 10 events, 20 tasks", "b 1: 1 events, 2 tasks", "a 24: 4 events, 8 tasks",
			"b 2: 1 events, 2 tasks",
		})
	})
}

// noted gives a method of a log, and what was written by it and when.
func noted() (log func(msg string, attrs ...any), said func() []string) {
	var got []string
	began := time.Now()
	log = func(msg string, attrs ...any) {
		got = append(got, fmt.Sprint(msg, " ", time.Since(began), " ", attrs))
	}
	return log, func() []string { return got }
}

// What is tried again and again is told by its errors: not by those of a context that has ended.
func TestWhatFailsIsToldWhileItDoesAndWhenItWorksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limited
		var b strings.Builder
		log := slog.New(slog.NewTextHandler(&b, nil))
		ended, end := context.WithCancel(t.Context())
		end()
		tell := func(c context.Context, err error) { l.Tell(c, log, err, "it fails", "it works", "n", 1) }
		tell(t.Context(), nil)
		tell(ended, ended.Err())
		for range 90 {
			tell(t.Context(), errors.New("dark"))
			time.Sleep(time.Second)
		}
		tell(t.Context(), nil)
		tell(t.Context(), nil)
		proof.Same(t, regexp.MustCompile(`time=\S+ `).ReplaceAllString(b.String(), ""),
			`level=WARN msg="it fails" n=1 error=dark
level=WARN msg="it fails" n=1 error=dark for=1m0s
level=INFO msg="it works" n=1 after=1m30s
`)
	})
}

func TestWhatGoesOnIsToldAtOnceMoreAndMoreSeldomAndWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limited
		log, said := noted()
		l.IsOver(log, "queue answers")
		for range 9 * 60 * 60 {
			l.GoesOn(log, "queue does not answer", "n", 1)
			time.Sleep(time.Second)
		}
		l.IsOver(log, "queue answers")
		l.IsOver(log, "queue answers")
		l.GoesOn(log, "queue does not answer")
		want := []string{"queue does not answer 0s [n 1]"}
		for _, m := range []int{1, 2, 4, 8, 16, 32, 64, 124, 184, 244, 304, 364, 424, 484} {
			after := time.Duration(m) * time.Minute
			want = append(want, fmt.Sprintf("queue does not answer %v [n 1 for %v]", after, after))
		}
		want = append(want, "queue answers 9h0m0s [after 9h0m0s]", "queue does not answer 9h0m0s []")
		proof.Alike(t, said(), want)
	})
}

func TestManyLinesWithOneMessageAreOneThatCountsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := Kinds{Every: PerTask}
		log, said := noted()
		say := k.Sparing(log)
		for i := range 25 {
			for n := 4 * i; n < min(52, 4*i+4); n++ {
				say("queue does not answer", "queue", n)
			}
			k.Due()
			time.Sleep(time.Second)
		}
		say("queue answers", "queue", 0)
		proof.Alike(t, said(), []string{
			"queue does not answer 0s [queue 0]", "queue does not answer 10s [queue 40 others 39]",
			"queue does not answer 20s [queue 51 others 10]", "queue answers 25s [queue 0]",
		})
	})
}

func TestALineIsWrittenAtOnceOnceAMinuteAndAtOnceAgainAfterItWasOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limited
		log, said := noted()
		if _, was := l.Over(); was {
			t.Error("what has not begun is over")
		}
		for range 125 {
			l.Say(log, "queue does not answer", "n", 1)
			time.Sleep(time.Second)
		}
		if lasted, was := l.Over(); !was || lasted != 125*time.Second {
			t.Errorf("%v after %v", was, lasted)
		}
		l.Say(log, "queue does not answer")
		proof.Alike(t, said(), []string{
			"queue does not answer 0s [n 1]", "queue does not answer 1m0s [n 1]",
			"queue does not answer 2m0s [n 1]", "queue does not answer 2m5s []",
		})
	})
}
