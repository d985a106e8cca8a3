package send

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// Router knows where each segment's messages go at this moment. It outlives
// maps and distributions: the sink of a queue that stays keeps its state.
//
// A route never changes: each event makes another route and closes changed of the one before, which
// wakes all that wait for a better way.
type Router struct {
	fleet *queues.Set
	log   *slog.Logger
	route atomic.Pointer[Route]
	reads atomic.Uint32 // the newest format that all processors read; 0: not known
	wake  chan struct{} // capacity 1: marks may be needed
	said  logs.Kinds    // of queues
	// limits are how many tasks envelopes may hold, by segment; nil: as many as fit.
	limits atomic.Pointer[[]int]
	// Heeded is called when other settings of the workload are in force; it may be nil.
	Heeded func()

	mu     sync.Mutex // guards what follows, and the making of routes
	sinks  map[string]*Sink
	poison map[string]*Sink
	shares map[string]*share   // by account
	spills []uint8             // as the newest view has them
	viewed time.Time           // when that was read
	own    map[mark]time.Time  // acknowledged to this process, not yet seen in a view
	warned map[string]struct{} // accounts without credentials, named in the log
}

// mark says that one of a segment's choices, 1 or 2, may have messages of it (P6.3).
type mark struct {
	segment uint32
	choice  uint8
}

// Route is where messages go between two changes.
type Route struct {
	Workload *workload.Workload
	read     time.Time // when the map was asked for
	sinks    []*Sink   // by the map's shards
	accounts int       // that are put into
	poison   map[string]*Sink
	marks    []uint8 // by segment, bit i for choice i; nil: none
	choices  *choices
	Changed  chan struct{} // closed when there is another
	Fatal    error         // the workload is not the one it was
}

func NewRouter(f *queues.Set, log *slog.Logger) *Router {
	return &Router{
		fleet: f, log: log, wake: make(chan struct{}, 1),
		sinks: map[string]*Sink{}, poison: map[string]*Sink{}, own: map[mark]time.Time{},
		warned: map[string]struct{}{}, shares: map[string]*share{}, said: logs.Kinds{Every: logs.PerTask},
	}
}

// Current gives the route of this moment; nil before the first update.
func (r *Router) Current() *Route { return r.route.Load() }

// Writes is the format of new envelopes: the newest that every processor reads, as far as is known
// (P4.6). A processor that comes later and reads less puts back what it cannot read.
func (r *Router) Writes() uint8 {
	if v := r.reads.Load(); v > 0 {
		return uint8(v)
	}
	return codec.Version
}

// Update takes a newer reading of the workload's row.
func (r *Router) Update(w *workload.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(w)
}

// marked notes a mark that is stored: from now on it may be used.
func (r *Router) marked(segments []uint32, choice int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, s := range segments {
		r.own[mark{s, uint8(choice)}] = now
	}
	r.remake()
}

// Lost says that the workload is another one: nothing more is put.
func (r *Router) Lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *r.route.Load()
	if next.Fatal != nil {
		return
	}
	next.Fatal = err
	r.put(&next)
}

// turned says that a queue's health is another.
func (r *Router) turned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remake()
}

// remake makes a route that differs from the one before in marks or health.
func (r *Router) remake() {
	next := *r.route.Load()
	if next.Fatal != nil {
		return // a view of another workload has no place in these marks
	}
	next.marks = r.marks(next.Workload.Map.Segments)
	r.put(&next)
}

func (r *Router) put(next *Route) {
	next.Changed = make(chan struct{})
	if old := r.route.Swap(next); old != nil {
		close(old.Changed)
	}
	waits.Signal(r.wake)
}

// marks joins what the view shows with what was acknowledged since.
func (r *Router) marks(segments int) []uint8 {
	if len(r.own) == 0 {
		return r.spills
	}
	m := make([]uint8, segments)
	copy(m, r.spills)
	for k := range r.own {
		m[k.segment] |= 1 << k.choice
	}
	return m
}

