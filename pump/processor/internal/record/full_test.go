package record

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// A13: however many messages a full state refuses, each goes into quarantine when it comes back.
func TestEachMessageThatAFullStateRefusesIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fullStates
		for range 3 {
			f.refused(3, "first")
			time.Sleep(statePatience / 2)
		}
		for i := range unfitMost + 2 {
			id := strconv.Itoa(i)
			if delay, unfit := f.gate(3, id); delay > 0 || unfit {
				t.Fatalf("message %d is not tried: %v, %v", i, delay, unfit)
			}
			if delay, _ := f.refused(3, id); delay > 0 {
				t.Fatalf("message %d is put back for %v, and should come at once", i, delay)
			}
			if _, unfit := f.gate(3, id); !unfit {
				t.Fatalf("message %d is not given up, and would be refused again and again", i)
			}
		}
	})
}

// A message that is not remembered is put back for a while, or it would be tried all the time.
func TestARefusedMessageThatIsNotRememberedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fullStates
		for range 3 {
			f.refused(3, "first")
			time.Sleep(statePatience / 2)
		}
		for i := range unfitMost {
			f.refused(3, strconv.Itoa(i))
		}
		if delay, _ := f.refused(3, "another"); delay != statePauseLeast {
			t.Errorf("it is put back for %v", delay)
		}
		if delay, _ := f.refused(3, "7"); delay != 0 {
			t.Errorf("one that is remembered is put back for %v", delay)
		}
	})
}
