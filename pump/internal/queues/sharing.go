package queues

import (
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// Targets are this process's shares of the limits, as of the last look at the cluster.
type Targets struct {
	Accounts map[string]float64
	queues   map[string]float64 // by "account/queue"
	// other is for queues that are in no map (poison, or not known yet) or keep what is paused.
	other float64
	Tasks float64 // of the limit of tasks, if any
}

// Queue is the target of a queue, named account/queue, in messages a second.
func (t *Targets) Queue(name string) float64 {
	if v, ok := t.queues[name]; ok {
		return v
	}
	return t.other
}

// Sharing keeps the source of this process's shares: the newest view, and an older one that all
// others have surely seen. It is for one goroutine at a time.
type Sharing struct {
	Instance string
	Accounts []string
	Limits   Limits
	Tasks    float64 // the limit of tasks; 0: none
	Beat     time.Duration

	views  []*cluster.View // by age; the first is the newest that all have seen, if any
	known  bool            // it is, and not the first that this process read
	latest *sharedView
}

// Observe takes a view.
func (s *Sharing) Observe(v *cluster.View) {
	n := len(s.views)
	if n > 0 && v.Read.Before(s.views[n-1].Read) {
		return
	}
	s.latest = newSharedView(v, s.Instance, s.Accounts)
	if n > 0 && s.views[n-1].Read.Equal(v.Read) {
		s.views[n-1] = v // the same look; what it says of owners has changed since
		return
	}
	s.views = append(s.views, v)
	if len(s.views) > mostViews {
		s.views = slices.Delete(s.views, 1, 2)
	}
}

// mostViews bounds the views that are kept: looks come up to four times a beat,
// and all have looked once after a beat, or after some beats in a large cluster.
const mostViews = 64

// Advance forgets views older than the last that all members have seen. It reports whether that
// view has changed, and when the next will be; 0: with the next view.
func (s *Sharing) Advance(now time.Time) (changed bool, next time.Duration) {
	settled := -1
	for i, v := range s.views {
		left := time.Duration(v.LookBeats())*s.Beat - now.Sub(v.Read)
		if left > 0 {
			next = left
			break
		}
		settled = i
	}
	if settled < 0 || settled == 0 && s.known {
		return false, next
	}
	s.views, s.known = slices.Delete(s.views, 0, settled), true
	return true, next
}

// Published is what the newest view says that this process needs of an account, or of the tasks.
func (s *Sharing) Published(name string) float64 {
	return s.latest.parties[s.latest.me].demand[name]
}

// Targets are this process's shares.
func (s *Sharing) Targets() *Targets {
	c := s.latest
	before := c.partiesIn(s.views[0])
	if !s.known {
		before[c.me] = nil // those looked before this process joined
	}
	t := &Targets{
		Accounts: map[string]float64{},
		queues:   map[string]float64{},
		other:    s.Limits.Queue / float64(len(c.parties)),
	}
	for i := range c.accounts {
		a := &c.accounts[i]
		x, y := a.portions(c.parties, s.Limits), a.portions(before, s.Limits)
		t.Accounts[a.name] = allowed(c.me, s.Limits.Account, &x.account, &y.account)
		for j, q := range a.queues {
			t.queues[a.name+"/"+q.name] = allowed(c.me, s.Limits.Queue, &x.queues[j], &y.queues[j])
		}
	}
	if s.Tasks > 0 {
		l := Limits{Account: s.Tasks}
		x, y := c.tasks.portions(c.parties, l), c.tasks.portions(before, l)
		// Here no service refuses an excess. So each process may use all of its share at any moment, even
		// beyond its stated demand.
		for i := range x.account.list {
			x.account.list[i].want = s.Tasks
		}
		t.Tasks = allowed(c.me, s.Tasks, &x.account, &y.account)
	}
	return t
}

// Unjoined are the targets of a process that does not know the other members yet: the floor of a
// lone process, since others leave at least that to a process that joins (P8.1).
func Unjoined(l Limits, tasks float64, accounts []string) *Targets {
	t := &Targets{Accounts: map[string]float64{}, other: l.Queue * FloorPart, Tasks: tasks * FloorPart}
	for _, name := range accounts {
		t.Accounts[name] = l.Account * FloorPart
	}
	return t
}
