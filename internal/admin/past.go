package admin

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/status"
)

const (
	// pastFor is how long points are kept, and pastEvery the least time between two: with 250 accounts
	// they take some 700 KiB.
	pastFor   = 15 * time.Minute
	pastEvery = 5 * time.Second
)

// Point is what was seen at one time.
type Point struct {
	At       time.Time
	Rate     float64 // tasks a second
	Messages *int64  // that wait or are in flight; nil: not known
	Accounts map[string]AccountPoint
}

// AccountPoint is what was seen of one account.
type AccountPoint struct {
	Demand float64 // messages a second that all processes ask for
	Limit  float64
}

// past keeps the points of the last minutes.
type past struct {
	points []Point // by time

	throttled map[string]uint64 // by account, when they were last counted
	counted   time.Time
	refused   map[string]float64
}

// add takes points that were kept elsewhere, without the known ones.
func (p *past) add(points []Point) { p.points = keep(p.points, points, pastEvery, pastFor) }

// keep puts points between others, in the order of time. It leaves out points that are nearer than
// apart to another, and drops all that are more than a span older than the newest.
func keep(points, more []Point, apart, span time.Duration) []Point {
	for _, point := range more {
		at, found := slices.BinarySearchFunc(points, point, byTime)
		near := found || at > 0 && point.At.Sub(points[at-1].At) < apart ||
			at < len(points) && points[at].At.Sub(point.At) < apart
		if !near {
			points = slices.Insert(points, at, point)
		}
	}
	if n := len(points); n > 0 {
		oldest := points[n-1].At.Add(-span)
		points = slices.DeleteFunc(points, func(q Point) bool { return q.At.Before(oldest) })
	}
	return points
}

func byTime(a, b Point) int { return a.At.Compare(b.At) }

// see takes a reading, and gives its point if it is worth one. It also measures how much the
// service refuses. The time of a reading by this machine's clock is uncertain: that clock may be
// minutes ahead of the service's, or behind it.
func (p *past) see(s *status.Status) (*Point, trend) {
	if s.LocalClock {
		return nil, trend{}
	}
	p.points = slices.DeleteFunc(p.points, func(q Point) bool { return q.At.After(s.Time) })
	p.refusals(s)
	n := count(s)
	point := Point{At: s.Time, Rate: n.rate, Accounts: map[string]AccountPoint{}}
	if n.looked >= int(queuesIn(s)) {
		point.Messages = &n.messages
	}
	for i := range s.Accounts {
		a := &s.Accounts[i]
		point.Accounts[a.Name] = AccountPoint{Demand: a.Demand, Limit: a.Limit}
	}
	now := trend{refused: p.refused}
	if k := len(p.points); k > 0 && s.Time.Sub(p.points[k-1].At) < pastEvery {
		return nil, now
	}
	p.add([]Point{point})
	return &point, now
}

// refusals measures how many requests a second were refused as too many since the last beats. A
// counter falls if a process has gone.
func (p *past) refusals(s *status.Status) {
	span := s.Time.Sub(p.counted)
	if span < 0 { // the clock went back
		p.counted, span, p.throttled, p.refused = time.Time{}, 0, nil, nil
	}
	if !p.counted.IsZero() && span < pastEvery {
		return
	}
	now, rates := map[string]uint64{}, map[string]float64{}
	for i := range s.Accounts {
		a := &s.Accounts[i]
		now[a.Name] = a.Throttled
		if before, known := p.throttled[a.Name]; known && a.Throttled > before && span < pastFor {
			rates[a.Name] = float64(a.Throttled-before) / span.Seconds()
		}
	}
	p.throttled, p.counted, p.refused = now, s.Time, rates
}

// chart is points as the script draws them: columns of the same length.
type chart struct {
	Times    []int64               `json:"times"` // seconds since 1970
	Rate     []float64             `json:"rate"`
	Messages []*int64              `json:"messages"`
	Accounts map[string][]*float64 `json:"accounts"` // demand; null: not known
	Limits   map[string]float64    `json:"limits"`
}

func chartOf(points []Point) chart {
	c := chart{
		Times: []int64{}, Rate: []float64{}, Messages: []*int64{},
		Accounts: map[string][]*float64{}, Limits: map[string]float64{},
	}
	for _, p := range points {
		for name, a := range p.Accounts {
			c.Accounts[name] = nil
			c.Limits[name] = a.Limit
		}
	}
	for _, p := range points {
		c.Times = append(c.Times, p.At.Unix())
		c.Rate = append(c.Rate, tenths(p.Rate))
		c.Messages = append(c.Messages, p.Messages)
		for name := range c.Accounts {
			var demand *float64
			if a, known := p.Accounts[name]; known {
				demand = new(tenths(a.Demand))
			}
			c.Accounts[name] = append(c.Accounts[name], demand)
		}
	}
	return c
}

func tenths(x float64) float64 { return math.Round(10*x) / 10 }

// pace measures how fast runs are done.
type pace struct {
	marks map[string][]mark
	rates map[string]float64 // as they were measured last
}

// mark is how much of a run was done at a time.
type mark struct {
	at   time.Time
	done uint64
}

const (
	// paceOver is the time over which the speed of a run is measured, and paceLeast the least time to
	// know it.
	paceOver  = time.Minute
	paceLeast = 5 * time.Second
)

// see takes how much of each run is done, and gives the tasks a second; a run has no entry while
// that is not known.
func (p *pace) see(now time.Time, done map[string]uint64) map[string]float64 {
	marks, rates := map[string][]mark{}, map[string]float64{}
	for run, n := range done {
		list := slices.DeleteFunc(p.marks[run], func(m mark) bool { return m.at.After(now) })
		if k := len(list); k == 0 || now.Sub(list[k-1].at) >= time.Second {
			list = append(list, mark{now, n})
		}
		list = slices.DeleteFunc(list, func(m mark) bool { return now.Sub(m.at) > paceOver })
		marks[run] = list
		if len(list) == 0 {
			continue
		}
		if span := now.Sub(list[0].at); span >= paceLeast && n >= list[0].done {
			rates[run] = float64(n-list[0].done) / span.Seconds()
		}
	}
	p.marks, p.rates = marks, rates
	return rates
}

// Move is segments that went from one owner to another.
type Move struct {
	At       time.Time `json:"at"`
	From     string    `json:"from"` // empty: from none
	To       string    `json:"to"`   // empty: to none
	Segments int       `json:"segments"`
}

// movesKept is how many moves are shown.
const movesKept = 12

// movesOf compares the owners of two readings.
func movesOf(before, now []string, at time.Time) (moves []Move) {
	if len(before) != len(now) {
		return nil
	}
	counts := map[[2]string]int{}
	for i := range now {
		if before[i] != now[i] {
			counts[[2]string{before[i], now[i]}]++
		}
	}
	for way, n := range counts {
		moves = append(moves, Move{At: at, From: way[0], To: way[1], Segments: n})
	}
	slices.SortFunc(moves, func(a, b Move) int {
		return cmp.Or(cmp.Compare(b.Segments, a.Segments), cmp.Compare(a.From, b.From),
			cmp.Compare(a.To, b.To))
	})
	return moves
}
