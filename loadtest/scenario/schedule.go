package scenario

import (
	"math"
	"time"
)

// load is the offered load for a time.
type load struct {
	until time.Duration // since the load began; it starts where the one before ended
	// rate is how many tasks are due a second, evenly spaced; 0: none. asTaken: as many as the
	// distributor takes while at most window of them are not handled or, if no processor handles any
	// (unhandled), not put. Without the window the distributor would fill its memory, and the accounts
	// would be busy long afterwards.
	rate      float64
	window    int64
	unhandled bool
	// burst tasks are due at once at the start, in a group of their own.
	burst int
	group uint8
}

const asTaken = -1

// schedule says when each task is due. The schedule does not depend on how the
// system copes: a test that waits for answers before it asks again hides the very
// delays it is to measure (coordinated omission).
type schedule struct {
	loads []load
	i     int           // into loads
	from  time.Duration // where loads[i] starts
	k     int           // tasks of it so far
	// over is the part of a task that earlier loads gave beyond what was due at their end. With it a
	// load that is cut into phases has as many tasks as an uncut one.
	over float64
}

// due is a task's time in the schedule.
type due struct {
	at    time.Duration
	group uint8
	// taken: the task is due from then on as soon as the window has room, and never if that is after
	// the end of the load.
	taken bool
	load  *load
}

// next gives the next task at the time now. ok is false when none is left. An asTaken load ends by
// the clock, other loads end when all tasks were given.
func (s *schedule) next(now time.Duration) (d due, ok bool) {
	for ; s.i < len(s.loads); s.advance() {
		l := &s.loads[s.i]
		if s.k < l.burst {
			s.k++
			return due{at: s.from, group: l.group}, true
		}
		switch {
		case l.rate == asTaken:
			if now < l.until {
				s.k++
				return due{at: max(now, s.from), taken: true, load: l}, true
			}
		case l.rate > 0:
			at := s.from + time.Duration(
				math.Round((float64(s.k-l.burst)+s.over)/l.rate*float64(time.Second)),
			)
			if at < l.until {
				s.k++
				return due{at: at}, true
			}
		}
	}
	return due{}, false
}

func (s *schedule) advance() {
	if l := &s.loads[s.i]; l.rate > 0 {
		s.over = max(float64(s.k-l.burst)+s.over-(l.until-s.from).Seconds()*l.rate, 0)
	} else {
		s.over = 0
	}
	s.from, s.k = s.loads[s.i].until, 0
	s.i++
}

// rest is how many tasks are left that are due at a time of their own.
func (s *schedule) rest() (n int64) {
	for {
		d, ok := s.next(1<<62 - 1) // every load of asTaken is over by then
		if !ok {
			return n
		}
		if !d.taken {
			n++
		}
	}
}
