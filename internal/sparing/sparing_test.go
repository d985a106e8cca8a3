package sparing

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheFirstLineOfAKindComesAtOnceAndTheOthersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Kinds
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
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}
