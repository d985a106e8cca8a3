package sampling

import (
	"math"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// said is what all live members say, by account.
type said struct{ held, later, demand map[string]float64 }

// sayings adds up the beats. A silent member does not count: what it held comes back.
func sayings(v *cluster.View) said {
	s := said{held: map[string]float64{}, later: map[string]float64{}, demand: map[string]float64{}}
	stamp := v.Stamp()
	for i := range v.Members {
		m := &v.Members[i]
		if m.Err != nil || m.Silent(stamp) {
			continue
		}
		add(s.held, m.Held)
		add(s.later, m.Later)
		add(s.demand, m.Demand)
	}
	return s
}

func add(to, of map[string]float64) {
	for name, x := range of {
		to[name] += x
	}
}

const (
	// leastRate is a message an hour: a backlog without progress is still a number for a threshold.
	leastRate = 1.0 / 3600
	// smooth is the time over which the rate is averaged as it falls.
	smooth = time.Minute
)

// rates measures how many messages a second all members have lately done, by the deletes that they
// count. Deletes of copies and of messages brought home count too: they are few.
type rates struct {
	marks map[string]mark // by incarnation
	mean  float64
	at    time.Time // zero: nothing was measured
}

// mark is what a member said in a beat.
type mark struct {
	beat    time.Time
	deletes uint64
	rate    float64
}

// observe takes the beats of a view. The rate rises at once and falls slowly, and while nothing
// waits it does not fall: an empty queue does not show how fast tasks would be done.
func (r *rates) observe(v *cluster.View, waits int64, now time.Time) float64 {
	marks := map[string]mark{}
	sum, known := 0.0, false
	stamp := v.Stamp()
	for i := range v.Members {
		m := &v.Members[i]
		if m.Err != nil || m.Silent(stamp) || m.Role != cluster.RoleProcessor {
			continue
		}
		last, is := r.marks[m.Incarnation]
		next := mark{m.Beat, m.Deletes, last.rate}
		if span := m.Beat.Sub(last.beat).Seconds(); is && span > 0 && m.Deletes >= last.deletes {
			next.rate = float64(m.Deletes-last.deletes) / span
		}
		marks[m.Incarnation], known = next, known || is
		sum += next.rate
	}
	r.marks = marks
	switch {
	case r.at.IsZero() && !known: // the first look
		return 0
	case r.at.IsZero():
		r.mean = sum
	case waits > 0 || sum > r.mean:
		kept := math.Exp(-now.Sub(r.at).Seconds() / smooth.Seconds())
		r.mean = r.mean*kept + sum*(1-kept)
	}
	r.at = now
	return max(sum, r.mean)
}
