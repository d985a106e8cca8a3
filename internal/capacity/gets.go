package capacity

import (
	"math"
	"time"
)

// How a processor polls a queue (pump/processor_poll.go): what gave something is asked again at
// once; an empty get is followed by a pause that doubles from pollBase to the bound of an idle
// queue. Each pause is longer or shorter by up to a quarter, which evens out. A message that comes
// after a second without one is nudged about, which ends the pause (P8.2).
const (
	pollBase      = 100 * time.Millisecond
	nudgedAfter   = 1.0  // second
	pollIdleRate  = 10.0 // gets a second of all idle queues together
	pollIdleLeast = 5 * time.Second
	maxGet        = 32 // messages
)

// gets is how many gets a message costs that comes with others at this rate a second into one
// queue, and how many of these are empty. Latency is a get's.
//
// Messages come by themselves, so a get finds none that have come in the time t since the one before
// with the chance e^(-rate t). The polling of a queue is a cycle: gets without pause until one is
// empty, then gets after longer and longer pauses until one is not.
func gets(rate float64, latency time.Duration, queues int) (all, empty float64) {
	if rate <= 0 {
		return 0, 0
	}
	rtt := latency.Seconds()
	// 1/e^(-x) of them, of which the last is empty. From a hundred messages in a round trip
	// on there is no empty one, and a get brings as many as it may.
	if x := rate * rtt; x > 50 {
		return max(1/x, 1.0/maxGet), 0
	}
	immediate := math.Exp(rate * rtt)
	most := max(pollIdleLeast, time.Duration(float64(queues)/pollIdleRate*float64(time.Second))).Seconds()
	paused, seconds := 0.0, immediate*rtt
	// lasts is how long a pause and its get take on average: if a nudge ends it, until a message comes.
	since := 0.0
	lasts := func(pause float64) float64 {
		if since >= nudgedAfter {
			return -math.Expm1(-rate*pause)/rate + rtt
		}
		return pause + rtt
	}
	reached, pause := 1.0, pollBase.Seconds()
	for ; pause < most && reached > 1e-9; pause *= 2 {
		paused += reached
		seconds += reached * lasts(pause)
		since += pause + rtt
		reached *= math.Exp(-rate * (pause + rtt))
	}
	reached /= -math.Expm1(-rate * (most + rtt)) // all further ones are alike
	paused += reached
	seconds += reached * lasts(most)
	messages := rate * seconds
	all, empty = (immediate+paused)/messages, paused/messages
	return max(all, 1.0/maxGet), empty
}
