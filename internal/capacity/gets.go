package capacity

import (
	"math"
	"time"

	"github.com/queuepump/queuepump/internal/upkeep"
)

// How a processor polls a queue (package pump/processor/internal/poll): a queue that gave messages
// is asked again at once; an empty get is followed by a pause that doubles from pollBase to the
// bound of an idle queue. Each pause is longer or shorter by up to a quarter, which evens out. A
// message that comes after a second without one is nudged about, which ends the pause (P8.2).
const (
	pollBase    = 100 * time.Millisecond
	nudgedAfter = 1.0 // second
	livelyMore  = 10  // times as often idle queues are asked where messages come without a nudge
	livelyLeast = 750 * time.Millisecond
	maxGet      = 32 // messages
)

// gets is how many gets a message costs, and how many of these are empty, if messages come at this
// rate a second into one of so many queues with so many readers. Latency is that of a get.
//
// Messages come by themselves, and each of the readers takes what it finds. The polling of a queue
// is a cycle: gets without pause until one is empty, then gets after longer and longer pauses until
// one is not.
func gets(rate float64, latency time.Duration, queues, readers int) (all, empty float64) {
	if rate <= 0 {
		return 0, 0
	}
	// From a hundred messages in a round trip on no get is empty, and each brings as many as it may.
	if x := rate * latency.Seconds(); x > 50 {
		return max(1/x, 1.0/maxGet), 0
	}
	c := cycle{rate: rate, rtt: latency.Seconds(), readers: readers}
	c.most = upkeep.IdlePause(queues * readers).Seconds()
	if readers == 1 {
		return c.gets(0)
	}
	// Of several readers a nudge reaches one, and only after a second without any message in the
	// queue, which is seldom. Instead queues are asked more often.
	c.most = max(c.most/livelyMore, livelyLeast.Seconds())
	// The more often the others ask, the less is left, and the longer a reader's own pauses are, so
	// all have the same rate.
	others := rate
	for range 60 {
		all, empty = c.gets(others)
		others += (float64(readers-1)*all*rate - others) / 2
	}
	return all, empty
}

// cycle is a reader's polling of one queue, in seconds.
type cycle struct {
	rate, rtt, most float64
	readers         int
}

// none is the chance that the queue is empty so long after a processor's own last get, if others
// ask so many times a second.
func (c cycle) none(after, others float64) float64 {
	come := c.rate * float64(c.readers)
	return (others + come*math.Exp(-(come+others)*after)) / (come + others)
}

// gets does what the function gets does, if others ask so many times a second.
func (c cycle) gets(others float64) (all, empty float64) {
	immediate := 1 / c.none(c.rtt, others) // the last of them empty
	paused, seconds := 0.0, immediate*c.rtt
	// lasts is how long a pause and its get take on average: if a nudge ends it, until a message
	// comes.
	since := 0.0
	lasts := func(pause float64) float64 {
		if since >= nudgedAfter && c.readers == 1 {
			return -math.Expm1(-c.rate*pause)/c.rate + c.rtt
		}
		return pause + c.rtt
	}
	reached, pause := 1.0, pollBase.Seconds()
	for ; pause < c.most && reached > 1e-9; pause *= 2 {
		paused += reached
		seconds += reached * lasts(pause)
		since += pause + c.rtt
		reached *= c.none(pause+c.rtt, others)
	}
	reached /= 1 - c.none(c.most+c.rtt, others) // all further ones are alike
	paused += reached
	seconds += reached * lasts(c.most)
	messages := c.rate * seconds
	all, empty = (immediate+paused)/messages, paused/messages
	return max(all, 1.0/maxGet), empty
}