// take makes a route from a reading of the row, unless there is a newer route. It reports whether
// it did.
func (r *Router) take(w *workload.Workload) bool {
	read := time.Now().Add(-w.Age())
	old := r.route.Load()
	if old != nil && (old.Fatal != nil || read.Before(old.read)) {
		return false
	}
	if old != nil {
		if err := old.Workload.Replaced(w); errors.Is(err, workload.ErrRolledBack) {
			return false // the process that looks puts the newer map back
		} else if err != nil {
			next := *old
			next.Fatal = err
			r.put(&next)
			return true
		}
	}
	next := &Route{Workload: w, read: read}
	changed, err := setup.Follow(r.fleet, w)
	next.Fatal = err
	if changed && r.Heeded != nil {
		defer r.Heeded()
	}
	switch {
	case old == nil:
		r.lay(next, nil)
	case w.Map.Version == old.Workload.Map.Version:
		next.sinks, next.poison, next.choices = old.sinks, old.poison, old.choices
		next.accounts = old.accounts
	default:
		r.log.Info("the shard map has changed", "version", w.Map.Version)
		r.lay(next, old)
	}
	next.marks = r.marks(w.Map.Segments)
	r.put(next)
	return true
}

// lay finds the sinks of a new map. Sinks of removed queues are forgotten; their messages look for
// a new home by themselves.
func (r *Router) lay(next, old *Route) {
	m := next.Workload.Map
	next.choices = &choices{of: make(map[uint32][]int)}
	next.sinks = make([]*Sink, len(m.Shards))
	next.poison = map[string]*Sink{}
	sinks, poison, active := map[string]*Sink{}, map[string]*Sink{}, map[string]bool{}
	for i, s := range m.Shards {
		if s.State == shardmap.Active {
			active[s.Account] = true
		}
		name := s.Account + "/" + s.Queue
		o := r.sinks[name]
		if o == nil {
			o = r.open(s.Account, s.Queue, s.State == shardmap.Active)
			if old != nil && s.State == shardmap.Active {
				o.missing()
			}
		}
		next.sinks[i], sinks[name] = o, o
		if a := r.fleet.Account(s.Account); a != nil && poison[s.Account] == nil {
			if o = r.poison[s.Account]; o == nil {
				o = newSink(a.Poison.String(), a.Poison, nil, poisonInFlight, r.share(s.Account))
			}
			poison[s.Account] = o
		}
	}
	r.sinks, r.poison, next.poison, next.accounts = sinks, poison, poison, len(active)
}

// Reachable says that this process may have credentials for further accounts. Messages that wait
// for a queue of such an account look for it again.
func (r *Router) Reachable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.route.Load()
	if old == nil || old.Fatal != nil {
		return
	}
	refused := 0
	for name, s := range r.sinks {
		if s.refused != nil {
			delete(r.sinks, name)
			refused++
		}
	}
	if refused == 0 {
		return
	}
	clear(r.warned)
	next := *old
	r.lay(&next, nil)
	r.put(&next)
}

func (r *Router) open(account, queue string, active bool) *Sink {
	s, err := r.fleet.Queue(account, queue)
	most := inFlightMost
	if err != nil {
		most = poisonInFlight
	}
	if _, said := r.warned[account]; err != nil && !said && active {
		r.warned[account] = struct{}{}
		r.log.Error("the workload has an account that this process has no credentials "+
			"for; its tasks go to others once the workload's row says so",
			"account", account, "error", err)
	}
	return newSink(account+"/"+queue, s, err, most, r.share(account))
}

// share is an account's share, which lasts as long as this process.
func (r *Router) share(account string) *share {
	of := r.shares[account]
	if of == nil {
		of = newShare()
		r.shares[account] = of
	}
	return of
}

// Fresh reports whether the map is young enough for puts (P6.5): the removal of a queue waits only
// that long.
func (t *Route) Fresh() bool { return queues.Young(t.read) }

// choices remembers shardmap's Choices of one map, which take some work.
type choices struct {
	mu sync.Mutex
	of map[uint32][]int
}

func (c *choices) get(m *shardmap.Map, segment uint32) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, ok := c.of[segment]
	if !ok {
		list = m.Choices(segment)
		c.of[segment] = list
	}
	return list
}

func (t *Route) home(segment uint32) *Sink { return t.sinks[t.Workload.Map.Home(segment)] }

// marked reports whether a choice's queue is known to be read for the segment. In a shared workload
// every process reads every queue.
func (t *Route) marked(segment uint32, choice int) bool {
	return t.Workload.Shared || t.marks != nil && t.marks[segment]&(1<<choice) != 0
}

// destinations lists where a segment's message may be put now, best first and never
// empty. It is the home unless that is dark, and the choices that are marked
// and in a better state than the home:
//
//   - If the home is well, it is the only destination.
//   - A queue at its limit is helped by choices that are well. When every queue is at its limit, no
//     queue helps.
//   - A dark queue is helped by choices that are not dark. Several help, because otherwise the
//     queue with the most such segments would hold up all others. If all are dark, the home is the
//     choice again: there is nothing better than to go on trying.
//
// A queue that this process has no credentials for is dark to it.
func (t *Route) destinations(segment uint32) (list []*Sink) {
	home := t.home(segment)
	of := home.state()
	if of != dark {
		list = append(list, home)
	}
	if of != well {
		for i, s := range t.helpers(segment) {
			if s.state() < of && t.marked(segment, i+1) {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		list = append(list, home)
	}
	return list
}

// Unreachable is an error if this process has no credentials for an account that it must put into.
func (t *Route) Unreachable() error {
	for i, s := range t.sinks {
		if s.refused != nil && t.Workload.Map.Shards[i].State == shardmap.Active {
			return s.refused
		}
	}
	return nil
}

// Stuck counts the segments with three dark choices.
func (t *Route) Stuck() (n int) {
	for segment := range uint32(t.Workload.Map.Segments) {
		isDark := func(s *Sink) bool { return s.state() == dark }
		home := t.home(segment)
		helpers := t.helpers(segment)
		if isDark(home) && !slices.ContainsFunc(helpers, func(s *Sink) bool { return !isDark(s) }) {
			n++
		}
	}
	return n
}

// helpers are the queues of the segment's second and third choice.
func (t *Route) helpers(segment uint32) []*Sink {
	list := t.choices.get(t.Workload.Map, segment)[1:]
	out := make([]*Sink, len(list))
	for i, shard := range list {
		out[i] = t.sinks[shard]
	}
	return out
}

// wanted lists, by choice, the marks that destinations would use: the third choice's only if the
// second has more than enough to do.
func (t *Route) wanted() (lists [3][]uint32) {
	if t.Workload.Shared || !t.Strained() {
		return lists
	}
	for segment := range uint32(t.Workload.Map.Segments) {
		home := t.home(segment)
		of := home.state()
		if of == well {
			continue
		}
		for i, s := range t.helpers(segment) {
			helper := s.state()
			if helper >= of {
				continue
			}
			if !t.marked(segment, i+1) {
				lists[i+1] = append(lists[i+1], segment)
			}
			if helper == well && !s.pressed() {
				break
			}
		}
	}
	return lists
}

var errNoPoison = errors.New(
	"no account of the workload has a poison queue that this process may use",
)

// poisonDestinations is where a bad line goes: the poison queue of the account of its
// home or, while that is dark, of a choice. No process owns what lies there, so no
// mark is needed.
func (t *Route) poisonDestinations(segment uint32) (home *Sink, list []*Sink, err error) {
	for _, shard := range t.choices.get(t.Workload.Map, segment) {
		o := t.poison[t.Workload.Map.Shards[shard].Account]
		if o == nil {
			continue
		}
		if home == nil {
			home = o
		}
		if o.state() != dark {
			return home, []*Sink{o}, nil
		}
	}
	if home == nil {
		return nil, nil, errNoPoison
	}
	return home, []*Sink{home}, nil
}
